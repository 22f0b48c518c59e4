import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { createFakeClock } from '../base/fake-clock.ts';
import type { FakeClock } from '../base/fake-clock.ts';
import { silentLog } from '../base/log.ts';
import type { ContainerAllocateResponse } from '../proto/plugins/device_plugin.ts';
import type { Container, Pod } from '../proto/kube/types.ts';
import { noCpuOptions } from './core/resources/cpu-options.ts';
import { startCpuState, staticCpuRules, noCpus } from './core/resources/cpu-static.ts';
import type { CpuState, StaticCpuRules } from './core/resources/cpu-static.ts';
import { topologyOf } from './core/resources/cpu-topology.ts';
import { formatCpuSet } from './core/resources/cpuset.ts';
import type { TopologyPolicy } from './core/resources/hints.ts';
import type { PodFacts } from './core/types.ts';
import { Grants } from './grants.ts';
import type { StaticPart } from './grants.ts';
import type { TextFile } from './io/allocation-file.ts';
import type { Cri } from './io/cri.ts';
import { DevicePool } from './io/device-pool.ts';
import type { PluginEndpoint } from './io/device-pool.ts';
import { ResourceMetrics } from './io/resource-metrics.ts';
import { StateFile } from './io/state-file.ts';

const signal = new AbortController().signal;
const memoryFile = (): TextFile & { text: string } => {
  const file = {
    text: '',
    read: async () => file.text,
    write: async (text: string) => {
      file.text = text;
    },
  };
  return file;
};

interface World {
  readonly clock: FakeClock;
  readonly grants: Grants;
  readonly pool: DevicePool;
  readonly pods: Map<string, Pod>;
  readonly running: Map<string, PodFacts>;
  readonly updates: string[];
  readonly cpus: StaticPart<StaticCpuRules, CpuState>;
  readonly metrics: ResourceMetrics;
}

/** Four CPUs on two NUMA nodes, one of them reserved. */
async function world(policy: TopologyPolicy = 'none', scope: 'container' | 'pod' = 'container', ofPods = false): Promise<World> {
  const clock = createFakeClock();
  const topology = topologyOf(new Map([0, 1, 2, 3].map((cpu) => [cpu, { numa: cpu >> 1, socket: 0, core: cpu, uncore: 0 }])));
  const made = staticCpuRules(topology, noCpuOptions, 1, []);
  assert.ok(made.ok);
  const started = startCpuState(made.rules, noCpus);
  assert.ok('state' in started);
  const cpus: StaticPart<StaticCpuRules, CpuState> = {
    rules: { ...made.rules, ofPods },
    state: started.state,
    file: new StateFile(memoryFile(), () => formatCpuSet(cpus.state.shared)),
  };
  const pods = new Map<string, Pod>();
  const running = new Map<string, PodFacts>();
  const updates: string[] = [];
  const pool = await DevicePool.open({
    clock,
    log: silentLog,
    file: memoryFile(),
    numaNodes: [0, 1],
    onHealth: () => undefined,
    onCapacity: () => undefined,
    onAllocated: () => undefined,
  });
  const metrics = new ResourceMetrics();
  const runtime = {
    updateContainerResources: async ({ containerId, linux }: { containerId: string; linux: { cpusetCpus: string } }) => {
      updates.push(`${containerId} ${linux.cpusetCpus}`);
      return {};
    },
  };
  const grants = new Grants({
    clock,
    log: silentLog,
    runtime: runtime as unknown as Cri['runtime'],
    timeoutMs: 1000,
    pool,
    metrics,
    cpus,
    memory: null,
    topology: { policy, scope, preferClosest: false, numa: { nodes: [0, 1], distances: new Map() } },
    reconcileMs: 10_000,
    tellsHealth: true,
    ofPods,
    pods: { synced: () => true, list: () => [...pods.values()], holdsResources: (uid) => pods.has(uid), facts: (uid) => running.get(uid) },
  });
  return { clock, grants, pool, pods, running, updates, cpus, metrics };
}

function podOf(uid: string, ...containers: [name: string, cpu: string, devices?: string][]): Pod {
  return {
    metadata: { uid, namespace: 'default', name: uid },
    spec: {
      containers: containers.map(([name, cpu, devices]): Container => {
        const list = { cpu, memory: '1Gi', ...(devices === undefined ? {} : { 'example.com/dev': devices }) };
        return { name, resources: { requests: list, limits: list } };
      }),
    },
  };
}

function admit(at: World, pod: Pod): Promise<unknown> {
  const take = (): null => {
    at.pods.set(pod.metadata.uid ?? '', pod);
    return null;
  };
  return Promise.resolve(at.grants.admit(pod, take, signal));
}

function run(at: World, uid: string, id: string, name: string): void {
  at.running.set(uid, { uid, namespace: 'default', name: uid, sandboxes: [], containers: [{ id, name, state: 'running' }] } as unknown as PodFacts);
}

const empty: ContainerAllocateResponse = { envs: {}, mounts: [], devices: [], annotations: {}, cdiDevices: [] };

