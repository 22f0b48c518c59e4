import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DaemonSet, Node, Pod, Taint } from '../../../proto/kube/types.ts';
import { type DaemonSetPlan, planDaemonSet } from './daemonset.ts';

const nowMs = Date.UTC(2026, 0, 1);

function daemonSet(image = 'i:1', spec: Partial<DaemonSet['spec']> = {}): DaemonSet {
  const template = { metadata: { labels: { app: 'd' } }, spec: { containers: [{ name: 'c', image }] } };
  return {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: 'd', namespace: 'ns', uid: 'd1', generation: 1 },
    spec: { selector: { matchLabels: { app: 'd' } }, template, ...spec },
  };
}

const node = (name: string, taints: Taint[] = [], labels: Record<string, string> = {}): Node => ({
  apiVersion: 'v1',
  kind: 'Node',
  metadata: { name, labels },
  spec: { taints },
});
const plan = (set: DaemonSet, nodes: Node[], pods: Pod[] = []): DaemonSetPlan => planDaemonSet({ daemonSet: set, nodes, pods, nowMs });

/** Pods as they run after a plan. */
function running(from: DaemonSetPlan, change: (pod: Pod) => Pod = (pod) => pod): Pod[] {
  return from.create.map((pod, index) =>
    change({
      ...pod,
      metadata: { ...pod.metadata, name: `d-${index}`, uid: `p${index}` },
      spec: { ...pod.spec, nodeName: target(pod) },
      status: { phase: 'Running', conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: '2025-12-31T00:00:00Z' }] },
    }),
  );
}

const target = (pod: Pod): string =>
  pod.spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms[0]?.matchFields?.[0]?.values?.[0] ?? '';

test('one pod for each node that may run it, bound to it by name', () => {
  const nodes = [node('a'), node('b', [{ key: 'node.kubernetes.io/unschedulable', effect: 'NoSchedule' }]), node('c', [{ key: 'gpu', effect: 'NoSchedule' }])];
  const first = plan(daemonSet(), nodes);
  assert.deepEqual(first.create.map(target), ['a', 'b']);
  const settled = plan(daemonSet(), nodes, running(first));
  assert.deepEqual([settled.create, settled.remove], [[], []]);
  assert.deepEqual([settled.status?.desiredNumberScheduled, settled.status?.numberAvailable, settled.status?.updatedNumberScheduled], [2, 2, 2]);
});

test('a node that may no longer run it loses its pod, a new node gets one', () => {
  const selecting = daemonSet('i:1', { template: { metadata: { labels: { app: 'd' } }, spec: { nodeSelector: { disk: 'ssd' }, containers: [] } } });
  const pods = running(plan(selecting, [node('a', [], { disk: 'ssd' })]));
  const after = plan(selecting, [node('a'), node('b', [], { disk: 'ssd' })], pods);
  assert.deepEqual(after.create.map(target), ['b']);
  assert.deepEqual(
    after.remove.map(({ pod }) => pod.spec.nodeName),
    ['a'],
  );
});

test('a new template replaces one node after the other, and waits for the old pod to be gone', () => {
  const nodes = [node('a'), node('b')];
  const pods = running(plan(daemonSet('i:1'), nodes));
  const next = plan(daemonSet('i:2'), nodes, pods);
  assert.deepEqual([next.create.length, next.remove.length], [0, 1]);
  const ending = pods.map((pod) => (pod === next.remove[0]?.pod ? { ...pod, metadata: { ...pod.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } } : pod));
  const waiting = plan(daemonSet('i:2'), nodes, ending);
  assert.deepEqual([waiting.create.length, waiting.remove.length], [0, 0]);
});

test('a failed pod is taken away', () => {
  const pods = running(plan(daemonSet(), [node('a')]), (pod) => ({ ...pod, status: { phase: 'Failed' } }));
  assert.deepEqual(
    plan(daemonSet(), [node('a')], pods).remove.map(({ failed }) => failed),
    [true],
  );
});
