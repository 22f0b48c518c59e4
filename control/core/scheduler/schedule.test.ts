import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, Pod } from '../../../proto/kube/types.ts';
import { milliValue, wholeValue } from './quantity.ts';
import { SchedulingQueue } from './queue.ts';
import { podRequests } from './resources.ts';
import { type Decision, schedule, type SchedulingView } from './schedule.ts';
import { ClusterState } from './state.ts';

let count = 0;

function node(name: string, change: { cpu?: string; labels?: Record<string, string>; spec?: Node['spec']; pods?: string } = {}): Node {
  return {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name, labels: { 'kubernetes.io/hostname': name, ...change.labels } },
    spec: change.spec ?? {},
    status: { allocatable: { cpu: change.cpu ?? '4', memory: '8Gi', pods: change.pods ?? '110' } },
  };
}

function pod(spec: Partial<Pod['spec']> & { cpu?: string; labels?: Record<string, string> } = {}): Pod {
  const { cpu, labels, ...rest } = spec;
  const uid = `p${count++}`;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: uid, namespace: 'ns', uid, labels: labels ?? {} },
    spec: { containers: [{ name: 'c', image: 'i', ...(cpu === undefined ? {} : { resources: { requests: { cpu } } }) }], ...rest },
  };
}

function decide(wanted: Pod, nodes: Node[], placed: [Pod, string][] = [], more: Partial<SchedulingView> = {}): Decision {
  const state = new ClusterState();
  for (const one of nodes) state.setNode(one);
  for (const [other, on] of placed) state.assume(other, on);
  return schedule(
    wanted,
    {
      nodes: state.nodes(),
      namespaces: new Map(),
      groupSelectors: [],
      claim: () => undefined,
      volume: () => undefined,
      storageClass: () => undefined,
      ...more,
    },
    0,
  );
}

const why = (decision: Decision): string => (decision.kind === 'unschedulable' ? decision.message : `fits ${decision.node}`);
const taint = (key: string, value?: string) => ({ taints: [{ key, effect: 'NoSchedule', ...(value === undefined ? {} : { value }) }] });

test('quantities as the API writes them', () => {
  assert.deepEqual(['100m', '0.1', '2', '1e2', '1k'].map(milliValue), [100, 100, 2000, 100000, 1000000]);
  assert.deepEqual(['64Mi', '1G', '1500m', '1.5Gi'].map(wholeValue), [67108864, 1000000000, 2, 1610612736]);
});

test('requests: the larger of containers with sidecars and each init container', () => {
  const requests = (cpu: string, restartPolicy?: string) => ({
    name: cpu,
    image: 'i',
    resources: { requests: { cpu } },
    ...(restartPolicy === undefined ? {} : { restartPolicy }),
  });
  assert.equal(podRequests(pod({ containers: [requests('1'), requests('500m')], initContainers: [requests('100m', 'Always'), requests('2')] })).cpu, 2100);
  assert.equal(podRequests(pod({ containers: [requests('2')], initContainers: [requests('100m', 'Always'), requests('1')] })).cpu, 2100);
});

// The wording is Kubernetes' own: people and programs look for it.
const refusals: [name: string, decision: () => Decision, message: string][] = [
  ['no nodes', () => decide(pod(), []), 'no nodes available to schedule pods'],
  [
    'too big for two, tainted the third',
    () => decide(pod({ cpu: '8' }), [node('a'), node('b'), node('c', { spec: taint('node-role.kubernetes.io/control-plane') })]),
    '0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient cpu. preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.',
  ],
  [
    'full but large enough',
    () => decide(pod({ cpu: '3' }), [node('a')], [[pod({ cpu: '2' }), 'a']]),
    '0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.',
  ],
  [
    'too many pods',
    () => decide(pod(), [node('a', { pods: '1' })], [[pod(), 'a']]),
    '0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.',
  ],
  [
    'wrong labels',
    () => decide(pod({ nodeSelector: { disk: 'ssd' } }), [node('a')]),
    "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
  ],
  [
    'cordoned',
    () => decide(pod(), [node('a', { spec: { unschedulable: true } })]),
    '0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.',
  ],
  [
    'an unbound claim',
    () =>
      decide(pod({ volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }] }), [node('a')], [], {
        claim: () => ({ apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: { name: 'c' }, spec: {} }),
      }),
    '0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.',
  ],
  [
    'an absent claim',
    () => decide(pod({ volumes: [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }] }), [node('a')]),
    '0/1 nodes are available: persistentvolumeclaim "c" not found. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.',
  ],
];
for (const [name, decision, message] of refusals) {
  test(`refused: ${name}`, () => assert.equal(why(decision()), message));
}

