import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../base/fake-clock.ts';
import type { Pod, PodStatus } from '../proto/kube/types.ts';
import { staticPod } from './core/static-pod.ts';
import type { ContainerFacts, PodFacts } from './core/types.ts';
import { FakeEvents, FakeNode, FakeProbes } from './fake.ts';
import { Teller } from './teller.ts';
import type { TellerDeps } from './teller.ts';

const startTime = '2025-12-31T00:00:00Z';

function setUp(earlier: PodStatus | undefined) {
  const probes = { startupProbe: { exec: { command: ['s'] } }, readinessProbe: { exec: { command: ['r'] } } };
  const document = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'web' }, spec: { containers: [{ name: 'm', image: 'a:1', ...probes }] } };
  const made = staticPod(document, { nodeName: 'n1', source: 'file', seen: startTime, hash: 'h' });
  assert.ok(made.ok);
  const { pod } = made;
  const told: PodStatus[] = [];
  const deps = {
    clock: createFakeClock(),
    probes: new FakeProbes(),
    events: new FakeEvents(),
    node: new FakeNode(),
    statuses: {
      set: (_pod: Pod, status: PodStatus) => void told.push(status),
      current: () => told.at(-1),
      earlier: () => earlier,
      finish: async () => {},
      forget: () => {},
    },
    runtimeName: () => 'containerd',
    recursiveReadOnly: () => false,
    resizes: { allocatedPod: (each: Pod) => each, actuated: () => undefined, conditions: () => [] } as unknown as TellerDeps['resizes'],
  } satisfies TellerDeps;
  const container = {
    id: 'c1',
    name: 'm',
    attempt: 0,
    state: 'running',
    startedAtMs: 1,
    createdAtMs: 1,
    image: 'a:1',
    imageRef: 'a',
    user: null,
    mounts: [],
  } as unknown as ContainerFacts;
  const facts: PodFacts = { uid: 'h', namespace: 'default', name: 'web-n1', sandboxes: [], containers: [container] };
  return { teller: new Teller(deps, { uid: 'h', namespace: 'default', name: 'web-n1' }), pod, facts };
}

test('a static pod that an earlier process told of is started and ready as it was, since when it was', () => {
  const status = { name: 'm', image: 'a:1', imageID: 'a', started: true, ready: true, restartCount: 0, containerID: 'containerd://c1', state: { running: {} } };
  const conditions = [{ type: 'Initialized', status: 'True', lastTransitionTime: startTime }];
  const { facts, pod, teller } = setUp({ phase: 'Running', startTime, conditions, containerStatuses: [status] });
  teller.probe(pod, facts, false);
  const told = teller.tell(pod, facts, { phase: 'running' }, false);
  assert.deepEqual([told.containerStatuses?.[0]?.started, told.containerStatuses?.[0]?.ready, told.startTime], [true, true, startTime]);
  assert.equal(told.conditions?.find(({ type }) => type === 'Initialized')?.lastTransitionTime, startTime);
});

test('one that nobody told of is not started before its probe says so', () => {
  const { facts, pod, teller } = setUp(undefined);
  teller.probe(pod, facts, false);
  const told = teller.tell(pod, facts, { phase: 'running' }, false);
  assert.deepEqual([told.containerStatuses?.[0]?.started, told.containerStatuses?.[0]?.ready], [false, false]);
  assert.notEqual(told.startTime, startTime);
});
