import type { Pod, ResourceRequirements } from '../../../proto/kube/types.ts';
import { compareQuantities, formatQuantity, milliQuantityOf, milliValueOf, parseQuantity, quantityOf, valueOf } from '../quantity.ts';

/** What a resize may change of one container. CPU in thousandths, memory in bytes; 0 is "none". */
export interface Sizes {
  readonly cpuRequest: bigint;
  readonly cpuLimit: bigint;
  readonly memoryRequest: bigint;
  readonly memoryLimit: bigint;
}

/** A container's own limits, and the pod's for what it does not limit itself: KEP-2837. */
export function sizesOf(own: ResourceRequirements | undefined, ofPod?: ResourceRequirements | null): Sizes {
  const cpuLimit = milliValueOf(own?.limits?.['cpu']);
  const memoryLimit = valueOf(own?.limits?.['memory']);
  return {
    cpuRequest: milliValueOf(own?.requests?.['cpu']),
    cpuLimit: cpuLimit === 0n ? milliValueOf(ofPod?.limits?.['cpu']) : cpuLimit,
    memoryRequest: valueOf(own?.requests?.['memory']),
    memoryLimit: memoryLimit === 0n ? valueOf(ofPod?.limits?.['memory']) : memoryLimit,
  };
}

export function sameSizes(left: Sizes, right: Sizes): boolean {
  return (
    left.cpuRequest === right.cpuRequest &&
    left.cpuLimit === right.cpuLimit &&
    left.memoryRequest === right.memoryRequest &&
    left.memoryLimit === right.memoryLimit
  );
}

/** Sizes in the API's words, as they are kept on disk; what is none is left out. */
export function requirementsOf(sizes: Sizes): ResourceRequirements {
  const list = (milli: bigint, bytes: bigint): Record<string, string> => ({
    ...(milli === 0n ? {} : { cpu: formatQuantity(milliQuantityOf(milli)) }),
    ...(bytes === 0n ? {} : { memory: formatQuantity(quantityOf(bytes, 'BinarySI')) }),
  });
  const limits = list(sizes.cpuLimit, sizes.memoryLimit);
  const requests = list(sizes.cpuRequest, sizes.memoryRequest);
  return { ...(Object.keys(limits).length === 0 ? {} : { limits }), ...(Object.keys(requests).length === 0 ? {} : { requests }) };
}

/** Equal for Kubernetes: amounts by their value, nothing and an empty list alike. */
export function sameRequirements(left: ResourceRequirements | null | undefined, right: ResourceRequirements | null | undefined): boolean {
  if (left === right) return true;
  const claims = (each: ResourceRequirements | null | undefined): string => (each?.claims === undefined ? '[]' : JSON.stringify(each.claims));
  return sameList(left?.limits, right?.limits) && sameList(left?.requests, right?.requests) && claims(left) === claims(right);
}

function sameList(left: Record<string, string> | undefined, right: Record<string, string> | undefined): boolean {
  const names = Object.keys(left ?? {});
  if (names.length !== Object.keys(right ?? {}).length) return false;
  return names.every((name) => {
    const other = right?.[name];
    // Mostly it is the very same text, and of each pod this is asked for each pod that comes.
    return other === left![name] || (other !== undefined && compareQuantities(parseQuantity(left![name]!), parseQuantity(other)) === 0);
  });
}

/** Every container that can be resized: ephemeral ones cannot. */
export function resizable(pod: Pod): NonNullable<Pod['spec']['initContainers']> {
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
}
