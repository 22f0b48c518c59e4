import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { RpcError } from '../../cri/mod.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import definition from '../../proto/plugins/pod_resources.json' with { type: 'json' };
import type {
  ContainerDevices,
  ContainerMemory,
  ContainerResources,
  DynamicResource,
  PodResources,
  PodResourcesListerMethods,
} from '../../proto/plugins/pod_resources.ts';
import { keyOf } from '../core/containers.ts';
import type { CpuSet } from '../core/resources/cpuset.ts';
import { heldIds } from '../core/resources/holdings.ts';
import { nodesOfDevice } from '../core/resources/devices.ts';
import type { MemoryBlock } from '../core/resources/memory-static.ts';
import { containersOf, isRegularInit } from '../core/resources/requests.ts';
import { RateLimit } from '../core/resources/rate.ts';
import type { DevicePool } from './device-pool.ts';
import { served, serveGrpc, serviceOf } from './grpc.ts';
import type { Answers } from './grpc.ts';
import type { ResourceMetrics } from './resource-metrics.ts';

export interface PodResourcesOptions {
  readonly clock: Clock;
  /** `<root>/pod-resources`. */
  readonly dir: string;
  readonly pool: DevicePool;
  readonly metrics: ResourceMetrics;
  /** Pods that were taken and have not ended. */
  readonly pods: () => readonly Pod[];
  readonly podByName: (namespace: string, name: string) => Pod | undefined;
  readonly cpus: (pod: Pod, container: Container) => CpuSet;
  readonly allocatableCpus: CpuSet;
  readonly memory: (pod: Pod, container: Container) => readonly MemoryBlock[];
  /** What pods own as a whole. */
  readonly whole: (uid: string) => { readonly cpus: CpuSet; readonly memory: readonly MemoryBlock[] };
  readonly allocatableMemory: readonly MemoryBlock[];
  /** Claims of the container as prepared by their drivers. */
  readonly dynamic: (pod: Pod, container: Container) => readonly DynamicResource[];
  /** Forgets what ended pods held. */
  readonly sweep: () => void;
}

/** As upstream: more than its known clients need. */
const perSecond = 100;
const burst = 10;

/** Tells programs on the node what containers were given (KEP-606), on `kubelet.sock` in a directory of its own. */
export async function servePodResources(options: PodResourcesOptions): Promise<AsyncDisposable> {
  const path = join(options.dir, 'kubelet.sock');
  await mkdir(options.dir, { recursive: true, mode: 0o750 });
  await rm(path, { force: true });
  const v1 = serviceOf<PodResourcesListerMethods>(definition, 'v1.PodResourcesLister');
  const older = serviceOf<PodResourcesListerMethods>(definition, 'v1.PodResourcesLister', 'v1alpha1.PodResourcesLister');
  const limit = new RateLimit(perSecond, burst);
  return serveGrpc(path, [served(v1, limited(answersOf(options), limit, options.clock)), served(older, limited(olderAnswers(options), limit, options.clock))]);
}

function limited(answers: Answers<PodResourcesListerMethods>, limit: RateLimit, clock: Clock): Answers<PodResourcesListerMethods> {
  const check = (method: string): void => {
    if (!limit.allow(clock.monoMs())) throw new RpcError('ResourceExhausted', method, 'rejected by rate limit');
  };
  return {
    List: (request, signal) => (check('List'), answers.List(request, signal)),
    Get: (request, signal) => (check('Get'), answers.Get(request, signal)),
    GetAllocatableResources: (request, signal) => (check('GetAllocatableResources'), answers.GetAllocatableResources(request, signal)),
  };
}

function answersOf(options: PodResourcesOptions): Answers<PodResourcesListerMethods> {
  const { metrics, pool } = options;
  const version = { server_api_version: 'v1' };
  return {
    List() {
      metrics.podResources.add(version);
      metrics.podResourcesList.add(version);
      options.sweep();
      return { podResources: options.pods().map((pod) => resourcesOf(options, pod)) };
    },
    GetAllocatableResources() {
      metrics.podResources.add(version);
      metrics.podResourcesAllocatable.add(version);
      const devices = [...pool.healthy()].flatMap(([resourceName, list]) => list.flatMap(({ id, nodes }) => deviceOf(resourceName, id, nodes)));
      return { devices, cpuIds: options.allocatableCpus.map(String), memory: options.allocatableMemory.map(memoryOf) };
    },
    Get({ podNamespace, podName }) {
      metrics.podResources.add(version);
      metrics.podResourcesGet.add(version);
      const pod = options.podByName(podNamespace, podName);
      if (pod !== undefined) return { podResources: resourcesOf(options, pod) };
      metrics.podResourcesGetErrors.add(version);
      throw new RpcError('Unknown', 'Get', `pod ${podName} in namespace ${podNamespace} not found`);
    },
  };
}

/** v1alpha1: devices of containers and nothing else. */
function olderAnswers(options: PodResourcesOptions): Answers<PodResourcesListerMethods> {
  const unknown = (method: string): never => {
    throw new RpcError('Unimplemented', method, `unknown method ${method} for service v1alpha1.PodResourcesLister`);
  };
  return {
    List() {
      options.metrics.podResources.add({ server_api_version: 'v1alpha1' });
      options.sweep();
      const podResources = options.pods().map((pod) => {
        const { namespace, name, uid } = keyOf(pod);
        const devices = (container: Container): object[] =>
          devicesOf(options, uid, container.name).map(({ resourceName, deviceIds }) => ({ resourceName, deviceIds }));
        return { name, namespace, containers: pod.spec.containers.map((container) => ({ name: container.name, devices: devices(container) })) };
      });
      return { podResources };
    },
    Get: () => unknown('Get'),
    GetAllocatableResources: () => unknown('GetAllocatableResources'),
  };
}

function resourcesOf(options: PodResourcesOptions, pod: Pod): PodResources {
  const { namespace, name, uid } = keyOf(pod);
  const containers = containersOf(pod)
    .filter((container) => !isRegularInit(pod, container.name))
    .map((container): ContainerResources => ({
      name: container.name,
      devices: devicesOf(options, uid, container.name),
      cpuIds: options.cpus(pod, container).map(String),
      memory: options.memory(pod, container).map(memoryOf),
      dynamicResources: [...options.dynamic(pod, container)],
    }));
  const whole = options.whole(uid);
  return { name, namespace, containers, cpuIds: whole.cpus.map(String), memory: whole.memory.map(memoryOf) };
}

/** One entry for each device and each of its NUMA nodes, as upstream has it. */
function devicesOf({ pool }: PodResourcesOptions, uid: string, container: string): ContainerDevices[] {
  return [...pool.of(uid, container)].flatMap(([resource, held]) => heldIds(held).flatMap((id) => deviceOf(resource, id, nodesOfDevice(held.ids, id))));
}

function deviceOf(resourceName: string, id: string, nodes: readonly number[]): ContainerDevices[] {
  const one = { resourceName, deviceIds: [id] };
  return nodes.length === 0 ? [{ ...one, topology: null }] : nodes.map((node) => ({ ...one, topology: { nodes: [{ ID: String(node) }] } }));
}

function memoryOf({ type, bytes, nodes }: MemoryBlock): ContainerMemory {
  return { memoryType: type, size: String(bytes), topology: { nodes: nodes.map((node) => ({ ID: String(node) })) } };
}
