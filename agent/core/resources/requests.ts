import type { Container, Pod } from '../../../proto/kube/types.ts';
import { hasPodLevelResources, qosClassOfStatus } from '../qos.ts';
import { parseQuantity, valueOf } from '../quantity.ts';

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

/** Whether containers of the pod get CPUs and memory of their own at all (KEP-2837: not beside pod-level resources). */
function isExclusive(pod: Pod): boolean {
  return qosClassOfStatus(pod) === 'Guaranteed' && !hasPodLevelResources(pod);
}

const nanoPerUnit = 1_000_000_000n;

/** Whole CPUs that the container is to have for itself; 0: it runs in the shared pool. */
export function exclusiveCpus(pod: Pod, container: Container): number {
  const text = container.resources?.requests?.['cpu'];
  if (text === undefined || !isExclusive(pod)) return 0;
  const { nano } = parseQuantity(text);
  return nano % nanoPerUnit === 0n ? Number(nano / nanoPerUnit) : 0;
}

/** Whole CPUs of the pod at its peak: sidecars and the largest init step, or sidecars and all containers. */
export function exclusivePodCpus(pod: Pod): number {
  return peakOf(pod, (container) => exclusiveCpus(pod, container));
}

/** Memory and huge pages, in bytes, that the container is to have from certain NUMA nodes; none of other classes. */
export function pinnedMemory(pod: Pod, container: Container): ReadonlyMap<string, number> {
  if (!isExclusive(pod)) return new Map();
  return new Map(
    Object.entries(container.resources?.requests ?? {})
      .filter(([name]) => name === 'memory' || name.startsWith('hugepages-'))
      .map(([name, text]) => [name, Number(valueOf(text))]),
  );
}

/** The same for the pod at its peak. */
export function pinnedPodMemory(pod: Pod): ReadonlyMap<string, number> {
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
