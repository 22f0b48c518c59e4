import type { Pod } from '../../proto/kube/types.ts';
import type { PodUse } from './evict-rank.ts';
import { podLevelMemory } from './evict-rank.ts';
import { amountOf, resourceOf } from './evict-thresholds.ts';
import type { Observations, StarvedResource, Threshold } from './evict-thresholds.ts';
import { compareQuantities, formatQuantity, parseQuantity, quantityOf } from './quantity.ts';
import type { Quantity } from './quantity.ts';

export interface EvictionWords {
  readonly message: string;
  /** Of the Event, under upstream's keys. */
  readonly annotations: Readonly<Record<string, string>>;
}

/** Why a pod is evicted, in upstream's words, and what its Event carries. */
export function evictionWords(
  resource: StarvedResource,
  pod: Pod,
  use: PodUse | undefined,
  act: readonly Threshold[],
  observations: Observations,
): EvictionWords {
  let message = `The node was low on resource: ${resource}. `;
  const threshold = act.find(({ signal }) => resourceOf(signal) === resource && observations.has(signal));
  const observed = threshold === undefined ? undefined : observations.get(threshold.signal);
  if (threshold !== undefined && observed !== undefined) {
    const quantity = formatQuantity(amountOf(threshold.value, observed.capacity));
    message += `Threshold quantity: ${quantity}, available: ${formatQuantity(observed.available)}. `;
  }
  if (use === undefined) return { message, annotations: {} };
  const annotations: Record<string, string> = {};
  const more = (what: string, used: Quantity, request: string): void => {
    message += `${what} was using ${formatQuantity(used)}, request is ${request}, has larger consumption of ${resource}. `;
  };
  const podRequest = resource === 'memory' ? podLevelMemory(pod) : null;
  if (podRequest !== null && use.memoryBytes !== null) {
    const used = quantityOf(use.memoryBytes, 'BinarySI');
    more(`Pod ${pod.metadata.name ?? ''}`, used, formatQuantity(podRequest));
    annotations['offending_pod'] = pod.metadata.name ?? '';
    annotations['offending_pod_usage'] = formatQuantity(used);
  }
  const offending: [name: string, used: string][] = [];
  for (const container of use.containers) {
    const spec = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find(({ name }) => name === container.name);
    const used = usageOf(resource, container);
    if (spec === undefined || used === null) continue;
    const request = spec.resources?.requests?.[resource];
    const asked = request === undefined ? quantityOf(0) : parseQuantity(request);
    if (compareQuantities(used, asked) <= 0) continue;
    more(`Container ${container.name}`, used, formatQuantity(asked));
    offending.push([container.name, formatQuantity(used)]);
  }
  annotations['offending_containers'] = offending.map(([name]) => name).join(',');
  annotations['offending_containers_usage'] = offending.map(([, used]) => used).join(',');
  annotations['starved_resource'] = resource;
  return { message, annotations };
}

function usageOf(resource: StarvedResource, container: PodUse['containers'][number]): Quantity | null {
  if (resource === 'memory') return container.memoryBytes === null ? null : quantityOf(container.memoryBytes, 'BinarySI');
  if (resource !== 'ephemeral-storage' || container.rootfs === null || container.logs === null) return null;
  return quantityOf(container.rootfs.bytes + container.logs.bytes, 'BinarySI');
}
