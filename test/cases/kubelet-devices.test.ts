import assert from 'node:assert/strict';
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { GrpcClient, serviceOf } from '../../agent/io/grpc.ts';
import { realClock } from '../../base/clock.ts';
import type { Container, Node, Pod } from '../../proto/kube/types.ts';
import definition from '../../proto/plugins/pod_resources.json' with { type: 'json' };
import type { ContainerResources, PodResourcesListerMethods } from '../../proto/plugins/pod_resources.ts';
import { startPlugin } from '../devices/plugin.ts';
import type { TestPlugin } from '../devices/plugin.ts';
import { eventually } from '../set.ts';
import { box, Cases, NAMESPACE, skip } from './world.ts';

/*
 * Devices, CPUs and memory of their own on one real set; the device plugin runs in this process, on a socket in the node's
 * folder. All of it holds for upstream's kubelet as well (NODELET_CASES_KUBELET).
 */
const root = '/var/lib/kubelet';
const resource = 'example.com/dev';
let at: Cases;
let plugin: TestPlugin;
before(async () => {
  if (skip !== false) return;
  at = await Cases.open('kc-devices');
  plugin = await startPlugin({
    dir: at.path(`${root}/device-plugins`),
    resource,
    devices: ['d1', 'd2', 'd3'].map((id) => ({ id })),
    preStart: () => undefined,
    allocate: (ids) => ({
      envs: { DEVS: ids.join(' ') },
      annotations: { 'example.com/ids': ids.join('.') },
      mounts: [{ containerPath: '/from/plugin', hostPath: '/etc/hostname', readOnly: true }],
      devices: ids.map((id) => ({ containerPath: `/dev/${id}`, hostPath: '/dev/zero', permissions: 'r' })),
    }),
  });
});
after(async () => {
  await plugin?.[Symbol.asyncDispose]();
  await at?.[Symbol.asyncDispose]();
});

const say = (what: string, value: unknown): void => console.log(`${what}: ${JSON.stringify(value)}`);
const idle = ['sleep', '3600'];
const quick = { terminationGracePeriodSeconds: 1, nodeName: 'node-1' };
const wants = (count: number): Partial<Container> => ({ resources: { limits: { [resource]: String(count) }, requests: { [resource]: String(count) } } });
const node = async (): Promise<Node> => JSON.parse(await at.k('get', 'node', 'node-1', '-o', 'json')) as Node;
const offered = (text: string): Promise<true> =>
  eventually(`the node offers ${text}`, 60_000, async () => {
    const { allocatable = {}, capacity = {} } = (await node()).status ?? {};
    return `${allocatable[resource] ?? '-'}/${capacity[resource] ?? '-'}` === text ? true : null;
  });
const registered = (): Promise<true> =>
  eventually<true>('the plugin is registered', 30_000, async () => {
    // A kubelet that starts takes all sockets in its folder away, maybe after the plugin has made its own.
    await plugin.serve();
    await plugin.register();
    return true;
  });
/** A new process of the kubelet, at whose socket the plugin has registered again. */
const restarted = async (): Promise<void> => {
  const socket = at.path(`${root}/device-plugins/kubelet.sock`);
  // The number of a file that was removed is given to the next one.
  const made = (): number => (existsSync(socket) ? statSync(socket).ctimeMs : 0);
  const before = made();
  await at.init('restart agent');
  await eventually('the kubelet listens anew', 60_000, async () => (made() !== 0 && made() !== before ? true : null));
  await registered();
};
const failed = (name: string): Promise<Pod> => at.watch.pod(name, 'is refused', 60_000, (pod) => pod.status?.phase === 'Failed');
const gone = (name: string): Promise<true> =>
  eventually(`${name} is gone`, 60_000, async () => ((await at.set.kubectl(['-n', NAMESPACE, 'get', 'pod', name])).code === 0 ? null : true));

async function podResources(name: string): Promise<ContainerResources | undefined> {
  using client = new GrpcClient(
    serviceOf<PodResourcesListerMethods>(definition, 'v1.PodResourcesLister'),
    at.path(`${root}/pod-resources/kubelet.sock`),
    realClock,
  );
  const { podResources: list } = await client.call('List', {}, { timeoutMs: 5000 });
  return list.find((pod) => pod.name === name)?.containers[0];
}

/** Gives the kubelet other settings; state of the policies of before is taken away, as it asks for. */
async function configure(settings: object, keep = false): Promise<void> {
  const path = `${at.folder}/agent.json`;
  const own = [
    'cpuManagerPolicy',
    'cpuManagerPolicyOptions',
    'memoryManagerPolicy',
    'reservedMemory',
    'systemReserved',
    'topologyManagerPolicy',
    'evictionHard',
    'cpuManagerReconcilePeriod',
  ];
  const before = Object.entries(JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>).filter(([name]) => !own.includes(name));
  await at.stopAgent();
  if (!keep) for (const file of ['cpu_manager_state', 'memory_manager_state']) rmSync(at.path(`${root}/${file}`), { force: true });
  writeFileSync(path, JSON.stringify({ ...Object.fromEntries(before), ...settings }));
  await at.init('start agent');
}

