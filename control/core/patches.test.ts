import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Schema } from '../../proto/kube/schema-types.ts';
import schema from '../../proto/kube/schema.json' with { type: 'json' };
import type { Obj } from './json.ts';
import { applyJsonPatch } from './jsonpatch.ts';
import { applyMergePatch } from './mergepatch.ts';
import { createTypes } from './schema.ts';
import { applyStrategicPatch } from './strategic.ts';

const types = createTypes(schema as unknown as Schema);
const pod = (spec: Obj): Obj => ({ spec });
const strategic = (original: Obj, patch: Obj): Obj => applyStrategicPatch(types, types.definition('Pod'), original, patch);

test('JSON patch: every operation, and none half done', () => {
  const before = { a: [1, 2], b: { 'x/y': 1 } };
  assert.deepEqual(
    applyJsonPatch(before, [
      { op: 'add', path: '/a/-', value: 3 },
      { op: 'remove', path: '/b/x~1y' },
      { op: 'copy', from: '/a/0', path: '/c' },
      { op: 'move', from: '/a/1', path: '/d' },
    ]),
    { a: [1, 3], b: {}, c: 1, d: 2 },
  );
  assert.deepEqual(before, { a: [1, 2], b: { 'x/y': 1 } }, 'the document is left alone');
  for (const operation of [
    { op: 'remove', path: '/none' },
    { op: 'replace', path: '/none', value: 1 },
    { op: 'test', path: '/a/0', value: 2 },
    { op: 'add', path: '/a/9', value: 1 },
  ]) {
    assert.throws(() => applyJsonPatch(before, [operation]), { code: 422 }, JSON.stringify(operation));
  }
});

test('merge patch: null removes, lists are replaced', () => {
  assert.deepEqual(applyMergePatch({ a: 1, b: { c: 1, d: 2 }, e: [1] }, { a: null, b: { c: null }, e: [2, 3] }), { b: { d: 2 }, e: [2, 3] });
});

test('strategic: items are merged by key, deleted by directive, the rest stays', () => {
  const original = pod({
    containers: [
      { name: 'a', image: '1' },
      { name: 'b', image: '1' },
    ],
  });
  assert.deepEqual(
    strategic(original, pod({ containers: [{ name: 'b', image: '2' }] })),
    pod({
      containers: [
        { name: 'a', image: '1' },
        { name: 'b', image: '2' },
      ],
    }),
  );
  assert.deepEqual(strategic(original, pod({ containers: [{ name: 'a', $patch: 'delete' }] })), pod({ containers: [{ name: 'b', image: '1' }] }));
  assert.deepEqual(strategic(original, pod({ containers: [{ $patch: 'replace' }, { name: 'c' }] })), pod({ containers: [{ name: 'c' }] }));
});

test('strategic: the order the client names', () => {
  const original = pod({ containers: [{ name: 'a' }, { name: 'b' }] });
  const patch = pod({ '$setElementOrder/containers': [{ name: 'c' }, { name: 'a' }], containers: [{ name: 'c' }] });
  assert.deepEqual(
    strategic(original, patch)['spec'].containers.map((item: Obj) => item['name']),
    ['c', 'a', 'b'],
  );
});

test('strategic: retainKeys and primitive lists', () => {
  assert.deepEqual(strategic({ spec: { nodeSelector: { a: '1', b: '2' } } }, { spec: { nodeSelector: { $retainKeys: ['b'], b: '3' } } }), {
    spec: { nodeSelector: { b: '3' } },
  });
  const metadata = { metadata: { finalizers: ['x/a', 'x/b'] } };
  assert.deepEqual(strategic(metadata, { metadata: { '$deleteFromPrimitiveList/finalizers': ['x/a'] } }), { metadata: { finalizers: ['x/b'] } });
  assert.deepEqual(strategic(metadata, { metadata: { finalizers: ['x/c'] } })['metadata'].finalizers, ['x/c', 'x/a', 'x/b']);
  assert.deepEqual(strategic(metadata, { metadata: { finalizers: null } }), { metadata: {} });
});
