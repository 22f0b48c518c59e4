import type { NodeAllocatableResourceClaimStatus } from '../../proto/kube/types.ts';
import { claimedByPod, claimedMemoryShare } from './dra/node-allocatable.ts';
import { addQuantities, compareQuantities, maxQuantity, milliValueOf, parseQuantity, quantityOf, valueOf } from './quantity.ts';
import type { Quantity, QuantityText } from './quantity.ts';

export type QosClass = 'Guaranteed' | 'Burstable' | 'BestEffort';

/** Only what is read here, so that any Pod fits. */
export interface ResourceLists {
  requests?: Readonly<Record<string, QuantityText>>;
  limits?: Readonly<Record<string, QuantityText>>;
}

interface ContainerResources {
  name?: string;
  resources?: ResourceLists;
  restartPolicy?: string;
}

export interface PodResources {
  spec?: {
    containers?: readonly ContainerResources[];
    initContainers?: readonly ContainerResources[];
    resources?: ResourceLists;
    overhead?: Readonly<Record<string, QuantityText>>;
    priority?: number;
    priorityClassName?: string;
  };
  status?: { qosClass?: string; nodeAllocatableResourceClaimStatuses?: readonly NodeAllocatableResourceClaimStatus[] };
}

/** resource name → amount. */
export type Amounts = Map<string, Quantity>;

const qosResources = new Set(['cpu', 'memory']);
const podLevelResources = /^(cpu|memory|hugepages-.+)$/;

/**
 * The QoS class by the rules of the Kubernetes documentation: Guaranteed when every container limits CPU and memory
 * and requests equal limits; BestEffort when nothing is asked; Burstable otherwise. Pod-level resources decide alone when set.
 */
export function qosClassOf(pod: PodResources): QosClass {
  const requests: Amounts = new Map();
  const limits: Amounts = new Map();
  let allLimited = true;
  const count = (lists: ResourceLists | undefined): void => {
    addPositive(requests, lists?.requests);
    const limited = addPositive(limits, lists?.limits);
    if (limited < qosResources.size) allLimited = false;
  };
  if (hasPodLevelResources(pod)) count(pod.spec?.resources);
  else for (const container of [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])]) count(container.resources);
  if (requests.size === 0 && limits.size === 0) return 'BestEffort';
  const equal =
    requests.size === limits.size &&
    [...requests].every(([name, amount]) => {
      const limit = limits.get(name);
      return limit !== undefined && compareQuantities(limit, amount) === 0;
    });
  return allLimited && equal ? 'Guaranteed' : 'Burstable';
}

/** The class the API server recorded, else the computed one: a resize never changes the class of a living pod. */
export function qosClassOfStatus(pod: PodResources): QosClass {
  const recorded = pod.status?.qosClass;
  return recorded === 'Guaranteed' || recorded === 'Burstable' || recorded === 'BestEffort' ? recorded : qosClassOf(pod);
}

/** What the pod asks for as a whole: containers, sidecars, the largest init step, overhead. */
export function podRequests(pod: PodResources): Amounts {
  return podTotals(pod, (lists) => lists?.requests);
}

/** What the pod is limited to as a whole. A resource is only meaningful here when every container limits it. */
export function podLimits(pod: PodResources): Amounts {
  return podTotals(pod, (lists) => lists?.limits);
}

/** Whether every container, init containers included, limits this resource (or the pod does so itself). */
export function everyContainerLimits(pod: PodResources, resource: string): boolean {
  const own = pod.spec?.resources?.limits?.[resource];
  if (own !== undefined) return valueOf(own) > 0n;
  return [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? [])].every((container) => {
    const limit = container.resources?.limits?.[resource];
    return limit !== undefined && parseQuantity(limit).nano > 0n;
  });
}

/**
 * oom_score_adj of a container: -997 for Guaranteed and node-critical pods, 1000 for BestEffort, between 3 and 999 for
 * Burstable by the share of the node's memory that is requested. `memoryCapacity` in bytes.
 */
export function oomScoreAdj(pod: PodResources, container: ContainerResources, memoryCapacity: bigint): number {
  const nodeCritical = (pod.spec?.priority ?? 0) >= 2_000_001_000 || pod.spec?.priorityClassName === 'system-node-critical';
  if (nodeCritical) return -997;
  const qos = qosClassOfStatus(pod);
  if (qos === 'Guaranteed') return -997;
  if (qos === 'BestEffort') return 1000;
  const spare = hasPodLevelResources(pod) ? surplusShare(pod) : 0n;
  let score = scoreOf(memoryRequestOf(pod, container) + spare, memoryCapacity);
  if (isSidecar(pod, container)) score = smaller(score, scoreOf(leastRegularRequest(pod) + spare, memoryCapacity));
  if (score < 3n) return 3;
  return score >= 1000n ? 999 : Number(score);
}

function memoryRequestOf(pod: PodResources, container: ContainerResources): bigint {
  const claims = pod.status?.nodeAllocatableResourceClaimStatuses ?? [];
  return valueOf(container.resources?.requests?.['memory']) + (claims.length === 0 ? 0n : claimedMemoryShare(claims, container.name ?? ''));
}