describe('devices', { skip, timeout: 600_000 }, () => {
  test('a plugin registers, and a pod gets its devices with all that belongs to them', async () => {
    await eventually('the kubelet listens for plugins', 30_000, async () => (existsSync(at.path(`${root}/device-plugins/kubelet.sock`)) ? true : null));
    await registered();
    await offered('3/3');
    await at.create('two', { ...quick, containers: [box('m', idle, wants(2))] });
    const pod = await at.ready('two');
    const seen = await at.k(
      'exec',
      'two',
      '--',
      'sh',
      '-c',
      'echo $DEVS; ls /dev | grep "^d[0-9]" | wc -l; wc -c < /from/plugin; head -c 3 /dev/$(echo $DEVS | cut -d" " -f1) | wc -c',
    );
    const [ids = '', count, size, read] = seen.split('\n').map((line) => line.trim());
    assert.deepEqual([ids.split(' ').length, count, Number(size) > 0, read], [2, '2', true, '3']);
    assert.deepEqual(plugin.calls, [`Allocate ${ids.replace(' ', ',')}`, `PreStartContainer ${ids.replace(' ', ',')}`]);
    const [container] = await at.containers('two');
    const { status } = await at.cri.runtime.containerStatus({ containerId: container?.id ?? '' });
    assert.equal(status?.annotations['example.com/ids'], ids.replace(' ', '.'));
    const told = await podResources('two');
    assert.deepEqual(
      told?.devices.map(({ resourceName, deviceIds, topology }) => [resourceName, deviceIds.length, topology]),
      [
        [resource, 1, null],
        [resource, 1, null],
      ],
    );
    const health = await eventually('the health of the devices is told', 30_000, async () => {
      const list = (JSON.parse(await at.k('get', 'pod', 'two', '-o', 'json')) as Pod).status?.containerStatuses?.[0]?.allocatedResourcesStatus;
      return list === undefined ? null : list.map(({ name, resources }) => [name, (resources ?? []).map((each) => each.health)]);
    });
    assert.deepEqual(health, [[resource, ['Healthy', 'Healthy']]]);
    const checkpoint = JSON.parse(at.file(`${root}/device-plugins/kubelet_internal_checkpoint`)) as {
      Data: { PodDeviceEntries: Record<string, unknown>[]; RegisteredDevices: Record<string, string[]> };
    };
    const [entry] = checkpoint.Data.PodDeviceEntries;
    assert.deepEqual(
      [entry?.['PodUID'], entry?.['ContainerName'], entry?.['ResourceName'], Object.keys(entry?.['DeviceIDs'] as object)],
      [pod.metadata.uid, 'm', resource, ['-1']],
    );
    assert.deepEqual(checkpoint.Data.RegisteredDevices[resource]?.toSorted(), ['d1', 'd2', 'd3']);
  });

  test('a pod that asks for more than is free is refused', async () => {
    await at.create('many', { ...quick, containers: [box('m', idle, wants(2))] });
    const { status } = await failed('many');
    assert.deepEqual(
      [status?.reason, status?.message],
      [
        'UnexpectedAdmissionError',
        'Pod was rejected: Allocate failed due to requested number of devices unavailable for example.com/dev. Requested: 2, Available: 1, which is unexpected',
      ],
    );
  });

  test('a device that fails leaves allocatable, and the pod that holds it tells', async () => {
    const held = (await at.k('exec', 'two', '--', 'sh', '-c', 'echo $DEVS')).split(' ')[0] ?? '';
    plugin.tell(['d1', 'd2', 'd3'].map((id) => ({ id, health: id === held ? ('Unhealthy' as const) : ('Healthy' as const) })));
    await offered('2/3');
    await at.watch.pod('two', 'has an unhealthy device', 30_000, (pod) =>
      (pod.status?.containerStatuses?.[0]?.allocatedResourcesStatus ?? []).some(({ resources }) =>
        resources?.some((each) => each.resourceID === held && each.health === 'Unhealthy'),
      ),
    );
    plugin.tell(['d1', 'd2', 'd3'].map((id) => ({ id })));
    await offered('3/3');
  });

  test('over a restart what pods hold stays theirs, and their containers start again with it', async () => {
    const before = at.file(`${root}/device-plugins/kubelet_internal_checkpoint`);
    await restarted();
    await offered('3/3');
    const entries = (text: string): string => JSON.stringify((JSON.parse(text) as { Data: { PodDeviceEntries: unknown } }).Data.PodDeviceEntries);
    assert.equal(entries(at.file(`${root}/device-plugins/kubelet_internal_checkpoint`)), entries(before));
    await at.create('more', { ...quick, containers: [box('m', idle, wants(2))] });
    assert.match((await failed('more')).status?.message ?? '', /Requested: 2, Available: 1/);
    const [held] = await at.containers('two');
    await at.cri.runtime.stopContainer({ containerId: held?.id ?? '', timeout: 0 });
    await at.watch.pod('two', 'runs again', 60_000, (pod) => pod.status?.containerStatuses?.[0]?.restartCount === 1 && pod.status.containerStatuses[0].ready);
    assert.equal((await at.k('exec', 'two', '--', 'sh', '-c', 'echo $DEVS')).split(' ').length, 2);
    await at.remove('two');
    await gone('two');
    await at.create('all', { ...quick, containers: [box('m', idle, wants(3))] });
    await at.ready('all');
    await at.remove('all');
    await gone('all');
  });
});

