import type { NodeAllocatableResourceClaimStatus } from '../../../proto/kube/types.ts';
import { addQuantities, parseQuantity, quantityOf, valueOf } from '../quantity.ts';
import type { Quantity } from '../quantity.ts';

/**
 * CPU, memory and huge pages that come to a pod by its claims (DRANodeAllocatableResources, KEP-5517): the scheduler
 * writes them into the pod's status for nodes that declare the feature.
 */
type Claims = readonly NodeAllocatableResourceClaimStatus[];
type Amounts = Map<string, Quantity>;

/** What the claims add to the pod as a whole: each once, and what each container costs as often as there are some. */
export function claimedByPod(claims: Claims): Amounts {
  const sum: Amounts = new Map();
  for (const { containers = [], mapping = [], overhead = [] } of claims) {
    for (const { name, quantity } of mapping) add(sum, name, quantity);
    for (const { name, perPod, perContainer } of overhead) {
      add(sum, name, perPod);
      for (const _ of containers) add(sum, name, perContainer);
    }
  }
  return sum;
}

/** What one container may use by the claims that it refers to: of each all of it. */
export function claimedByContainer(claims: Claims, container: string): Amounts {
  const sum: Amounts = new Map();
  for (const { containers = [], mapping = [], overhead = [] } of claims) {
    if (!containers.includes(container)) continue;
    for (const { name, quantity } of mapping) add(sum, name, quantity);
    for (const { name, perPod, perContainer } of overhead) {
      add(sum, name, perPod);
      add(sum, name, perContainer);
    }
  }
  return sum;
}

/** Bytes of memory that count as requested by one container: what several share in equal parts. */
export function claimedMemoryShare(claims: Claims, container: string): bigint {
  let bytes = 0n;
  for (const { containers = [], mapping = [], overhead = [] } of claims) {
    if (!containers.includes(container)) continue;
    const sharers = BigInt(containers.length);
    for (const { name, quantity } of mapping) if (name === 'memory') bytes += valueOf(quantity) / sharers;
    for (const { name, perPod, perContainer } of overhead) if (name === 'memory') bytes += valueOf(perPod) / sharers + valueOf(perContainer);
  }
  return bytes;
}

function add(sum: Amounts, name: string, amount: string | number | undefined): void {
  if (amount !== undefined) sum.set(name, addQuantities(sum.get(name) ?? quantityOf(0), parseQuantity(amount)));
}