function plugin(more: Partial<PluginEndpoint> = {}): PluginEndpoint {
  return {
    resource: 'example.com/dev',
    path: '/p.sock',
    preStart: false,
    hasPreference: false,
    allocate: async () => [empty],
    prefer: async () => [],
    preStartContainer: async () => undefined,
    ...more,
  };
}

describe('what is set aside', () => {
  it('is given at admission, told at the start and taken back when the pod has ended', async () => {
    const at = await world();
    const own = podOf('own', ['m', '2']);
    const shared = podOf('shared', ['m', '500m']);
    assert.equal(
      at.grants.admit(shared, () => null, signal),
      null,
    );
    at.pods.set('shared', shared);
    assert.equal(await admit(at, own), null);
    const got = await at.grants.forContainer(own, own.spec.containers[0]!, signal);
    assert.ok(got.ok);
    assert.deepEqual([got.grants.cpusetCpus, got.grants.hasOwnCpus, at.grants.hasOwnCpus('own'), at.grants.hasOwnCpus('shared')], ['2-3', true, true, false]);
    const other = await at.grants.forContainer(shared, shared.spec.containers[0]!, signal);
    assert.ok(other.ok && other.grants.cpusetCpus === '0-1' && !other.grants.hasOwnCpus);
    at.pods.delete('own');
    at.grants.sweep();
    assert.deepEqual(at.cpus.state.shared, [0, 1, 2, 3]);
    assert.match(at.metrics.text(), /kubelet_cpu_manager_shared_pool_size_millicores 3000\n/);
  });

  it('keeps what runs on its CPUs, each change told once', async () => {
    const at = await world();
    const stop = new AbortController();
    const shared = podOf('shared', ['m', '500m']);
    at.pods.set('shared', shared);
    run(at, 'shared', 'c1', 'm');
    const running = at.grants.run(stop.signal);
    await at.clock.advance(10_000);
    assert.deepEqual(at.updates.splice(0), ['c1 0-3']);
    await admit(at, podOf('own', ['m', '2']));
    at.grants.made(at.pods.get('own')!, at.pods.get('own')!.spec.containers[0]!, 'c2');
    run(at, 'own', 'c2', 'm');
    await at.clock.advance(10_000);
    assert.deepEqual(at.updates.splice(0), ['c1 0-1']);
    await at.clock.advance(10_000);
    assert.deepEqual(at.updates, []);
    stop.abort();
    await running;
  });

  it('is given back when the pod is refused for another reason', async () => {
    const at = await world();
    const verdict = { reason: 'OutOfpods', message: 'no' };
    assert.deepEqual(await at.grants.admit(podOf('p', ['m', '2']), () => verdict, signal), verdict);
    assert.deepEqual(at.cpus.state.shared, [0, 1, 2, 3]);
  });

  it('is given to one pod at a time', async () => {
    const at = await world();
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    at.pool.connected(plugin({ allocate: () => held.then(() => [empty]) }));
    at.pool.list('example.com/dev', [{ id: 'd1', healthy: true, nodes: [] }]);
    const first = admit(at, podOf('a', ['m', '1', '1']));
    const second = admit(at, podOf('b', ['m', '1', '1']));
    release();
    assert.equal(await first, null);
    assert.deepEqual(await second, {
      reason: 'UnexpectedAdmissionError',
      message: 'Allocate failed due to requested number of devices unavailable for example.com/dev. Requested: 1, Available: 0, which is unexpected',
    });
    assert.deepEqual([...at.cpus.state.given.keys()], ['a']);
  });

  it('is nobody else’s while a plugin is asked, for a container that starts again too', async () => {
    const at = await world();
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    at.pool.connected(plugin({ allocate: () => held.then(() => [empty]) }));
    at.pool.list('example.com/dev', [
      { id: 'd1', healthy: true, nodes: [] },
      { id: 'd2', healthy: true, nodes: [] },
    ]);
    const [first, second] = [podOf('a', ['m', '1', '1']), podOf('b', ['m', '1', '1'])];
    const made = [admit(at, first), at.grants.forContainer(second, second.spec.containers[0]!, signal)];
    release();
    await Promise.all(made);
    const ids = ['a', 'b'].flatMap((uid) => [...at.pool.of(uid, 'm').values()].flatMap((holding) => [...holding.ids.values()].flat()));
    assert.deepEqual(ids.toSorted(), ['d1', 'd2']);
  });

  it('is what a plugin refuses in the words of the kubelet', async () => {
    const at = await world();
    at.pool.connected(
      plugin({
        preStart: true,
        preStartContainer: async () => {
          throw new Error('not today');
        },
      }),
    );
    at.pool.list('example.com/dev', [{ id: 'd1', healthy: true, nodes: [] }]);
    const pod = podOf('a', ['m', '500m', '1']);
    await admit(at, pod);
    assert.deepEqual(await at.grants.forContainer(pod, pod.spec.containers[0]!, signal), {
      ok: false,
      message: 'device plugin PreStartContainer rpc failed with err: not today',
    });
  });

  it('comes from one NUMA node, devices and CPUs alike, or the pod is refused', async () => {
    const at = await world('single-numa-node');
    at.pool.connected(plugin());
    at.pool.list('example.com/dev', [
      { id: 'near', healthy: true, nodes: [1] },
      { id: 'far', healthy: true, nodes: [0] },
    ]);
    const pod = podOf('a', ['m', '2', '1']);
    assert.equal(await admit(at, pod), null);
    assert.deepEqual(at.grants.cpusOf(pod, pod.spec.containers[0]!), [2, 3]);
    assert.deepEqual([...at.pool.of('a', 'm').get('example.com/dev')!.ids], [[1, ['near']]]);
    assert.deepEqual(await admit(at, podOf('b', ['m', '2'])), {
      reason: 'TopologyAffinityError',
      message: 'Resources cannot be allocated with Topology locality',
    });
    assert.match(at.metrics.text(), /kubelet_container_aligned_compute_resources_failure_count\{scope="container",boundary="numa_node"\} 1\n/);
  });

  it('counts for the pod as a whole where the scope is the pod', async () => {
    const at = await world('single-numa-node', 'pod');
    assert.deepEqual(await admit(at, podOf('a', ['m', '1'], ['n', '2'])), {
      reason: 'TopologyAffinityError',
      message: 'Resources cannot be allocated with Topology locality',
    });
    const pod = podOf('b', ['m', '1'], ['n', '1']);
    assert.equal(await admit(at, pod), null);
    assert.deepEqual(
      pod.spec.containers.flatMap((container) => at.grants.cpusOf(pod, container)),
      [2, 3],
    );
  });
});

