import { everyContainerLimits, hasPodLevelResources, memoryOf, podLimits, podRequests, qosClassOfStatus } from './qos.ts';
import type { PodResources, ResourceLists } from './qos.ts';
import { valueOf } from './quantity.ts';

/** How memory is protected and throttled on cgroup v2: gate MemoryQoS, KEP-2570. */
export interface MemoryQos {
  /** `memoryReservationPolicy`: whether what is requested is protected from reclaim. */
  readonly policy: 'None' | 'TieredReservation';
  /** `memoryThrottlingFactor`: from which part of the way between request and limit on allocations are slowed; null: never. */
  readonly throttlingFactor: number | null;
  readonly pageBytes: number;
  /** What stands in for the limit of a container without one. */
  readonly allocatableBytes: bigint;
}

const unprotected: MemoryQos = { policy: 'None', throttlingFactor: null, pageBytes: 4096, allocatableBytes: 0n };

/** The files of a pod's cgroup. */
export function podMemoryQos(pod: PodResources, qos: MemoryQos): Record<string, string> {
  const request = memoryOf(podRequests(pod));
  const files: Record<string, string> = {};
  if (qos.policy === 'TieredReservation' && request > 0n) files[qosClassOfStatus(pod) === 'Guaranteed' ? 'memory.min' : 'memory.low'] = String(request);
  const limit = memoryOf(podLimits(pod));
  // Else its containers are throttled one by one.
  if (qos.throttlingFactor === null || !hasPodLevelResources(pod) || !everyContainerLimits(pod, 'memory') || limit === 0n || limit === request) return files;
  const high = throttleAt(request, limit, qos.throttlingFactor, qos.pageBytes);
  return high === null ? files : { ...files, 'memory.high': String(high) };
}

/** The files of a container's cgroup; `qos` null: the gate is off, and what an earlier kubelet set is taken back. `claimed`: bytes that come by claims. */
export function containerMemoryQos(
  pod: PodResources,
  resources: ResourceLists | undefined,
  qos: MemoryQos | null = unprotected,
  claimed = 0n,
): Record<string, string> {
  if (qos === null) return { 'memory.high': 'max' };
  const request = valueOf(resources?.requests?.['memory']);
  const limit = valueOf(resources?.limits?.['memory']);
  const isProtected = request > 0n && qos.policy === 'TieredReservation';
  const files: Record<string, string> = isProtected
    ? { [qosClassOfStatus(pod) === 'Guaranteed' ? 'memory.min' : 'memory.low']: String(request) }
    : { 'memory.min': '0', 'memory.low': '0' };
  // The pod's own memory.high holds for what is below it.
  const ofPod = limit === 0n && hasPodLevelResources(pod) && valueOf(pod.spec?.resources?.limits?.['memory']) > 0n;
  if (qos.throttlingFactor === null || ofPod || (request === limit && request !== 0n)) return files;
  const most = limit === 0n ? qos.allocatableBytes : limit + claimed;
  const high = most === 0n ? null : throttleAt(request, most, qos.throttlingFactor, qos.pageBytes);
  return high === null ? files : { ...files, 'memory.high': String(high) };
}

/** What the pods that run request of memory: that of Guaranteed ones is protected hard, that of Burstable ones softly. */
export interface ProtectedMemory {
  readonly minBytes: bigint;
  readonly lowBytes: bigint;
}

/** The files of the cgroups of all pods and of the Burstable ones; only TieredReservation changes them. */
export function classMemoryQos({ minBytes, lowBytes }: ProtectedMemory): { readonly all: Record<string, string>; readonly burstable: Record<string, string> } {
  const burstable = { 'memory.low': String(lowBytes) };
  return { all: { 'memory.min': String(minBytes + lowBytes), ...burstable }, burstable };
}

/** Whole pages; null where it would not be above what is requested. */
function throttleAt(request: bigint, most: bigint, factor: number, pageBytes: number): bigint | null {
  const high = BigInt(Math.floor((Number(request) + Number(most - request) * factor) / pageBytes)) * BigInt(pageBytes);
  return high > request ? high : null;
}
