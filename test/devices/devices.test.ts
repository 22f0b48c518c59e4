import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, test } from 'node:test';
import { Grants } from '../../agent/grants.ts';
import { textFile } from '../../agent/io/allocation-file.ts';
import { DevicePlugins } from '../../agent/io/device-plugins.ts';
import { DevicePool } from '../../agent/io/device-pool.ts';
import { GrpcClient, serviceOf } from '../../agent/io/grpc.ts';
import { servePodResources } from '../../agent/io/pod-resources.ts';
import { ResourceMetrics } from '../../agent/io/resource-metrics.ts';
import { realClock } from '../../base/clock.ts';
import type { Clock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import type { Pod, PodStatus } from '../../proto/kube/types.ts';
import definition from '../../proto/plugins/pod_resources.json' with { type: 'json' };
import type { PodResourcesListerMethods } from '../../proto/plugins/pod_resources.ts';
import type { Cri } from '../../agent/io/cri.ts';
import { eventually } from '../set.ts';
import { startPlugin } from './plugin.ts';
import type { TestPlugin, TestPluginOptions } from './plugin.ts';

/* A device plugin on real sockets, the agent's own parts, and pods in memory. */
const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop();
});

const signal = new AbortController().signal;
const resource = 'example.com/dev';

interface World {
  readonly root: string;
  readonly dir: string;
  readonly pool: DevicePool;
  readonly plugins: DevicePlugins;
  readonly grants: Grants;
  readonly metrics: ResourceMetrics;
  readonly pods: Map<string, Pod>;
  readonly kicked: string[];
  /** Time goes on for the five minutes that a plugin may be away. */
  pass(ms: number): void;
  plugin(options?: Partial<TestPluginOptions>): Promise<TestPlugin>;
  close(): Promise<void>;
}

async function folder(): Promise<string> {
  const root = await mkdtemp(join(tmpdir(), 'nodelet-devices-'));
  stops.push(() => rm(root, { recursive: true }));
  return root;
}

async function world(root: string): Promise<World> {
  const dir = join(root, 'device-plugins');
  await mkdir(dir, { recursive: true });
  let aheadMs = 0;
  const clock: Clock = { ...realClock, monoMs: () => realClock.monoMs() + aheadMs };
  const pods = new Map<string, Pod>();
  const kicked: string[] = [];
  const metrics = new ResourceMetrics();
  const pool = await DevicePool.open({
    clock,
    log: silentLog,
    file: textFile(join(dir, 'kubelet_internal_checkpoint')),
    numaNodes: [0, 1],
    onHealth: (uids) => void kicked.push(...uids),
    onCapacity: () => undefined,
    onAllocated: () => undefined,
  });
  const plugins = new DevicePlugins({ clock, log: silentLog, dir, pool, onRegistered: (name) => metrics.registrations.add({ resource_name: name }) });
  await plugins.start();
  const grants = new Grants({
    clock,
    log: silentLog,
    runtime: {} as Cri['runtime'],
    timeoutMs: 1000,
    pool,
    metrics,
    cpus: null,
    memory: null,
    topology: { policy: 'none', scope: 'container', preferClosest: false, numa: { nodes: [0, 1], distances: new Map() } },
    reconcileMs: 10_000,
    tellsHealth: true,
    ofPods: false,
    pods: { synced: () => true, list: () => [...pods.values()], holdsResources: (uid) => pods.has(uid), facts: () => undefined },
  });
  const close = (): Promise<void> => plugins[Symbol.asyncDispose]();
  stops.push(close);
  return {
    root,
    dir,
    pool,
    plugins,
    grants,
    metrics,
    pods,
    kicked,
    close,
    pass: (ms) => (aheadMs += ms),
    async plugin(options = {}) {
      const devices = ['d1', 'd2', 'd3'].map((id) => ({ id }));
      const plugin = await startPlugin({ dir, resource, devices, ...options });
      stops.push(async () => plugin[Symbol.asyncDispose]());
      return plugin;
    },
  };
}

