import type { Container, Node, Pod } from '../../../proto/kube/types.ts';
import { milliValue, wholeValue } from './quantity.ts';

/** Amounts by resource name; cpu in thousandths, all else in whole units. */
export type Amounts = Readonly<Record<string, number>>;

/** What a container without requests counts for when nodes are scored, so that such pods spread too. */
const DEFAULT_CPU_MILLI = 100;
const DEFAULT_MEMORY_BYTES = 200 * 1024 * 1024;

export function amountsOf(list: Record<string, string | number> | undefined): Amounts {
  return Object.fromEntries(Object.entries(list ?? {}).map(([name, quantity]) => [name, name === 'cpu' ? milliValue(quantity) : wholeValue(quantity)]));
}

export function plus(a: Amounts, b: Amounts): Amounts {
  const sum: Record<string, number> = { ...a };
  for (const [name, amount] of Object.entries(b)) sum[name] = (sum[name] ?? 0) + amount;
  return sum;
}

export function minus(a: Amounts, b: Amounts): Amounts {
  const rest: Record<string, number> = { ...a };
  for (const [name, amount] of Object.entries(b)) rest[name] = (rest[name] ?? 0) - amount;
  return rest;
}

function largest(a: Amounts, b: Amounts): Amounts {
  const top: Record<string, number> = { ...a };
  for (const [name, amount] of Object.entries(b)) top[name] = Math.max(top[name] ?? 0, amount);
  return top;
}

const isSidecar = (container: Container): boolean => container.restartPolicy === 'Always';

function total(pod: Pod, requestsOf: (container: Container) => Amounts): Amounts {
  let sum: Amounts = {};
  for (const container of pod.spec.containers) sum = plus(sum, requestsOf(container));
  // Sidecars run beside everything that starts after them; other init containers run alone with the sidecars so far.
  let sidecars: Amounts = {};
  let peak: Amounts = {};
  for (const container of pod.spec.initContainers ?? []) {
    const requests = requestsOf(container);
    if (isSidecar(container)) sidecars = plus(sidecars, requests);
    peak = largest(peak, isSidecar(container) ? sidecars : plus(sidecars, requests));
  }
  const containers = largest(plus(sum, sidecars), peak);
  const podLevel = amountsOf(pod.spec.resources?.requests);
  return plus({ ...containers, ...podLevel }, amountsOf(pod.spec.overhead));
}

/** What a pod takes of a node. */
export function podRequests(pod: Pod): Amounts {
  return total(pod, (container) => amountsOf(container.resources?.requests));
}

/** As `podRequests`, with something assumed for containers that ask for nothing. */
export function scoringRequests(pod: Pod): Amounts {
  return total(pod, (container) => ({ cpu: DEFAULT_CPU_MILLI, memory: DEFAULT_MEMORY_BYTES, ...amountsOf(container.resources?.requests) }));
}

export function allocatable(node: Node): Amounts {
  return amountsOf(node.status?.allocatable ?? node.status?.capacity);
}

export interface ResourceShortage {
  reason: string;
  /** More than the node has in all: no pod that leaves would help. */
  hopeless: boolean;
}

/** What the node has too little of, in the words of upstream. */
export function shortages(requests: Amounts, taken: Amounts, podCount: number, capacity: Amounts): ResourceShortage[] {
  const found: ResourceShortage[] = [];
  if (podCount + 1 > (capacity.pods ?? 0)) found.push({ reason: 'Too many pods', hopeless: false });
  for (const [name, amount] of Object.entries(requests)) {
    if (name === 'pods' || amount === 0) continue;
    const has = capacity[name] ?? 0;
    if (amount > has - (taken[name] ?? 0)) found.push({ reason: `Insufficient ${name}`, hopeless: amount > has });
  }
  return found;
}
