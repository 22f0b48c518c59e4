import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  aggregate,
  metadataPatch,
  newNode,
  nodeEvents,
  nodeStatus,
  resetPatch,
  statusDiffers,
  statusPatch,
  type NodeFacts,
  type NodeSettings,
  versionText,
  inUserNamespace,
} from './node-status.ts';

const settings: NodeSettings = {
  nodeName: 'n1',
  kubeletVersion: 'v1.37.2+nodelet.0.1',
  port: 10250,
  maxPods: 110,
  podsPerCore: 0,
  kubeReserved: { cpu: '100m', memory: '50Mi' },
  systemReserved: { memory: '50Mi' },
  evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '10%' },
  labels: { pool: 'a' },
  taints: [],
  providerID: '',
  declaredFeatures: [],
};

const facts: NodeFacts = {
  machine: {
    hostname: 'n1',
    architecture: 'amd64',
    kernelVersion: '6.18.0',
    osImage: 'Debian GNU/Linux 12 (bookworm)',
    machineID: 'm',
    systemUUID: 's',
    bootID: 'b1',
    cpus: 12,
    memoryBytes: 12_334_928 * 1024,
    swapBytes: 0,
    hugepages: { '1Gi': 0, '2Mi': 4 * 2 ** 20 },
  },
  runtime: { version: 'containerd://2.4.0', handlers: [], supplementalGroupsPolicy: false, troubles: [] },
  pressures: { memory: false, disk: false, pid: false },
  addresses: [
    { type: 'InternalIP', address: '10.0.0.5' },
    { type: 'Hostname', address: 'n1' },
  ],
  ephemeralBytes: 1000 * 1024,
  images: [],
};
const t0 = '2026-01-01T00:00:00Z';
const t1 = '2026-01-01T00:05:00Z';

test('whether the agent is in a user namespace is told where the gate is on', () => {
  const told = (inUserNamespace: boolean, tellsUserNamespace: boolean) =>
    nodeStatus({ ...settings, tellsUserNamespace }, { ...facts, machine: { ...facts.machine, inUserNamespace } }, undefined, t0).nodeInfo
      ?.runningInUserNamespace;
  assert.deepEqual([told(false, true), told(true, true), told(true, false)], [false, true, undefined]);
});

test('only the map of all users onto themselves is no user namespace', () => {
  assert.equal(inUserNamespace('         0          0 4294967295\n'), false);
  for (const map of ['0 1000 1\n', '0 0 65536\n', '0 0 1\n1 100000 65536\n', '']) assert.equal(inUserNamespace(map), true, map);
});

test('a new node carries the labels, the annotation, its addresses and where the server listens', () => {
  const node = newNode(settings, facts, t0);
  assert.deepEqual(node.metadata.labels, {
    'beta.kubernetes.io/arch': 'amd64',
    'beta.kubernetes.io/os': 'linux',
    'kubernetes.io/arch': 'amd64',
    'kubernetes.io/hostname': 'n1',
    'kubernetes.io/os': 'linux',
    pool: 'a',
  });
  assert.deepEqual(node.metadata.annotations, { 'volumes.kubernetes.io/controller-managed-attach-detach': 'true' });
  assert.deepEqual(node.status?.daemonEndpoints, { kubeletEndpoint: { Port: 10250 } });
  assert.deepEqual(node.status?.addresses, facts.addresses);
  assert.equal(node.status?.nodeInfo?.kubeletVersion, 'v1.37.2+nodelet.0.1');
});

test('allocatable is capacity less reserves, eviction thresholds and huge pages', () => {
  const { capacity, allocatable } = nodeStatus(settings, facts, undefined, t0);
  assert.deepEqual(capacity, { cpu: '12', 'ephemeral-storage': '1000Ki', 'hugepages-1Gi': '0', 'hugepages-2Mi': '4Mi', memory: '12334928Ki', pods: '110' });
  assert.equal(allocatable?.['cpu'], '11900m');
  assert.equal(allocatable?.['memory'], `${12_334_928 - 204 * 1024}Ki`);
  assert.equal(allocatable?.['ephemeral-storage'], '900Ki');
  assert.equal(allocatable?.['pods'], '110');
});

test('allocatable never falls below zero, and pods per core bound the pods', () => {
  const status = nodeStatus({ ...settings, podsPerCore: 2, kubeReserved: { memory: '100Gi' } }, facts, undefined, t0);
  assert.equal(status.allocatable?.['memory'], '0');
  assert.equal(status.capacity?.['pods'], '24');
});

