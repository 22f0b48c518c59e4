import type { Pod, Container } from '../../proto/kube/types.ts';
import { isCritical } from './evict-storage.ts';
import type { MachineFacts } from './node-status.ts';
import { qosClassOfStatus } from './qos.ts';
import { valueOf } from './quantity.ts';

export interface SwapContext {
  readonly cgroupVersion: 1 | 2;
  readonly swapControllerAvailable: boolean;
  readonly memoryCapacityBytes: bigint;
  /** `memorySwap.swapBehavior`; left out: NoSwap. */
  readonly swap?: { readonly behavior: 'NoSwap' | 'LimitedSwap'; readonly capacityBytes: bigint };
}

/**
 * Bytes of swap a container may use (KEP-2400): of the node's swap the share that its memory request is of the node's memory.
 * Only Burstable pods get any, on cgroup v2, and of their containers those that request less memory than they are limited to.
 */
export function swapBytes(context: SwapContext, pod: Pod, container: Container): bigint {
  const { swap, cgroupVersion, memoryCapacityBytes } = context;
  if (swap?.behavior !== 'LimitedSwap' || cgroupVersion !== 2) return 0n;
  if (!maySwap(pod, container)) return 0n;
  const request = valueOf(container.resources?.requests?.['memory']);
  if (memoryCapacityBytes <= 0n || request > memoryCapacityBytes) return 0n;
  return BigInt(Math.trunc((Number(request) / Number(memoryCapacityBytes)) * Number(swap.capacityBytes)));
}

/** Whether a container would be given swap on a node that has some to give. */
export function maySwap(pod: Pod, container: Container): boolean {
  if (qosClassOfStatus(pod) !== 'Burstable' || isCritical(pod)) return false;
  return valueOf(container.resources?.requests?.['memory']) !== valueOf(container.resources?.limits?.['memory']);
}

/** Upstream's words to a node of which `mayReachSwap` is true. */
export const memoryVolumesWarning =
  'The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) might be swapped to disk and should no longer be considered secure.';

/** Whether what is in volumes in memory may be written to a swap device: kernels before 6.4, and user namespaces, know no tmpfs without. */
export function mayReachSwap({
  swapBytes: swap,
  kernelVersion,
  inUserNamespace = false,
}: Pick<MachineFacts, 'swapBytes' | 'kernelVersion' | 'inUserNamespace'>): boolean {
  const [major = 0, minor = 0] = kernelVersion.split('.').map((part) => Number.parseInt(part, 10));
  return swap > 0 && (inUserNamespace || !(major > 6 || (major === 6 && minor >= 4)));
}
