import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod, ReplicaSet } from '../../../proto/kube/types.ts';
import { leastValuable, planReplicas, planReplicaSetStatus } from './replicaset.ts';

const nowMs = Date.UTC(2026, 0, 1);
const now = '2026-01-01T00:00:00Z';
const agoText = (seconds: number): string => new Date(nowMs - seconds * 1000).toISOString();

interface Kind {
  node?: string;
  phase?: string;
  readyFor?: number;
  age?: number;
  restarts?: number;
  cost?: number;
  ending?: boolean;
}

function pod(name: string, kind: Kind = {}): Pod {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name,
      uid: name,
      labels: { app: 'web' },
      creationTimestamp: agoText(kind.age ?? 100),
      ...(kind.ending === true ? { deletionTimestamp: now } : {}),
      ...(kind.cost === undefined ? {} : { annotations: { 'controller.kubernetes.io/pod-deletion-cost': String(kind.cost) } }),
    },
    spec: { containers: [], ...(kind.node === '' ? {} : { nodeName: kind.node ?? 'n1' }) },
    status: {
      phase: kind.phase ?? 'Running',
      conditions: kind.readyFor === undefined ? [] : [{ type: 'Ready', status: 'True', lastTransitionTime: agoText(kind.readyFor) }],
      containerStatuses: [{ name: 'c', image: '', imageID: '', ready: true, restartCount: kind.restarts ?? 0 }],
    },
  };
}

function replicaSet(replicas: number, minReadySeconds = 0): ReplicaSet {
  return {
    apiVersion: 'apps/v1',
    kind: 'ReplicaSet',
    metadata: { name: 'web', generation: 2 },
    spec: { replicas, minReadySeconds, selector: {}, template: { metadata: { labels: { app: 'web' } } } },
  };
}

test('missing pods are made, ending and finished ones do not count', () => {
  const pods = [pod('a'), pod('b', { ending: true }), pod('c', { phase: 'Succeeded' })];
  assert.equal(planReplicas({ replicaSet: replicaSet(3), pods, related: pods, nowMs }).create, 2);
});

// Each pair: the first goes before the second.
const pairs: [string, Kind, Kind][] = [
  ['not assigned before assigned', { node: '' }, { node: 'n1' }],
  ['pending before running', { phase: 'Pending' }, { phase: 'Running' }],
  ['not ready before ready', {}, { readyFor: 10 }],
  ['low deletion cost before high', { readyFor: 10, cost: -5 }, { readyFor: 10, cost: 5 }],
  ['ready for a shorter time first', { readyFor: 10 }, { readyFor: 1000 }],
  ['more restarts first', { restarts: 3 }, { restarts: 0 }],
  ['younger first', { age: 10 }, { age: 5000 }],
];
for (const [name, first, second] of pairs) {
  test(`scaling down: ${name}`, () => {
    const a = pod('a', first);
    const b = pod('b', second);
    assert.deepEqual(
      leastValuable([b, a], [a, b], nowMs).map((one) => one.metadata.name),
      ['a', 'b'],
    );
    assert.deepEqual(
      leastValuable([a, b], [a, b], nowMs).map((one) => one.metadata.name),
      ['a', 'b'],
    );
  });
}

test('scaling down: the fuller node gives first', () => {
  const pods = [pod('a', { node: 'n1', readyFor: 500 }), pod('b', { node: 'n2', readyFor: 10 }), pod('c', { node: 'n1', readyFor: 500 })];
  assert.equal(planReplicas({ replicaSet: replicaSet(2), pods, related: pods, nowMs }).remove[0]?.spec.nodeName, 'n1');
});

test('status: counts, availability after minReadySeconds, and when to look again', () => {
  const pods = [pod('a', { readyFor: 30 }), pod('b', { readyFor: 4 }), pod('c'), pod('d', { ending: true })];
  const plan = planReplicaSetStatus(replicaSet(3, 10), pods, undefined, nowMs, now);
  assert.deepEqual(plan.status, {
    replicas: 3,
    fullyLabeledReplicas: 3,
    readyReplicas: 2,
    availableReplicas: 1,
    terminatingReplicas: 1,
    observedGeneration: 2,
  });
  assert.equal(plan.checkAfterMs, 6001);
  assert.equal(planReplicaSetStatus({ ...replicaSet(3, 10), status: plan.status }, pods, undefined, nowMs, now).status, undefined);
});

test('status: counts of zero are left out but for the one that is not optional', () => {
  const { status } = planReplicaSetStatus(replicaSet(1), [pod('d', { ending: true })], undefined, nowMs, now);
  assert.deepEqual(status, { replicas: 0, terminatingReplicas: 1, observedGeneration: 2 });
});

test('status: a failure to make pods shows until it is over', () => {
  const failed = planReplicaSetStatus(replicaSet(1), [], { reason: 'FailedCreate', message: 'no quota' }, nowMs, now).status;
  assert.deepEqual(failed?.conditions, [{ type: 'ReplicaFailure', status: 'True', reason: 'FailedCreate', message: 'no quota', lastTransitionTime: now }]);
  assert.equal(planReplicaSetStatus({ ...replicaSet(1), status: failed }, [], undefined, nowMs, now).status?.conditions, undefined);
});