test('the Ready condition says what is wrong in upstream’s words', () => {
  const ready = (troubles: string[]) =>
    nodeStatus(settings, { ...facts, runtime: { ...facts.runtime, troubles } }, undefined, t0).conditions?.find(({ type }) => type === 'Ready');
  assert.deepEqual(ready([]), {
    type: 'Ready',
    status: 'True',
    reason: 'KubeletReady',
    message: 'kubelet is posting ready status',
    lastHeartbeatTime: t0,
    lastTransitionTime: t0,
  });
  const pleg = 'PLEG is not healthy: pleg was last seen active 3m12s ago; threshold is 3m0s';
  assert.equal(ready([pleg])?.message, pleg);
  assert.equal(ready([pleg])?.reason, 'KubeletNotReady');
  assert.equal(ready(['container runtime is down', pleg])?.message, `[container runtime is down, ${pleg}]`);
  assert.equal(aggregate(['a', 'a']), 'a');
});

test('transition times move with the status only, and conditions of others stay', () => {
  const first = nodeStatus(settings, facts, undefined, t0);
  first.conditions?.push({ type: 'NetworkUnavailable', status: 'False', lastTransitionTime: t0 });
  const second = nodeStatus(settings, { ...facts, pressures: { memory: true, disk: false, pid: false } }, first, t1);
  const times = Object.fromEntries((second.conditions ?? []).map(({ type, lastTransitionTime }) => [type, lastTransitionTime]));
  assert.deepEqual(times, { NetworkUnavailable: t0, MemoryPressure: t1, DiskPressure: t0, PIDPressure: t0, Ready: t0 });
});

test('only heartbeats moved: no difference, and the patch names nothing but conditions', () => {
  const first = nodeStatus(settings, facts, undefined, t0);
  const second = nodeStatus(settings, facts, first, t1);
  assert.equal(statusDiffers(first, second), false);
  assert.deepEqual(Object.keys(statusPatch(first, second).status), ['conditions']);
});

test('a patch names what changed: one condition, single resources, addresses as a whole', () => {
  const first = nodeStatus(settings, facts, undefined, t0);
  const next = nodeStatus(
    settings,
    {
      ...facts,
      addresses: [{ type: 'InternalIP', address: '10.0.0.6' }],
      machine: { ...facts.machine, hugepages: {} },
      pressures: { memory: false, disk: true, pid: false },
    },
    first,
    t0,
  );
  const { status } = statusPatch(first, next);
  assert.deepEqual(
    (status['conditions'] as { type: string }[]).map(({ type }) => type),
    ['DiskPressure'],
  );
  assert.deepEqual(status['addresses'], [{ type: 'InternalIP', address: '10.0.0.6' }, { $patch: 'replace' }]);
  assert.deepEqual(status['capacity'], { 'hugepages-1Gi': null, 'hugepages-2Mi': null });
  assert.ok(!('nodeInfo' in status));
});

test('resources and attached volumes of others come over', () => {
  const first = nodeStatus(settings, facts, undefined, t0);
  first.capacity = { ...first.capacity, 'example.com/gpu': '2' };
  first.volumesAttached = [{ name: 'v', devicePath: '/dev/x' }];
  const second = nodeStatus(settings, facts, first, t1);
  assert.equal(second.capacity?.['example.com/gpu'], '2');
  // All of it can be had, as soon as it is there and no longer than it is.
  assert.equal(second.allocatable?.['example.com/gpu'], '2');
  const third = nodeStatus(settings, facts, { ...second, capacity: first.allocatable! }, t1);
  assert.equal(third.allocatable?.['example.com/gpu'], undefined);
  assert.deepEqual(statusPatch(second, third).status['allocatable'], { 'example.com/gpu': null });
  assert.deepEqual(second.volumesAttached, first.volumesAttached);
});

test('an existing node gets only the labels that differ', () => {
  const node = newNode(settings, facts, t0);
  assert.equal(metadataPatch(node, settings, facts.machine), null);
  node.metadata.labels = { ...node.metadata.labels, 'kubernetes.io/arch': 'arm64', mine: 'x' };
  assert.deepEqual(metadataPatch(node, settings, facts.machine), { metadata: { labels: { 'kubernetes.io/arch': 'amd64' } } });
});

