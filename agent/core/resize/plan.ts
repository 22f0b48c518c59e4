import type { Container, Pod } from '../../../proto/kube/types.ts';
import { latestOf } from '../containers.ts';
import type { ContainerFacts, PodFacts } from '../types.ts';
import type { PodAllocation } from './allocation.ts';
import { resizable, sameSizes, sizesOf } from './amounts.ts';
import type { Sizes } from './amounts.ts';

/** One running container that is to get other sizes without a restart. */
export interface ContainerResize {
  readonly name: string;
  readonly containerId: string;
  readonly from: Sizes;
  readonly to: Sizes;
}

/** What a plan does about sizes. Decreases stand before increases. */
export interface ResizeWork {
  readonly memory: ContainerResize[];
  readonly cpu: ContainerResize[];
  /** The limits of the pod's cgroup change with containers that are started anew. */
  ofPod: boolean;
  /** Pod-level resources change. */
  podLevel: boolean;
}

export function noWork(): ResizeWork {
  return { memory: [], cpu: [], ofPod: false, podLevel: false };
}

export function isWork(work: ResizeWork): boolean {
  return work.memory.length > 0 || work.cpu.length > 0 || work.ofPod || work.podLevel;
}

/**
 * What a running container needs to have the size it was allocated: `restart` by its policy, else an entry in `work`.
 * `pod` is the pod as allocated.
 */
export function planContainer(
  pod: Pod,
  container: Container,
  facts: ContainerFacts,
  actuated: PodAllocation | undefined,
  work: ResizeWork,
): 'keep' | 'restart' {
  if (facts.state !== 'running' || actuated === undefined) return 'keep';
  const to = sizesOf(container.resources, pod.spec.resources);
  const from = sizesOf(actuated.containers.get(container.name), actuated.pod);
  if (sameSizes(from, to)) return 'keep';
  const changed = {
    cpu: from.cpuRequest !== to.cpuRequest || from.cpuLimit !== to.cpuLimit,
    memory: from.memoryRequest !== to.memoryRequest || from.memoryLimit !== to.memoryLimit,
  };
  const restarts = (['cpu', 'memory'] as const).some(
    (name) => changed[name] && container.resizePolicy?.find((policy) => policy.resourceName === name)?.restartPolicy === 'RestartContainer',
  );
  if (restarts) {
    work.ofPod = true;
    return 'restart';
  }
  const entry: ContainerResize = { name: container.name, containerId: facts.id, from, to };
  if (changed.memory)
    place(work.memory, entry, from.memoryLimit === to.memoryLimit ? to.memoryRequest - from.memoryRequest : to.memoryLimit - from.memoryLimit);
  if (changed.cpu) place(work.cpu, entry, from.cpuLimit === to.cpuLimit ? to.cpuRequest - from.cpuRequest : to.cpuLimit - from.cpuLimit);
  return 'keep';
}

function place(list: ContainerResize[], entry: ContainerResize, growth: bigint): void {
  if (growth < 0n) list.unshift(entry);
  else list.push(entry);
}

/** Adds what concerns the pod as a whole; `starting`: app containers that the same plan starts. */
export function planPod(pod: Pod, starting: readonly Container[], actuated: PodAllocation | undefined, work: ResizeWork): void {
  if (actuated === undefined) return;
  work.podLevel = !sameSizes(sizesOf(pod.spec.resources), sizesOf(actuated.pod ?? undefined));
  if (work.podLevel || work.ofPod) return;
  work.ofPod = starting.some(
    (container) => !sameSizes(sizesOf(container.resources, pod.spec.resources), sizesOf(actuated.containers.get(container.name), actuated.pod)),
  );
}

/** Whether something that runs has not the size it was allocated yet. */
export function isResizing(pod: Pod, facts: PodFacts, actuated: PodAllocation | undefined): boolean {
  if (actuated === undefined) return false;
  const waits = resizable(pod).some((container) => {
    if (latestOf(facts, container.name)?.state !== 'running') return false;
    return !sameSizes(sizesOf(container.resources, pod.spec.resources), sizesOf(actuated.containers.get(container.name), actuated.pod));
  });
  if (waits) return true;
  return pod.spec.resources !== undefined && actuated.pod !== null && !sameSizes(sizesOf(pod.spec.resources), sizesOf(actuated.pod));
}