test('tolerations, host ports', () => {
  assert.equal(
    why(decide(pod({ tolerations: [{ key: 'gpu', operator: 'Equal', value: 'yes', effect: 'NoSchedule' }] }), [node('a', { spec: taint('gpu', 'yes') })])),
    'fits a',
  );
  const web = { containers: [{ name: 'c', image: 'i', ports: [{ containerPort: 80, hostPort: 80 }] }] };
  assert.equal(why(decide(pod(web), [node('a'), node('b')], [[pod(web), 'a']])), 'fits b');
});

test('required anti-affinity keeps apart, affinity brings together, the first of a group may go anywhere', () => {
  const term = { labelSelector: { matchLabels: { app: 'db' } }, topologyKey: 'kubernetes.io/hostname' };
  const apart = { labels: { app: 'db' }, affinity: { podAntiAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } };
  const together = { labels: { app: 'db' }, affinity: { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } } };
  assert.equal(why(decide(pod(apart), [node('a'), node('b')], [[pod(apart), 'a']])), 'fits b');
  assert.match(why(decide(pod(apart), [node('a')], [[pod(apart), 'a']])), /1 node\(s\) didn't match pod anti-affinity rules/);
  assert.match(why(decide(pod({ labels: { app: 'db' } }), [node('a')], [[pod(apart), 'a']])), /1 node\(s\) didn't satisfy existing pods anti-affinity rules/);
  assert.equal(why(decide(pod(together), [node('a'), node('b')])), 'fits a');
  assert.equal(why(decide(pod(together), [node('a'), node('b')], [[pod(together), 'b']])), 'fits b');
});

test('DoNotSchedule with skew 1 never puts three on one of two nodes', () => {
  const spread = {
    labels: { app: 'web' },
    topologySpreadConstraints: [
      { maxSkew: 1, topologyKey: 'kubernetes.io/hostname', whenUnsatisfiable: 'DoNotSchedule', labelSelector: { matchLabels: { app: 'web' } } },
    ],
  };
  const nodes = [node('a', { cpu: '64' }), node('b', { cpu: '1' })];
  assert.equal(why(decide(pod(spread), nodes, [[pod(spread), 'a']])), 'fits b');
  assert.match(
    why(decide(pod({ ...spread, cpu: '2' }), nodes, [[pod(spread), 'a']])),
    /1 Insufficient cpu, 1 node\(s\) didn't match pod topology spread constraints/,
  );
});

test('pods of one Service spread over equal nodes', () => {
  const web = { labels: { app: 'web' }, cpu: '100m' };
  assert.equal(why(decide(pod(web), [node('a'), node('b')], [[pod(web), 'a']], { groupSelectors: [{ matchLabels: { app: 'web' } }] })), 'fits b');
});

test('the emptier node is preferred', () => {
  assert.equal(why(decide(pod({ cpu: '100m' }), [node('a'), node('b')], [[pod({ cpu: '3' }), 'a']])), 'fits b');
});

test('a removed pod gives back exactly what it took', () => {
  const state = new ClusterState();
  state.setNode(node('a'));
  const one = pod({ cpu: '1500m' });
  state.assume(one, 'a');
  state.setPod({ ...one, spec: { ...one.spec, nodeName: 'a' } });
  assert.equal(state.nodes()[0]?.taken.cpu, 1500);
  state.removePod(one.metadata.uid ?? '');
  assert.equal(state.nodes()[0]?.taken.cpu, 0);
});

test('the queue: priority first, then age; failed pods wait for a change and for their back-off', () => {
  const queue = new SchedulingQueue();
  const [low, old, high] = [pod(), pod(), pod({ priority: 10 })];
  for (const one of [low, old, high]) queue.put(one, 0);
  assert.deepEqual([queue.next(0)?.pod, queue.next(0)?.pod, queue.next(0)?.pod, queue.next(0)], [high, low, old, undefined]);
  queue.failed(low, 0, true, 0);
  assert.equal(queue.next(5000), undefined);
  queue.wake();
  assert.equal(queue.next(999), undefined);
  assert.equal(queue.next(1000)?.attempts, 1);
  queue.failed(low, 5, true, 0);
  queue.wake();
  assert.equal(queue.dueAtMs(), 10_000);
});