test('events: each change of a condition once, a reboot by its boot id', () => {
  const down = nodeStatus(settings, { ...facts, runtime: { ...facts.runtime, troubles: ['x'] } }, undefined, t0);
  assert.deepEqual(
    nodeEvents('n1', undefined, down).map(({ reason }) => reason),
    ['NodeHasSufficientMemory', 'NodeHasNoDiskPressure', 'NodeHasSufficientPID'],
  );
  const up = nodeStatus(settings, facts, down, t1);
  assert.deepEqual(nodeEvents('n1', down, up), [{ type: 'Normal', reason: 'NodeReady', message: 'Node n1 status is now: NodeReady' }]);
  assert.deepEqual(nodeEvents('n1', up, nodeStatus(settings, { ...facts, machine: { ...facts.machine, bootID: 'b2' } }, up, t1)), [
    { type: 'Warning', reason: 'Rebooted', message: 'Node n1 has been rebooted, boot id: b2' },
  ]);
});

test('a runtime’s version is told as upstream reads it: what a distribution adds to it is left out', () => {
  const told = { '2.4.2': '2.4.2', 'v2.4.2': '2.4.2', '1.6.20~ds1': '1.6.20', 'v2.0.0-rc.1+k3s2': '2.0.0-rc.1+k3s2', '1.7.0-': '1.7.0', unknown: 'unknown' };
  assert.deepEqual(Object.keys(told).map(versionText), Object.values(told));
});

test('what device plugins offer counts, and a new machine begins with none of what a Node had', () => {
  const devices = { capacity: { 'example.com/dev': '3' }, allocatable: { 'example.com/dev': '2' }, reset: false };
  const status = nodeStatus(settings, { ...facts, devices }, { capacity: { 'example.com/dev': '9', 'other.io/x': '1' } }, '2026-01-01T00:00:00Z');
  assert.deepEqual([status.capacity?.['example.com/dev'], status.allocatable?.['example.com/dev'], status.allocatable?.['other.io/x']], ['3', '2', '1']);
  const zeros = { 'a.io/x': '0' };
  const node = { metadata: { name: 'n' }, spec: {}, status: { capacity: { cpu: '2', 'a.io/x': '4', 'b.io/y': '0' } } };
  assert.deepEqual(resetPatch(node), { status: { capacity: zeros, allocatable: zeros } });
  assert.equal(resetPatch({ ...node, status: { capacity: { cpu: '2' } } }), null);
});

test('with an external cloud provider the node waits for it, hints at its addresses, and leaves to it what it says', () => {
  const uninitialized = { key: 'node.cloudprovider.kubernetes.io/uninitialized', value: 'true', effect: 'NoSchedule' };
  const taint = { key: 'k', effect: 'NoSchedule' };
  const cloudy = { ...settings, taints: [taint], cloud: { nodeIPs: ['10.0.0.5', 'fd00::5'] } };
  const node = newNode(cloudy, facts, t0);
  assert.deepEqual(node.spec?.taints, [taint, uninitialized]);
  assert.equal(node.metadata.annotations?.['alpha.kubernetes.io/provided-node-ip'], '10.0.0.5,fd00::5');
  assert.deepEqual(node.status?.addresses, facts.addresses);
  assert.equal(metadataPatch(node, cloudy, facts.machine), null);
  assert.deepEqual(metadataPatch(node, settings, facts.machine), { metadata: { annotations: { 'alpha.kubernetes.io/provided-node-ip': null } } });
  const silent = { ...settings, cloud: { nodeIPs: [] } };
  assert.deepEqual(nodeStatus(silent, facts, undefined, t0).addresses, [{ type: 'Hostname', address: 'n1' }]);
  const told = [{ type: 'ExternalIP', address: '192.0.2.1' }];
  assert.deepEqual(nodeStatus(cloudy, facts, { addresses: told }, t0).addresses, told);
  assert.equal(newNode(silent, facts, t0).metadata.annotations?.['alpha.kubernetes.io/provided-node-ip'], undefined);
});

test('what the runtime’s handlers can do is told as they say it, and nothing where it says nothing', () => {
  const handlers = [
    { name: '', features: { recursiveReadOnlyMounts: true, userNamespaces: false } },
    { name: 'sandboxed', features: { recursiveReadOnlyMounts: false, userNamespaces: true } },
  ];
  const of = (runtime: Partial<typeof facts.runtime>) => nodeStatus(settings, { ...facts, runtime: { ...facts.runtime, ...runtime } }, undefined, t0);
  assert.deepEqual(of({ handlers }).runtimeHandlers, handlers);
  const silent = of({ handlers: [] });
  assert.deepEqual(['runtimeHandlers' in silent, 'features' in silent], [false, false]);
  assert.deepEqual(of({ supplementalGroupsPolicy: true }).features, { supplementalGroupsPolicy: true });
});