function podOf(uid: string, count: number, init = 0): Pod {
  const limits = (amount: number) => ({ resources: { limits: { [resource]: String(amount) } } });
  return {
    metadata: { uid, namespace: 'default', name: uid },
    spec: { containers: [{ name: 'app', ...limits(count) }], ...(init === 0 ? {} : { initContainers: [{ name: 'init', ...limits(init) }] }) },
  };
}

const admitted = (at: World, pod: Pod): Promise<unknown> =>
  Promise.resolve(
    at.grants.admit(
      pod,
      () => {
        at.pods.set(pod.metadata.uid ?? '', pod);
        return null;
      },
      signal,
    ),
  );

const offers = (at: World, text: string): Promise<true> =>
  eventually(`the node offers ${text}`, 5000, async () => {
    const { capacity, allocatable } = at.pool.capacity();
    return `${allocatable[resource] ?? '-'}/${capacity[resource] ?? '-'}` === text ? true : null;
  });

describe('device plugins', () => {
  test('register, offer devices, and give them to containers with all that belongs to them', async () => {
    const at = await world(await folder());
    const plugin = await at.plugin({
      prefer: (available, count) => available.toReversed().slice(0, count),
      preStart: () => undefined,
      allocate: (ids) => ({
        envs: { DEVS: ids.join(' ') },
        annotations: { 'example.com/ids': ids.join('.') },
        mounts: [{ containerPath: '/lib/dev', hostPath: '/opt/dev', readOnly: true }],
        devices: [{ containerPath: '/dev/x', hostPath: '/dev/null', permissions: 'rw' }],
        cdiDevices: [{ name: 'example.com/dev=1' }],
      }),
    });
    await assert.rejects(plugin.register('v1alpha'), /requested API version "v1alpha" is not supported by kubelet. Supported version is \["v1beta1"\]/);
    await plugin.register();
    await offers(at, '3/3');
    const pod = podOf('p1', 2);
    assert.equal(await admitted(at, pod), null);
    assert.deepEqual(plugin.calls, ['GetPreferredAllocation', 'Allocate d2,d3']);
    const got = await at.grants.forContainer(pod, pod.spec.containers[0]!, signal);
    assert.deepEqual(got, {
      ok: true,
      grants: {
        envs: [{ name: 'DEVS', value: 'd2 d3' }],
        annotations: { 'example.com/ids': 'd2.d3' },
        mounts: [{ containerPath: '/lib/dev', hostPath: '/opt/dev', readOnly: true }],
        devices: [{ containerPath: '/dev/x', hostPath: '/dev/null', permissions: 'rw' }],
        cdiDevices: [{ name: 'example.com/dev=1' }],
        cpusetCpus: '',
        cpusetMems: '',
        hasOwnCpus: false,
      },
    });
    assert.equal(plugin.calls.at(-1), 'PreStartContainer d2,d3');
    assert.match(at.metrics.text(), /kubelet_device_plugin_registration_total\{resource_name="example.com\/dev"\} 2/);
  });

  test('refuse a pod that asks for more than is free, and give again what an ended pod held', async () => {
    const at = await world(await folder());
    const plugin = await at.plugin();
    await plugin.register();
    await offers(at, '3/3');
    assert.equal(await admitted(at, podOf('p1', 2)), null);
    assert.deepEqual(await admitted(at, podOf('p2', 2)), {
      reason: 'UnexpectedAdmissionError',
      message: 'Allocate failed due to requested number of devices unavailable for example.com/dev. Requested: 2, Available: 1, which is unexpected',
    });
    at.pods.delete('p1');
    assert.equal(await admitted(at, podOf('p3', 3)), null);
    assert.equal(await admitted(at, podOf('other', 0)), null);
  });

  test('keep devices of init containers for the containers after them', async () => {
    const at = await world(await folder());
    const plugin = await at.plugin();
    await plugin.register();
    await offers(at, '3/3');
    assert.equal(await admitted(at, podOf('p1', 3, 2)), null);
    assert.deepEqual(plugin.calls, ['Allocate d1,d2', 'Allocate d1,d2,d3']);
  });

  test('tell of devices that fail, and of pods that hold them', async () => {
    const at = await world(await folder());
    const plugin = await at.plugin();
    await plugin.register();
    await offers(at, '3/3');
    await admitted(at, podOf('p1', 1));
    plugin.tell([{ id: 'd1', health: 'Unhealthy' }, { id: 'd2' }, { id: 'd3' }]);
    await offers(at, '2/3');
    assert.deepEqual(at.kicked, ['p1']);
    const status: PodStatus = { containerStatuses: [{ name: 'app', image: '', imageID: '', ready: true, restartCount: 0 }] };
    assert.deepEqual(at.grants.withHealth('p1', status).containerStatuses?.[0]?.allocatedResourcesStatus, [
      { name: resource, resources: [{ resourceID: 'd1', health: 'Unhealthy' }] },
    ]);
  });

  test('are waited for when they go: their devices are unhealthy at once, gone after five minutes', async () => {
    const at = await world(await folder());
    const plugin = await at.plugin();
    await plugin.register();
    await offers(at, '3/3');
    await plugin[Symbol.asyncDispose]();
    await offers(at, '0/3');
    assert.deepEqual(await admitted(at, podOf('p1', 1)), {
      reason: 'UnexpectedAdmissionError',
      message: 'Allocate failed due to no healthy devices present; cannot allocate unhealthy devices example.com/dev, which is unexpected',
    });
    at.pass(5 * 60_000 + 1);
    await offers(at, '0/0');
    const again = await at.plugin({ devices: [{ id: 'n1' }] });
    await again.register();
    await offers(at, '1/1');
  });

  test('keep what pods hold over a restart, whose sockets are made anew', async () => {
    const root = await folder();
    const first = await world(root);
    const stale = join(first.dir, 'old.sock');
    const plugin = await first.plugin({ allocate: (ids) => ({ envs: { DEVS: ids.join(' ') } }) });
    await plugin.register();
    await offers(first, '3/3');
    const pod = podOf('p1', 2);
    await admitted(first, pod);
    await first.close();
    await plugin[Symbol.asyncDispose]();
    const socket = createServer();
    await new Promise<void>((resolve) => socket.listen(stale, resolve));
    const second = await world(root);
    assert.ok(!existsSync(stale));
    await new Promise((resolve) => socket.close(resolve));
    second.pods.set('p1', pod);
    await second.grants.adopt(pod);
    await offers(second, '0/0');
    const got = await second.grants.forContainer(pod, pod.spec.containers[0]!, signal);
    assert.ok(got.ok && got.grants.envs[0]?.value === 'd1 d2');
    const again = await second.plugin();
    await again.register();
    await offers(second, '3/3');
    assert.equal(((await admitted(second, podOf('p2', 2))) as { message: string }).message.includes('Available: 1'), true);
    assert.deepEqual(again.calls, []);
  });

  test('find no file that tells them to wait for being found', async () => {
    // The stub that upstream's plugins are built on does not register where it lies; upstream's kubelet does not make it.
    const root = await folder();
    await mkdir(join(root, 'device-plugins'));
    await writeFile(join(root, 'device-plugins', 'DEPRECATION'), '');
    const { dir } = await world(root);
    assert.ok(!existsSync(join(dir, 'DEPRECATION')));
  });

  test('start from nothing where the checkpoint is damaged', async () => {
    const root = await folder();
    await mkdir(join(root, 'device-plugins'), { recursive: true });
    await writeFile(join(root, 'device-plugins/kubelet_internal_checkpoint'), '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}');
    const at = await world(root);
    await (await at.plugin()).register();
    await offers(at, '3/3');
    await eventually('the checkpoint is good again', 5000, async () => {
      const text = await readFile(join(root, 'device-plugins/kubelet_internal_checkpoint'), 'utf8');
      return text.includes('"RegisteredDevices":{"example.com/dev":["d1","d2","d3"]}') ? true : null;
    });
  });

  test('do not hold up a pod without devices, nor speak for a socket elsewhere', async () => {
    const at = await world(await folder());
    assert.equal(
      at.grants.admit(podOf('p1', 1), () => null, signal),
      null,
    );
    const outside = await startPlugin({ dir: at.root, resource, devices: [{ id: 'x' }], socket: 'x.sock' });
    stops.push(async () => outside[Symbol.asyncDispose]());
    const plugin = await at.plugin({ socket: 'in.sock' });
    await plugin.register();
    await assert.rejects(plugin.register(), /device plugin already connected/);
  });
});

