import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Deployment, DeploymentStatus, ReplicaSet } from '../../../proto/kube/types.ts';
import { type DeploymentPlan, newReplicaSet, planDeployment } from './deployment.ts';
import { DESIRED_REPLICAS, MAX_REPLICAS, REVISION } from './deployment-scale.ts';

const nowMs = Date.UTC(2026, 0, 1);
const now = '2026-01-01T00:00:00Z';

function deployment(
  change: { image?: string; spec?: Partial<Deployment['spec']>; status?: DeploymentStatus; annotations?: Record<string, string> } = {},
): Deployment {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'web', namespace: 'default', uid: 'd1', generation: 1, resourceVersion: '1', annotations: change.annotations ?? {} },
    spec: {
      replicas: 3,
      selector: { matchLabels: { app: 'web' } },
      strategy: { type: 'RollingUpdate', rollingUpdate: { maxSurge: '25%', maxUnavailable: '25%' } },
      progressDeadlineSeconds: 600,
      revisionHistoryLimit: 10,
      template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'nginx', image: change.image ?? 'nginx:1.29' }] } },
      ...change.spec,
    },
    status: change.status ?? {},
  };
}

/** A ReplicaSet of the Deployment with this image: `spec/ready` pods, at this revision. */
function replicaSet(image: string, size: number, available: number, revision: number, desired = 3): ReplicaSet {
  const base = newReplicaSet(deployment({ image }));
  return {
    ...base,
    metadata: {
      ...base.metadata,
      uid: `rs-${image}`,
      generation: 1,
      creationTimestamp: `2025-12-31T00:00:0${revision}Z`,
      annotations: { [REVISION]: String(revision), [DESIRED_REPLICAS]: String(desired), [MAX_REPLICAS]: String(desired + 1) },
    },
    spec: { ...base.spec, replicas: size },
    status: { replicas: size, readyReplicas: available, availableReplicas: available, terminatingReplicas: 0, observedGeneration: 1 },
  };
}

function plan(d: Deployment, replicaSets: ReplicaSet[], atMs = nowMs): DeploymentPlan {
  return planDeployment({ deployment: d, replicaSets, pods: [], nowMs: atMs, now });
}

/** `image:size` of each write of a size, in order. */
function sizes(result: DeploymentPlan): string[] {
  return result.actions.flatMap((action) => {
    if (action.kind !== 'updateReplicaSet' && action.kind !== 'createReplicaSet') return [];
    return [`${action.replicaSet.spec.template?.spec?.containers[0]?.image}=${action.replicaSet.spec.replicas}`];
  });
}

const statusOf = (result: DeploymentPlan): DeploymentStatus | undefined =>
  result.actions.flatMap((action) => (action.kind === 'updateStatus' ? [action.status] : []))[0];
const condition = (result: DeploymentPlan, type: string): string | undefined =>
  statusOf(result)
    ?.conditions?.filter((one) => one.type === type)
    .map((one) => `${one.status} ${one.reason}`)[0];

test('a new Deployment gets one ReplicaSet of full size, an event and its revision', () => {
  const result = plan(deployment(), []);
  assert.deepEqual(sizes(result), ['nginx:1.29=3']);
  const made = result.actions[0];
  assert.ok(made?.kind === 'createReplicaSet');
  const name = made.replicaSet.metadata.name ?? '';
  assert.match(name, /^web-[a-z0-9]+$/);
  assert.equal(made.replicaSet.metadata.labels?.['pod-template-hash'], name.slice(4));
  assert.equal(made.replicaSet.spec.selector.matchLabels?.['pod-template-hash'], name.slice(4));
  assert.deepEqual(made.event, { type: 'Normal', reason: 'ScalingReplicaSet', message: `Scaled up replica set ${name} from 0 to 3` });
  assert.equal(condition(result, 'Progressing'), 'True NewReplicaSetCreated');
  assert.deepEqual(result.actions[1]?.kind === 'updateStatus' ? result.actions[1].annotations : {}, { [REVISION]: '1' });
});

// Three replicas, one more allowed, none may be missing: the steps of a rollout as sizes old/new.
const rollout: { name: string; old: [size: number, ready: number]; fresh: [size: number, ready: number]; writes: string[] }[] = [
  { name: 'nothing while the surge pod is not available', old: [3, 3], fresh: [1, 0], writes: [] },
  { name: 'one old goes when the surge pod is available', old: [3, 3], fresh: [1, 1], writes: ['nginx:1.29=2'] },
  { name: 'one new comes in its place', old: [2, 2], fresh: [1, 1], writes: ['nginx:1.30=2'] },
  { name: 'nothing while the second is not available', old: [2, 2], fresh: [2, 1], writes: [] },
  { name: 'the next old goes', old: [2, 2], fresh: [2, 2], writes: ['nginx:1.29=1'] },
  { name: 'the last new comes', old: [1, 1], fresh: [2, 2], writes: ['nginx:1.30=3'] },
  { name: 'the last old goes', old: [1, 1], fresh: [3, 3], writes: ['nginx:1.29=0'] },
  { name: 'an unhealthy old pod goes as soon as the surge allows it', old: [3, 2], fresh: [1, 1], writes: ['nginx:1.29=2'] },
  { name: 'all is done', old: [0, 0], fresh: [3, 3], writes: [] },
];
for (const step of rollout) {
  test(`rolling update: ${step.name}`, () => {
    const result = plan(deployment({ image: 'nginx:1.30' }), [replicaSet('nginx:1.29', ...step.old, 1), replicaSet('nginx:1.30', ...step.fresh, 2)]);
    assert.deepEqual(sizes(result), step.writes);
  });
}

