import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ObjectMeta, OwnerReference } from '../../../proto/kube/types.ts';
import { decideFate, type Identity, OwnershipGraph, type OwnerState } from './ownership.ts';

const identity = (uid: string): Identity => ({ group: '', version: 'v1', resource: 'things', kind: 'Thing', namespace: 'ns', name: uid, uid });
const owner = (uid: string, blocks = true): OwnerReference => ({
  apiVersion: 'v1',
  kind: 'Thing',
  name: uid,
  uid,
  controller: true,
  blockOwnerDeletion: blocks,
});

/** A graph of objects written as `uid: meta`. */
function graphOf(objects: Record<string, ObjectMeta>): {
  graph: OwnershipGraph;
  put: (uid: string, meta: ObjectMeta) => { check: string[]; orphan: string[] };
} {
  const graph = new OwnershipGraph();
  const put = (uid: string, meta: ObjectMeta) => graph.upsert(identity(uid), { uid, ...meta }, (reference) => identity(reference.uid));
  for (const [uid, meta] of Object.entries(objects)) put(uid, meta);
  return { graph, put };
}

const deleting = (finalizer?: string): ObjectMeta => ({
  deletionTimestamp: '2026-01-01T00:00:00Z',
  ...(finalizer === undefined ? {} : { finalizers: [finalizer] }),
});

test('when an owner goes its dependents are looked at', () => {
  const { graph } = graphOf({ rs: {}, p1: { ownerReferences: [owner('rs')] }, p2: { ownerReferences: [owner('rs')] } });
  assert.deepEqual(graph.remove('rs').check.toSorted(), ['p1', 'p2']);
});

test('an owner nobody has seen is asked for, and its dependent with it', () => {
  const { graph, put } = graphOf({});
  assert.deepEqual(put('p1', { ownerReferences: [owner('gone')] }).check.toSorted(), ['gone', 'p1']);
  assert.equal(graph.isVirtual('gone'), true);
  assert.deepEqual(graph.remove('gone').check, ['p1']);
});

test('a dependent that is listed before its owner is found when the owner goes', () => {
  const { graph, put } = graphOf({ p1: { ownerReferences: [owner('rs')] } });
  put('rs', {});
  assert.deepEqual(
    graph.dependents('rs').map((one) => one.uid),
    ['p1'],
  );
});

test('foreground: the owner and its dependents are looked at, and the owner again when they are gone', () => {
  const { graph, put } = graphOf({ rs: {}, p1: { ownerReferences: [owner('rs')] } });
  assert.deepEqual(put('rs', deleting('foregroundDeletion')).check.toSorted(), ['p1', 'rs']);
  assert.deepEqual(graph.remove('p1').check, ['rs']);
});

test('orphan: the dependents are let go', () => {
  const { put } = graphOf({ rs: {}, p1: { ownerReferences: [owner('rs')] } });
  assert.deepEqual(put('rs', deleting('orphan')).orphan, ['rs']);
});

const cases: { name: string; meta: ObjectMeta; owners: Record<string, OwnerState>; objects?: Record<string, ObjectMeta>; fate: object }[] = [
  { name: 'nothing happens to what has no owner', meta: {}, owners: {}, fate: { kind: 'none' } },
  { name: 'nothing happens while the owner is there', meta: {}, owners: { rs: 'solid' }, fate: { kind: 'none' } },
  { name: 'it goes when its only owner is absent', meta: {}, owners: { rs: 'absent' }, fate: { kind: 'delete', policy: 'Background', unblockOwners: false } },
  { name: 'it keeps the owners that are there', meta: {}, owners: { a: 'solid', b: 'absent', c: 'waits' }, fate: { kind: 'dropOwners', uids: ['b', 'c'] } },
  {
    name: 'it goes the way its finalizer says',
    meta: { finalizers: ['orphan'] },
    owners: { rs: 'absent' },
    fate: { kind: 'delete', policy: 'Orphan', unblockOwners: false },
  },
  {
    name: 'with dependents of its own it waits for them too',
    meta: {},
    owners: { d: 'waits' },
    objects: { p: { ownerReferences: [owner('it')] } },
    fate: { kind: 'delete', policy: 'Foreground', unblockOwners: false },
  },
  {
    name: 'one that waits asks for its blockers first',
    meta: deleting('foregroundDeletion'),
    owners: {},
    objects: { p: { ownerReferences: [owner('it')] } },
    fate: { kind: 'checkDependents', uids: ['p'] },
  },
  {
    name: 'one that waits does not wait for those that do not block',
    meta: deleting('foregroundDeletion'),
    owners: {},
    objects: { p: { ownerReferences: [owner('it', false)] } },
    fate: { kind: 'removeFinalizer', finalizer: 'foregroundDeletion' },
  },
  { name: 'one that is being deleted otherwise is left alone', meta: deleting(), owners: { rs: 'absent' }, fate: { kind: 'none' } },
];
for (const { name, meta, owners, objects, fate } of cases) {
  test(`fate: ${name}`, () => {
    const { graph, put } = graphOf(objects ?? {});
    put('it', meta);
    assert.deepEqual(decideFate({ uid: 'it', ...meta }, new Map(Object.entries(owners)), graph), fate);
  });
}