const cpusOf = (pod: string): Promise<string> => at.k('exec', pod, '--', 'sh', '-c', "grep Cpus_allowed_list /proc/self/status | tr -d '\\t ' | cut -d: -f2");
const whole = (cpu: string, memory = '64Mi'): Partial<Container> => ({ resources: { requests: { cpu, memory }, limits: { cpu, memory } } });

describe('CPUs and memory', { skip, timeout: 600_000 }, () => {
  const machine = Number(/^(\d+)-(\d+)$/.exec(readFileSync('/sys/devices/system/cpu/online', 'utf8').trim())?.[2] ?? 0) + 1;
  const few = machine !== 2 ? 'needs a machine of two CPUs' : false;
  const reserved = { systemReserved: { cpu: '1', memory: '256Mi' }, evictionHard: { 'memory.available': '100Mi' }, cpuManagerReconcilePeriod: '1s' };

  test('the static policy gives a CPU to one container, and takes it from all others', { skip: few }, async () => {
    await configure({ ...reserved, cpuManagerPolicy: 'static' });
    await at.create('shared', { ...quick, containers: [box('m', idle)] });
    await at.ready('shared');
    assert.equal(await cpusOf('shared'), '0-1');
    await at.create('own', { ...quick, containers: [box('m', idle, whole('1'))] });
    const pod = await at.ready('own');
    assert.equal(await cpusOf('own'), '1');
    assert.equal(await at.k('exec', 'own', '--', 'cat', '/sys/fs/cgroup/cpu/cpu.cfs_quota_us'), '-1');
    await eventually('the others are kept off that CPU', 20_000, async () => ((await cpusOf('shared')) === '0' ? true : null));
    const state = JSON.parse(at.file(`${root}/cpu_manager_state`)) as Record<string, unknown>;
    say('cpu_manager_state', { ...state, data: undefined, dataChecksum: undefined, checksum: undefined });
    assert.deepEqual([state['policyName'], state['defaultCpuSet'], state['entries']], ['static', '0', { [pod.metadata.uid ?? '']: { m: '1' } }]);
    assert.deepEqual((await podResources('own'))?.cpuIds, ['1']);
    assert.deepEqual((await podResources('shared'))?.cpuIds, []);
    await at.create('second', { ...quick, containers: [box('m', idle, whole('1'))] });
    const { status } = await failed('second');
    say('refused', [status?.reason, status?.message]);
    assert.match(status?.reason ?? '', /OutOfcpu|UnexpectedAdmissionError/);
    await at.init('restart agent');
    await eventually('the kubelet is back, and the container where it was', 60_000, async () => ((await cpusOf('own')) === '1' ? true : null));
    await at.remove('own');
    await gone('own');
    await eventually('the CPU is shared again', 30_000, async () => ((await cpusOf('shared')) === '0-1' ? true : null));
    await at.remove('shared');
    await gone('shared');
  });

  test('the restricted topology policy refuses what cannot be near, the static memory policy pins', { skip: few }, async () => {
    const reservedMemory = [{ numaNode: 0, limits: { memory: '356Mi' } }];
    await configure({ ...reserved, cpuManagerPolicy: 'static', memoryManagerPolicy: 'Static', topologyManagerPolicy: 'restricted', reservedMemory });
    await at.create('far', { ...quick, containers: [box('m', idle, whole('2'))] });
    const { status } = await failed('far');
    assert.deepEqual([status?.reason, status?.message], ['TopologyAffinityError', 'Pod was rejected: Resources cannot be allocated with Topology locality']);
    await at.create('near', { ...quick, containers: [box('m', idle, whole('1'))] });
    const pod = await at.ready('near');
    assert.equal(await at.k('exec', 'near', '--', 'sh', '-c', "grep Mems_allowed_list /proc/self/status | tr -d '\\t ' | cut -d: -f2"), '0');
    const state = JSON.parse(at.file(`${root}/memory_manager_state`)) as {
      entries: Record<string, unknown>;
      machineState: Record<string, { memoryMap: Record<string, unknown> }>;
    };
    say('memory_manager_state', state.machineState);
    assert.deepEqual(state.entries[pod.metadata.uid ?? ''], { m: [{ numaAffinity: [0], type: 'memory', size: 67_108_864 }] });
    const told = await podResources('near');
    assert.deepEqual(told?.memory, [{ memoryType: 'memory', size: '67108864', topology: { nodes: [{ ID: '0' }] } }]);
    await at.init('restart agent');
    await at.remove('near');
    await gone('near');
    await configure({});
    await at.create('plain', { ...quick, containers: [box('m', idle, whole('1'))] });
    await at.ready('plain');
    assert.equal(await cpusOf('plain'), '0-1');
  });
});