test('a new template starts with the surge alone', () => {
  assert.deepEqual(sizes(plan(deployment({ image: 'nginx:1.30' }), [replicaSet('nginx:1.29', 3, 3, 1)])), ['nginx:1.30=1']);
});

test('going back to an old template gives its ReplicaSet the next revision and keeps the old number', () => {
  const result = plan(deployment({ image: 'nginx:1.29' }), [replicaSet('nginx:1.29', 0, 0, 1), replicaSet('nginx:1.30', 3, 3, 2)]);
  const write = result.actions[0];
  assert.ok(write?.kind === 'updateReplicaSet' && result.actions.length === 1);
  assert.equal(write.replicaSet.metadata.annotations?.[REVISION], '3');
  assert.equal(write.replicaSet.metadata.annotations?.['deployment.kubernetes.io/revision-history'], '1');
});

test('scaling sizes the only ReplicaSet, and in the middle of a rollout both in proportion', () => {
  assert.deepEqual(sizes(plan(deployment({ spec: { replicas: 5 } }), [replicaSet('nginx:1.29', 3, 3, 1)])), ['nginx:1.29=5']);
  const both = plan(deployment({ image: 'nginx:1.30', spec: { replicas: 10 } }), [replicaSet('nginx:1.29', 3, 3, 1), replicaSet('nginx:1.30', 1, 0, 2)]);
  assert.deepEqual(sizes(both), ['nginx:1.29=10', 'nginx:1.30=3']);
});

test('Recreate: old pods go first, the new ReplicaSet comes when the last one is gone', () => {
  const recreate = { strategy: { type: 'Recreate' } };
  assert.deepEqual(sizes(plan(deployment({ image: 'nginx:1.30', spec: recreate }), [replicaSet('nginx:1.29', 3, 3, 1)])), ['nginx:1.29=0']);
  const gone: ReplicaSet = { ...replicaSet('nginx:1.29', 0, 0, 1) };
  const ending = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', ownerReferences: [{ apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'x', uid: 'rs-nginx:1.29', controller: true }] },
    spec: { containers: [] },
    status: { phase: 'Running' },
  };
  const d = deployment({ image: 'nginx:1.30', spec: recreate });
  assert.deepEqual(sizes(planDeployment({ deployment: d, replicaSets: [gone], pods: [ending], nowMs, now })), []);
  assert.deepEqual(sizes(plan(d, [gone])), ['nginx:1.30=3']);
});

test('a paused Deployment is sized but not rolled out', () => {
  const result = plan(deployment({ image: 'nginx:1.30', spec: { paused: true, replicas: 4 } }), [replicaSet('nginx:1.29', 3, 3, 1)]);
  assert.deepEqual(sizes(result), ['nginx:1.29=4']);
  assert.equal(condition(result, 'Progressing'), 'Unknown DeploymentPaused');
});

test('conditions: available by maxUnavailable, complete, timed out after the deadline', () => {
  const status: DeploymentStatus = {
    observedGeneration: 1,
    replicas: 3,
    updatedReplicas: 3,
    unavailableReplicas: 3,
    conditions: [{ type: 'Progressing', status: 'True', reason: 'ReplicaSetUpdated', lastUpdateTime: now, lastTransitionTime: now }],
  };
  const known = { status, annotations: { [REVISION]: '1' } };
  const complete = plan(deployment(known), [replicaSet('nginx:1.29', 3, 3, 1)]);
  assert.equal(condition(complete, 'Available'), 'True MinimumReplicasAvailable');
  assert.equal(condition(complete, 'Progressing'), 'True NewReplicaSetAvailable');
  const stuck = plan(deployment(known), [replicaSet('nginx:1.29', 3, 0, 1)], nowMs + 601_000);
  assert.equal(condition(stuck, 'Progressing'), 'False ProgressDeadlineExceeded');
  const early = plan(deployment(known), [replicaSet('nginx:1.29', 3, 0, 1)], nowMs + 100_000);
  assert.equal(early.checkAfterMs, 501_000);
});

test('a second look at the same world writes nothing', () => {
  const replicaSets = [replicaSet('nginx:1.29', 3, 3, 1)];
  const first = plan(deployment(), replicaSets);
  const settled = deployment({ status: statusOf(first) ?? {}, annotations: { [REVISION]: '1' } });
  assert.deepEqual(plan(settled, replicaSets).actions, []);
});

test('old ReplicaSets beyond the history limit go, those with pods stay', () => {
  const done: DeploymentStatus = { observedGeneration: 1, replicas: 3, updatedReplicas: 3, readyReplicas: 3, availableReplicas: 3 };
  const d = deployment({ image: 'nginx:1.33', spec: { revisionHistoryLimit: 1 }, status: done });
  const all = [replicaSet('nginx:1.30', 0, 0, 1), replicaSet('nginx:1.31', 0, 0, 2), replicaSet('nginx:1.32', 0, 0, 3), replicaSet('nginx:1.33', 3, 3, 4)];
  const deleted = plan(d, all).actions.flatMap((action) => (action.kind === 'deleteReplicaSet' ? [action.replicaSet.metadata.uid] : []));
  assert.deepEqual(deleted, ['rs-nginx:1.30', 'rs-nginx:1.31']);
});

test('status: counts of zero are left out, as in Go', () => {
  const status = statusOf(plan(deployment({ spec: { replicas: 0 } }), [replicaSet('nginx:1.29', 0, 0, 1, 0)]));
  assert.deepEqual(Object.keys(status ?? {}).toSorted(), ['conditions', 'observedGeneration', 'terminatingReplicas']);
});