describe('what a pod owns as a whole', () => {
  const ofPod = (uid: string, cpu: string, ...containers: Parameters<typeof podOf>[1][]): Pod => {
    const pod = podOf(uid, ...containers);
    const list = { cpu, memory: '2Gi' };
    return { ...pod, spec: { ...pod.spec, containers: [...pod.spec.containers, { name: 'shares' }], resources: { requests: list, limits: list } } };
  };

  it('is near to each other, and shared by those of its containers that own nothing', async () => {
    const at = await world('single-numa-node', 'pod', true);
    const pod = ofPod('a', '2', ['m', '1']);
    assert.equal(await admit(at, pod), null);
    const [own, shares] = pod.spec.containers as [Container, Container];
    assert.deepEqual([at.grants.cpusOf(pod, own), at.grants.cpusOf(pod, shares), at.grants.wholeOf('a').cpus], [[2], [], [2, 3]]);
    const made = await at.grants.forContainer(pod, shares, signal);
    assert.deepEqual(made.ok && [made.grants.cpusetCpus, made.grants.hasOwnCpus], ['3', false]);
    assert.equal(at.grants.hasOwnCpus('a'), false, 'a container that shares needs its quota, and so does the pod');
    assert.deepEqual(at.cpus.state.shared, [0, 1]);
    assert.match(at.metrics.text(), /kubelet_resource_manager_container_assignments_total\{resource_name="cpu",assignment_type="pod_shared"\} 1\n/);
    assert.match(at.metrics.text(), /kubelet_resource_manager_allocations_total\{resource_name="cpu",source="pod"\} 2\n/);
    at.pods.delete('a');
    at.grants.sweep();
    assert.deepEqual([at.cpus.state.shared, at.cpus.state.pods?.size], [[0, 1, 2, 3], 0]);
  });

  it('is refused in words of its own', async () => {
    const at = await world('single-numa-node', 'pod', true);
    assert.deepEqual(await admit(at, ofPod('a', '3', ['m', '1'])), {
      reason: 'TopologyAffinityError',
      message: 'Pod Scope pod with pod-level resources failed admission under pod-scope topology manager',
    });
    const lax = await world('best-effort', 'pod', true);
    assert.deepEqual(await admit(lax, ofPod('b', '2', ['m', '2'])), {
      reason: 'EmptyPodSharedPoolError',
      message: 'pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers',
    });
    assert.deepEqual(lax.cpus.state.shared, [0, 1, 2, 3]);
    assert.match(lax.metrics.text(), /kubelet_resource_manager_allocation_errors_total\{resource_name="cpu",source="pod"\} 1\n/);
  });

  it('is nothing where the scope is the container: those that would be Guaranteed alone own their CPUs', async () => {
    const at = await world('restricted', 'container', true);
    const pod = ofPod('a', '2', ['m', '1']);
    assert.equal(await admit(at, pod), null);
    assert.deepEqual([at.cpus.state.given.get('a')?.size, at.cpus.state.pods, at.cpus.state.shared], [1, undefined, [0, 2, 3]]);
    assert.match(at.metrics.text(), /container_assignments_total\{resource_name="cpu",assignment_type="node_exclusive"\} 1\n/);
  });

  it('is nothing while the gate is off', async () => {
    const at = await world('single-numa-node', 'pod');
    assert.equal(await admit(at, ofPod('a', '2', ['m', '1'])), null);
    assert.deepEqual([at.cpus.state.given.size, at.cpus.state.shared], [0, [0, 1, 2, 3]]);
    assert.doesNotMatch(at.metrics.text(), /resource_manager_/);
  });
});
