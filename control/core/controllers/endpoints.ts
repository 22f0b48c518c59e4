import type { EndpointAddress, EndpointPort, Endpoints, EndpointSubset, Pod, Service } from '../../../proto/kube/types.ts';
import { TRIGGER_TIME } from './endpointslice.ts';
import { canonicalJson, semanticEqual } from './equal.ts';
import { isPodReady } from './pods.ts';
import { belongsInEndpoints, familiesOf, hostnameIn, isHeadless, podAddresses, targetPort } from './service-ports.ts';

const MAX_ADDRESSES = 1000;
const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';
const HEADLESS_LABEL = 'service.kubernetes.io/headless';
const MANAGED_BY_LABEL = 'endpoints.kubernetes.io/managed-by';

interface Entry {
  address: EndpointAddress;
  ready: boolean;
}

/** The Endpoints object of a Service as it should be, or undefined when the present one says the same. */
export function planEndpoints(service: Service, pods: readonly Pod[], current: Endpoints | undefined, trigger: string | undefined): Endpoints | undefined {
  const subsets = truncated(subsetsOf(service, pods));
  const labels = {
    ...Object.fromEntries(Object.entries(service.metadata.labels ?? {}).filter(([key]) => key !== HEADLESS_LABEL)),
    ...(isHeadless(service) ? { [HEADLESS_LABEL]: '' } : {}),
    [MANAGED_BY_LABEL]: 'endpoint-controller',
  };
  if (current !== undefined && semanticEqual(current.subsets, subsets.subsets) && semanticEqual(current.metadata.labels, labels)) return undefined;
  const { [TRIGGER_TIME]: _trigger, [OVER_CAPACITY]: _over, ...kept } = current?.metadata.annotations ?? {};
  const annotations = {
    ...kept,
    ...(trigger === undefined ? {} : { [TRIGGER_TIME]: trigger }),
    ...(subsets.truncated ? { [OVER_CAPACITY]: 'truncated' } : {}),
  };
  return {
    apiVersion: 'v1',
    kind: 'Endpoints',
    ...current,
    metadata: { name: service.metadata.name, namespace: service.metadata.namespace, ...current?.metadata, labels, annotations },
    subsets: subsets.subsets,
  };
}

function subsetsOf(service: Service, pods: readonly Pod[]): EndpointSubset[] {
  const family = familiesOf(service)[0] ?? 'IPv4';
  const byPort = new Map<string, { port: EndpointPort | undefined; entries: Map<string, Entry> }>();
  for (const pod of pods) {
    if (!belongsInEndpoints(pod, service.spec.publishNotReadyAddresses === true)) continue;
    const ip = podAddresses(pod, family)[0];
    if (ip === undefined) continue;
    const entry: Entry = { address: addressOf(pod, service, ip), ready: service.spec.publishNotReadyAddresses === true || isPodReady(pod) };
    for (const port of portsOf(service, pod)) {
      const key = canonicalJson(port ?? null);
      const group = byPort.get(key) ?? { port, entries: new Map<string, Entry>() };
      byPort.set(key, group);
      group.entries.set(`${ip}/${pod.metadata.uid}`, entry);
    }
  }
  // Ports that lead to the same addresses share a subset.
  const byAddresses = new Map<string, { ports: EndpointPort[]; entries: Entry[] }>();
  for (const { port, entries } of byPort.values()) {
    const key = [...entries]
      .map(([name, entry]) => `${name}/${entry.ready}`)
      .toSorted()
      .join('|');
    const group = byAddresses.get(key) ?? { ports: [], entries: [...entries.values()] };
    byAddresses.set(key, group);
    if (port !== undefined) group.ports.push(port);
  }
  return [...byAddresses.values()].map(subsetOf).toSorted((a, b) => (canonicalJson(a.ports) < canonicalJson(b.ports) ? -1 : 1));
}

function subsetOf(group: { ports: EndpointPort[]; entries: Entry[] }): EndpointSubset {
  const sorted = group.entries.toSorted((a, b) => compareIps(a.address.ip, b.address.ip));
  const ready = sorted.filter((entry) => entry.ready).map((entry) => entry.address);
  const notReady = sorted.filter((entry) => !entry.ready).map((entry) => entry.address);
  const ports = group.ports.toSorted((a, b) => (canonicalJson(a) < canonicalJson(b) ? -1 : 1));
  return {
    ...(ready.length === 0 ? {} : { addresses: ready }),
    ...(notReady.length === 0 ? {} : { notReadyAddresses: notReady }),
    ...(ports.length === 0 ? {} : { ports }),
  };
}

function compareIps(a: string, b: string): number {
  return a === b ? 0 : a < b ? -1 : 1;
}

/** A headless Service needs no ports; then its addresses stand alone. */
function portsOf(service: Service, pod: Pod): (EndpointPort | undefined)[] {
  const ports = service.spec.ports ?? [];
  if (ports.length === 0) return service.spec.clusterIP === 'None' ? [undefined] : [];
  return ports.flatMap((port) => {
    const number = targetPort(pod, port);
    if (number === undefined) return [];
    return [
      {
        ...(port.name ? { name: port.name } : {}),
        port: number,
        protocol: port.protocol ?? 'TCP',
        ...(port.appProtocol === undefined ? {} : { appProtocol: port.appProtocol }),
      },
    ];
  });
}

function addressOf(pod: Pod, service: Service, ip: string): EndpointAddress {
  const hostname = hostnameIn(pod, service);
  return {
    ip,
    ...(hostname === undefined ? {} : { hostname }),
    ...(pod.spec.nodeName ? { nodeName: pod.spec.nodeName } : {}),
    targetRef: { kind: 'Pod', namespace: pod.metadata.namespace, name: pod.metadata.name, uid: pod.metadata.uid },
  };
}

/** The object holds at most 1000 addresses; ready ones come first. */
function truncated(subsets: EndpointSubset[]): { subsets: EndpointSubset[]; truncated: boolean } {
  const total = subsets.reduce((sum, subset) => sum + (subset.addresses?.length ?? 0) + (subset.notReadyAddresses?.length ?? 0), 0);
  if (total <= MAX_ADDRESSES) return { subsets, truncated: false };
  let room = MAX_ADDRESSES;
  const take = (addresses: EndpointAddress[] | undefined): EndpointAddress[] | undefined => {
    const kept = addresses?.slice(0, room);
    room -= kept?.length ?? 0;
    return kept === undefined || kept.length === 0 ? undefined : kept;
  };
  const ready = subsets.map((subset) => take(subset.addresses));
  const shortened = subsets.map(({ ports, notReadyAddresses }, index) => ({ ports, addresses: ready[index], notReadyAddresses: take(notReadyAddresses) }));
  return { subsets: shortened.filter((subset) => subset.addresses !== undefined || subset.notReadyAddresses !== undefined), truncated: true };
}