describe('pod-resources', () => {
  test('tells what containers hold, what there is, and refuses too many questions', async () => {
    const at = await world(await folder());
    const plugin = await at.plugin({ devices: [{ id: 'd1', nodes: [0, 1] }, { id: 'd2' }, { id: 'd3', health: 'Unhealthy' }] });
    await plugin.register();
    await offers(at, '2/3');
    await admitted(at, podOf('p1', 1));
    const server = await servePodResources({
      clock: { ...realClock, monoMs: () => 0 },
      dir: join(at.root, 'pod-resources'),
      pool: at.pool,
      metrics: at.metrics,
      pods: () => [...at.pods.values()],
      podByName: (_, name) => at.pods.get(name),
      cpus: () => [2, 3],
      memory: () => [{ type: 'memory', bytes: 1024, nodes: [0] }],
      whole: () => ({ cpus: [2, 3], memory: [{ type: 'memory', bytes: 2048, nodes: [0] }] }),
      allocatableCpus: [1, 2, 3],
      allocatableMemory: [],
      dynamic: () => [],
      sweep: () => at.grants.sweep(),
    });
    stops.push(async () => server[Symbol.asyncDispose]());
    const path = join(at.root, 'pod-resources/kubelet.sock');
    using client = new GrpcClient(serviceOf<PodResourcesListerMethods>(definition, 'v1.PodResourcesLister'), path, realClock);
    using older = new GrpcClient(serviceOf<PodResourcesListerMethods>(definition, 'v1.PodResourcesLister', 'v1alpha1.PodResourcesLister'), path, realClock);
    const options = { timeoutMs: 5000 };
    const { podResources } = await client.call('List', {}, options);
    assert.deepEqual(podResources, [
      {
        name: 'p1',
        namespace: 'default',
        cpuIds: ['2', '3'],
        memory: [{ memoryType: 'memory', size: '2048', topology: { nodes: [{ ID: '0' }] } }],
        containers: [
          {
            name: 'app',
            devices: ['0', '1'].map((ID) => ({ resourceName: resource, deviceIds: ['d1'], topology: { nodes: [{ ID }] } })),
            cpuIds: ['2', '3'],
            memory: [{ memoryType: 'memory', size: '1024', topology: { nodes: [{ ID: '0' }] } }],
            dynamicResources: [],
          },
        ],
      },
    ]);
    const all = await client.call('GetAllocatableResources', {}, options);
    assert.deepEqual(
      [all.devices.map(({ deviceIds }) => deviceIds[0]), all.cpuIds],
      [
        ['d1', 'd1', 'd2'],
        ['1', '2', '3'],
      ],
    );
    await assert.rejects(client.call('Get', { podName: 'no', podNamespace: 'default' }, options), /pod no in namespace default not found/);
    assert.deepEqual((await older.call('List', {}, options)).podResources[0]?.containers[0]?.devices[0]?.deviceIds, ['d1']);
    await assert.rejects(older.call('Get', {}, options), /unknown method Get/);
    const many = await Promise.allSettled(Array.from({ length: 40 }, () => client.call('List', {}, options)));
    assert.ok(many.some((each) => each.status === 'rejected' && String(each.reason).includes('rejected by rate limit')));
  });
});
