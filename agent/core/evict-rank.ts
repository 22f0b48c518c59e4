import type { Pod } from '../../proto/kube/types.ts';
import type { DiskLayout, EvictionSignal, StarvedResource } from './evict-thresholds.ts';
import { resourceOf } from './evict-thresholds.ts';
import { hasPodLevelResources, podRequests } from './qos.ts';
import { addQuantities, parseQuantity, quantityOf } from './quantity.ts';
import type { Quantity } from './quantity.ts';

/** Of a directory tree or a writable layer. */
export interface DiskUse {
  readonly bytes: bigint;
  readonly inodes: bigint;
}

export interface ContainerUse {
  readonly name: string;
  /** Working set; null: not told. */
  readonly memoryBytes: bigint | null;
  readonly rootfs: DiskUse | null;
  readonly logs: DiskUse | null;
}

/** What a pod uses of what is short; what was not measured counts as nothing. */
export interface PodUse {
  /** Working set of the whole pod. */
  readonly memoryBytes: bigint | null;
  readonly processes: bigint;
  readonly containers: readonly ContainerUse[];
  /** Local volumes by name. */
  readonly volumes: ReadonlyMap<string, DiskUse>;
}

export type UseOf = (pod: Pod) => PodUse | undefined;

/** Parts of a pod's use of disks. */
export type DiskPart = 'rootfs' | 'logs' | 'volumes';

/** Which parts lie on the file system of a signal; images are nobody's. */
export function diskParts(signal: EvictionSignal, layout: DiskLayout): readonly DiskPart[] {
  const isImage = signal.startsWith('imagefs.');
  if (layout === 'one') return ['rootfs', 'logs', 'volumes'];
  if (layout === 'split') return isImage ? [] : ['rootfs', 'logs', 'volumes'];
  return isImage || signal.startsWith('containerfs.') ? ['rootfs'] : ['logs', 'volumes'];
}

/** What can be taken away from the node itself before a pod has to go. */
export function nodeReclaims(signal: EvictionSignal, layout: DiskLayout): readonly ('containers' | 'images')[] {
  const isImage = signal.startsWith('imagefs.');
  if (resourceOf(signal) === 'memory' || resourceOf(signal) === 'pids') return [];
  if (layout === 'one') return ['containers', 'images'];
  if (layout === 'split') return isImage ? ['images'] : ['containers'];
  return isImage || signal.startsWith('containerfs.') ? ['containers', 'images'] : [];
}

/** Names of the volumes whose bytes are the pod's own on the node's disk. */
export function localVolumes(pod: Pod): string[] {
  return (pod.spec.volumes ?? [])
    .filter((volume) => volume.configMap !== undefined || (volume.emptyDir !== undefined && (volume.emptyDir.medium ?? '') === ''))
    .map((volume) => volume.name);
}

/**
 * Pods in the order in which they go (docs: node-pressure eviction): those beyond their requests first, then by
 * priority, then by how much they use beyond their requests. For processes: by priority, then by count. A pod that
 * nothing was measured of goes before others.
 */
export function rankPods(pods: readonly Pod[], use: UseOf, signal: EvictionSignal, layout: DiskLayout): Pod[] {
  const resource = resourceOf(signal);
  if (resource === 'pids')
    return pods.toSorted(
      inTurn(
        byPriority,
        measuredLast(use),
        byAmount((pod) => use(pod)?.processes ?? 0n),
      ),
    );
  const parts = diskParts(signal, layout);
  const used = (pod: Pod): bigint => {
    const facts = use(pod);
    if (facts === undefined) return 0n;
    return resource === 'memory' ? (facts.memoryBytes ?? 0n) : diskUse(pod, facts, parts, resource);
  };
  // Nobody requests inodes; what a pod uses of them is still set against its request for bytes.
  const asked = new Map(
    pods.map((pod) => [pod, { own: requestOf(pod, resource), weight: requestOf(pod, resource === 'memory' ? resource : 'ephemeral-storage') }]),
  );
  const exceeds = (pod: Pod): boolean => used(pod) > (asked.get(pod)?.own ?? 0n);
  return pods.toSorted(
    inTurn(
      measuredLast(use),
      (left, right) => Number(exceeds(right)) - Number(exceeds(left)),
      byPriority,
      byAmount((pod) => used(pod) - (asked.get(pod)?.weight ?? 0n)),
    ),
  );
}

type Compare = (left: Pod, right: Pod) => number;

function inTurn(...compares: readonly Compare[]): Compare {
  return (left, right) => {
    for (const compare of compares) {
      const result = compare(left, right);
      if (result !== 0) return result;
    }
    return 0;
  };
}

const byPriority: Compare = (left, right) => (left.spec.priority ?? 0) - (right.spec.priority ?? 0);

function measuredLast(use: UseOf): Compare {
  return (left, right) => Number(use(left) !== undefined) - Number(use(right) !== undefined);
}

/** The largest first. */
function byAmount(amount: (pod: Pod) => bigint): Compare {
  return (left, right) => {
    const difference = amount(right) - amount(left);
    return difference === 0n ? 0 : difference > 0n ? 1 : -1;
  };
}

function diskUse(pod: Pod, use: PodUse, parts: readonly DiskPart[], resource: StarvedResource): bigint {
  const measure = (disk: DiskUse | null | undefined): bigint => (disk === null || disk === undefined ? 0n : resource === 'inodes' ? disk.inodes : disk.bytes);
  let sum = 0n;
  for (const container of use.containers) {
    if (parts.includes('rootfs')) sum += measure(container.rootfs);
    if (parts.includes('logs')) sum += measure(container.logs);
  }
  if (parts.includes('volumes')) for (const name of localVolumes(pod)) sum += measure(use.volumes.get(name));
  return sum;
}

/** What the pod asks for, its overhead only where it asks for anything. Whole units. */
export function requestOf(pod: Pod, resource: string): bigint {
  const own = requestQuantity(pod, resource);
  return (own.nano + 999_999_999n) / 1_000_000_000n;
}

function requestQuantity(pod: Pod, resource: string): Quantity {
  const { overhead, ...spec } = pod.spec;
  const own = podRequests({ spec }).get(resource) ?? quantityOf(0);
  const extra = overhead?.[resource];
  return own.nano === 0n || extra === undefined ? own : addQuantities(own, parseQuantity(extra));
}

/** A request for CPU in thousandths, of pods in pieces, of anything else in whole units. */
export function requestUnits(pod: Pod, resource: string): bigint {
  if (resource === 'pods') return 1n;
  return resource === 'cpu' ? (requestQuantity(pod, resource).nano + 999_999n) / 1_000_000n : requestOf(pod, resource);
}

/** Request of the pod as a whole for memory, when it has one. */
export function podLevelMemory(pod: Pod): Quantity | null {
  const text = pod.spec.resources?.requests?.['memory'];
  return text === undefined || !hasPodLevelResources(pod) ? null : parseQuantity(text);
}