function scoreOf(request: bigint, memoryCapacity: bigint): bigint {
  return memoryCapacity > 0n ? 1000n - (1000n * request) / memoryCapacity : 999n;
}

function smaller(left: bigint, right: bigint): bigint {
  return left < right ? left : right;
}

export function hasPodLevelResources(pod: PodResources): boolean {
  const lists = pod.spec?.resources;
  return [...Object.keys(lists?.requests ?? {}), ...Object.keys(lists?.limits ?? {})].some((name) => podLevelResources.test(name));
}

/** Pod-level memory that no container asked for, shared evenly, init containers among them. */
function surplusShare(pod: PodResources): bigint {
  const whole = valueOf(pod.spec?.resources?.requests?.['memory']);
  const asked = memoryOf(ofContainers(pod, (lists) => lists?.requests));
  const count = BigInt((pod.spec?.containers ?? []).length + (pod.spec?.initContainers ?? []).length);
  return count === 0n || whole <= asked ? 0n : (whole - asked) / count;
}

function isSidecar(pod: PodResources, container: ContainerResources): boolean {
  return container.restartPolicy === 'Always' && (pod.spec?.initContainers ?? []).includes(container);
}

/** A sidecar must not be killed before the containers it serves: its score is at most that of the least asking one. */
function leastRegularRequest(pod: PodResources): bigint {
  const requests = (pod.spec?.containers ?? []).map((container) => memoryRequestOf(pod, container));
  return requests.length === 0 ? 0n : requests.reduce(smaller);
}

type Pick = (lists: ResourceLists | undefined) => Readonly<Record<string, QuantityText>> | undefined;

const isOfLimits = (pick: Pick): boolean => pick({ limits: {} }) !== undefined;

function podTotals(pod: PodResources, pick: Pick): Amounts {
  const totals = ofContainers(pod, pick);
  if (hasPodLevelResources(pod)) {
    for (const [name, text] of Object.entries(pick(pod.spec?.resources) ?? {})) if (podLevelResources.test(name)) totals.set(name, parseQuantity(text));
  }
  // Overhead counts for limits only where there is a limit at all.
  for (const [name, text] of Object.entries(pod.spec?.overhead ?? {})) {
    if (!isOfLimits(pick) || (totals.get(name)?.nano ?? 0n) > 0n) totals.set(name, addQuantities(totals.get(name) ?? quantityOf(0), parseQuantity(text)));
  }
  return totals;
}

/** The containers together, with what comes to the pod by its claims. */
function ofContainers(pod: PodResources, pick: Pick): Amounts {
  const totals: Amounts = new Map();
  for (const container of pod.spec?.containers ?? []) addAll(totals, pick(container.resources));
  const sidecars: Amounts = new Map();
  const initPeak: Amounts = new Map();
  for (const container of pod.spec?.initContainers ?? []) {
    const own = pick(container.resources);
    if (container.restartPolicy === 'Always') {
      addAll(totals, own);
      addAll(sidecars, own);
      raise(initPeak, sidecars);
      continue;
    }
    const step: Amounts = new Map(sidecars);
    addAll(step, own);
    raise(initPeak, step);
  }
  raise(totals, initPeak);
  for (const [name, amount] of claimedByPod(pod.status?.nodeAllocatableResourceClaimStatuses ?? [])) {
    // What is not limited stays so, but for huge pages, of which nothing is what is not limited.
    if (isOfLimits(pick) && !totals.has(name) && !name.startsWith('hugepages-')) continue;
    totals.set(name, addQuantities(totals.get(name) ?? quantityOf(0), amount));
  }
  return totals;
}

function addAll(into: Amounts, list: Readonly<Record<string, QuantityText>> | undefined): void {
  for (const [name, text] of Object.entries(list ?? {})) into.set(name, addQuantities(into.get(name) ?? quantityOf(0), parseQuantity(text)));
}

function raise(into: Amounts, other: Amounts): void {
  for (const [name, amount] of other) {
    const present = into.get(name);
    into.set(name, present === undefined ? amount : maxQuantity(present, amount));
  }
}

/** Adds what is above zero of CPU and memory; answers how many of the two there were. */
function addPositive(into: Amounts, list: Readonly<Record<string, QuantityText>> | undefined): number {
  let found = 0;
  for (const [name, text] of Object.entries(list ?? {})) {
    const amount = parseQuantity(text);
    if (!qosResources.has(name) || amount.nano <= 0n) continue;
    into.set(name, addQuantities(into.get(name) ?? quantityOf(0), amount));
    found += 1;
  }
  return found;
}

/** CPU of a set of amounts in thousandths, rounded up. */
export function milliCpuOf(amounts: Amounts): bigint {
  const amount = amounts.get('cpu');
  return amount === undefined ? 0n : milliValueOf(`${amount.nano}n`);
}

/** Memory of a set of amounts in bytes, rounded up. */
export function memoryOf(amounts: Amounts): bigint {
  const amount = amounts.get('memory');
  return amount === undefined ? 0n : valueOf(`${amount.nano}n`);
}
