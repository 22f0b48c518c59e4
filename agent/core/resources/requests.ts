import type { Container, Pod } from '../../../proto/kube/types.ts';
import { hasPodLevelResources, qosClassOfStatus } from '../qos.ts';
import { parseQuantity, valueOf } from '../quantity.ts';
import type { QuantityText } from '../quantity.ts';

/** Init containers, then the others: the order in which resources are given. */
export function containersOf(pod: Pod): readonly Container[] {
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
}

export function isSidecar(container: Container): boolean {
  return container.restartPolicy === 'Always';
}

/** An init container that ends before the next one starts: what it was given is free for those after it. */
export function isRegularInit(pod: Pod, name: string): boolean {
  return (pod.spec.initContainers ?? []).some((each) => each.name === name && !isSidecar(each));
}

/** Whether the pod as a whole owns CPUs and memory (KEP-5526). `ofPods`: the gate `PodLevelResourceManagers`. */
export function isManagedAsPod(pod: Pod, ofPods: boolean): boolean {
  return ofPods && hasPodLevelResources(pod);
}

/**
 * Whether the container gets CPUs and memory of its own at all. Beside pod-level resources none does (KEP-2837), but
 * where pods own theirs those do that would be Guaranteed alone.
 */
function isExclusive(pod: Pod, container: Container, ofPods: boolean): boolean {
  if (qosClassOfStatus(pod) !== 'Guaranteed') return false;
  return !hasPodLevelResources(pod) || (ofPods && isGuaranteed(container));
}

function isGuaranteed({ resources }: Container): boolean {
  return ['cpu', 'memory'].every((name) => {
    const request = parseQuantity(resources?.requests?.[name] ?? '0');
    return request.nano > 0n && request.nano === parseQuantity(resources?.limits?.[name] ?? '0').nano;
  });
}

const nanoPerUnit = 1_000_000_000n;

function wholeCpus(text: QuantityText | undefined): number {
  if (text === undefined) return 0;
  const { nano } = parseQuantity(text);
  return nano % nanoPerUnit === 0n ? Number(nano / nanoPerUnit) : 0;
}

/** Whole CPUs that the container is to have for itself; 0: it runs in the shared pool. */
export function exclusiveCpus(pod: Pod, container: Container, ofPods = false): number {
  return isExclusive(pod, container, ofPods) ? wholeCpus(container.resources?.requests?.['cpu']) : 0;
}

/** Whole CPUs of the pod: its own, or at its peak: sidecars and the largest init step, or sidecars and all containers. */
export function exclusivePodCpus(pod: Pod, ofPods = false): number {
  if (!isManagedAsPod(pod, ofPods)) return peakOf(pod, (container) => exclusiveCpus(pod, container));
  return qosClassOfStatus(pod) === 'Guaranteed' ? wholeCpus(pod.spec.resources?.requests?.['cpu']) : 0;
}

const isMemory = (name: string): boolean => name === 'memory' || name.startsWith('hugepages-');

/** Memory and huge pages, in bytes, that the container is to have from certain NUMA nodes; none of other classes. */
export function pinnedMemory(pod: Pod, container: Container, ofPods = false): ReadonlyMap<string, number> {
  if (!isExclusive(pod, container, ofPods)) return new Map();
  return new Map(
    Object.entries(container.resources?.requests ?? {})
      .filter(([name]) => isMemory(name))
      .map(([name, text]) => [name, Number(valueOf(text))]),
  );
}

/** The same for the pod: its own, or at its peak. */
export function pinnedPodMemory(pod: Pod, ofPods = false): ReadonlyMap<string, number> {
  if (isManagedAsPod(pod, ofPods)) {
    if (qosClassOfStatus(pod) !== 'Guaranteed') return new Map();
    const own = Object.entries(pod.spec.resources?.requests ?? {}).filter(([name]) => isMemory(name));
    return new Map(own.map(([name, text]): [string, number] => [name, Number(valueOf(text))]).filter(([, bytes]) => bytes > 0));
  }
  const names = new Set(pod.spec.containers.flatMap((container) => [...pinnedMemory(pod, container).keys()]));
  return new Map([...names].map((name) => [name, peakOf(pod, (container) => pinnedMemory(pod, container).get(name) ?? 0)]));
}

/** What device plugins may be asked for: extended resources, without those that a claim of the pod stands in for (DRAExtendedResource). */
export function pluginLimits(pod: Pod, container: Container): ReadonlyMap<string, number> {
  const mapped = (pod.status?.extendedResourceClaimStatus?.requestMappings ?? []).filter((each) => each.containerName === container.name);
  const claimed = new Set(mapped.map((each) => each.resourceName));
  return new Map([...extendedLimits(container)].filter(([name]) => !claimed.has(name)));
}

/** Limits of resources with a vendor's name, which a device plugin may serve. */
export function extendedLimits(container: Container): ReadonlyMap<string, number> {
  return new Map(
    Object.entries(container.resources?.limits ?? {})
      .filter(([name]) => isExtendedResource(name))
      .map(([name, text]) => [name, Number(valueOf(text))]),
  );
}

export function extendedPodLimits(pod: Pod): ReadonlyMap<string, number> {
  const names = new Set(containersOf(pod).flatMap((container) => [...extendedLimits(container).keys()]));
  return new Map([...names].map((name) => [name, peakOf(pod, (container) => extendedLimits(container).get(name) ?? 0)]));
}

function peakOf(pod: Pod, amountOf: (container: Container) => number): number {
  let sidecars = 0;
  let init = 0;
  for (const container of pod.spec.initContainers ?? []) {
    const amount = amountOf(container);
    if (isSidecar(container)) sidecars += amount;
    else init = Math.max(init, sidecars + amount);
  }
  const running = pod.spec.containers.reduce((sum, container) => sum + amountOf(container), sidecars);
  return Math.max(init, running);
}

const label = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const domain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

/** `vendor.example/thing`, not Kubernetes' own, and no longer than a quota of it may be called. */
export function isExtendedResource(name: string): boolean {
  const slash = name.indexOf('/');
  if (slash < 0 || name.startsWith('requests.')) return false;
  const [prefix, rest] = [name.slice(0, slash), name.slice(slash + 1)];
  if (prefix === 'kubernetes.io' || prefix.endsWith('.kubernetes.io')) return false;
  return rest.length <= 63 && label.test(rest) && `requests.${prefix}`.length <= 253 && domain.test(prefix);
}
