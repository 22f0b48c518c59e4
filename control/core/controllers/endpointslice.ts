import type { DiscoveryEndpointPort, Endpoint, EndpointSlice, Node, Pod, Service } from '../../../proto/kube/types.ts';
import { canonicalJson, semanticEqual } from './equal.ts';
import { controllerRef } from './owners.ts';
import { isPodReady } from './pods.ts';
import { belongsInEndpoints, familiesOf, hostnameIn, isHeadless, podAddresses, targetPort } from './service-ports.ts';

export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
export const MANAGED_BY_LABEL = 'endpointslice.kubernetes.io/managed-by';
export const HEADLESS_LABEL = 'service.kubernetes.io/headless';
export const TRIGGER_TIME = 'endpoints.kubernetes.io/last-change-trigger-time';
export const SLICE_CONTROLLER = 'endpointslice-controller.k8s.io';
const MAX_ENDPOINTS = 100;

export interface SlicesObserved {
  service: Service;
  /** Those the Service selects. */
  pods: readonly Pod[];
  node(name: string): Node | undefined;
  /** Those this controller made for the Service. */
  slices: readonly EndpointSlice[];
  /** Value of the trigger-time annotation on what is written now. */
  trigger: string | undefined;
}

export interface SlicesPlan {
  create: EndpointSlice[];
  update: EndpointSlice[];
  remove: EndpointSlice[];
  /** A pod was left out because its node is not known yet. */
  incomplete: boolean;
}

type Family = 'IPv4' | 'IPv6';

/** The EndpointSlices of a Service: at most 100 endpoints each, one group of slices per set of ports, as few writes as will do. */
export function planSlices(observed: SlicesObserved): SlicesPlan {
  const plan: SlicesPlan = { create: [], update: [], remove: [], incomplete: false };
  const families = familiesOf(observed.service);
  for (const slice of observed.slices) if (!families.includes(slice.addressType as Family)) plan.remove.push(slice);
  for (const family of families) planFamily(observed, family, plan);
  return plan;
}

function planFamily(observed: SlicesObserved, family: Family, plan: SlicesPlan): void {
  const { service } = observed;
  const existing = observed.slices.filter((slice) => slice.addressType === family);
  const desired = desiredByPorts(observed, family, plan);
  const labels = sliceLabels(service);
  const create: EndpointSlice[] = [];
  const update: EndpointSlice[] = [];
  const remove: EndpointSlice[] = existing.filter((slice) => !isOwnedBy(slice, service));
  const mine = existing.filter((slice) => isOwnedBy(slice, service));
  for (const { ports, endpoints } of desired.values()) {
    planPorts(
      service,
      family,
      labels,
      ports,
      endpoints,
      mine.filter((slice) => portsKey(slice.ports) === portsKey(ports)),
      { create, update, remove },
    );
  }
  for (const slice of mine) if (!desired.has(portsKey(slice.ports))) remove.push(slice);
  // A Service without endpoints keeps one empty slice, so that its readers know it is meant.
  if (existing.length === remove.length && create.length === 0) {
    const kept = remove.length === 1 ? remove[0] : undefined;
    const isPlaceholder =
      kept !== undefined &&
      isOwnedBy(kept, service) &&
      (kept.endpoints ?? []).length === 0 &&
      (kept.ports ?? []).length === 0 &&
      semanticEqual(kept.metadata.labels, labels);
    if (isPlaceholder) remove.length = 0;
    else create.push(emptySlice(service, family, labels, []));
  }
  // What would be deleted is used again for what would be made.
  for (const slice of remove.filter((candidate) => isOwnedBy(candidate, service))) {
    const made = create.pop();
    if (made === undefined) break;
    remove.splice(remove.indexOf(slice), 1);
    update.push({ ...slice, metadata: { ...slice.metadata, labels: made.metadata.labels }, ports: made.ports, endpoints: made.endpoints });
  }
  plan.create.push(...(service.metadata.deletionTimestamp ? [] : create).map((slice) => withTrigger(slice, observed.trigger)));
  plan.update.push(...update.map((slice) => withTrigger(slice, observed.trigger)));
  plan.remove.push(...remove);
}

interface PortGroup {
  ports: DiscoveryEndpointPort[];
  endpoints: Map<string, Endpoint>;
}

function desiredByPorts(observed: SlicesObserved, family: Family, plan: SlicesPlan): Map<string, PortGroup> {
  const { service } = observed;
  const groups = new Map<string, PortGroup>();
  for (const pod of observed.pods) {
    if (!belongsInEndpoints(pod, true)) continue;
    const ports = endpointPorts(service, pod);
    const key = portsKey(ports);
    const group = groups.get(key) ?? { ports, endpoints: new Map() };
    groups.set(key, group);
    const node = observed.node(pod.spec.nodeName ?? '');
    if (node === undefined && service.spec.publishNotReadyAddresses !== true) {
      plan.incomplete = true;
      continue;
    }
    const endpoint = endpointOf(pod, node, service, family);
    if (endpoint.addresses.length > 0) group.endpoints.set(identity(endpoint), endpoint);
  }
  return groups;
}

/** First what stands in slices already, then the changed slices are filled up, then the fullest that still has room, then new ones. */
function planPorts(
  service: Service,
  family: Family,
  labels: Record<string, string>,
  ports: DiscoveryEndpointPort[],
  desired: Map<string, Endpoint>,
  existing: readonly EndpointSlice[],
  out: { create: EndpointSlice[]; update: EndpointSlice[]; remove: EndpointSlice[] },
): void {
  const left = new Map(desired);
  const changed: EndpointSlice[] = [];
  const unchanged: EndpointSlice[] = [];
  for (const slice of existing) {
    let differs = !semanticEqual(slice.metadata.labels, labels);
    const endpoints: Endpoint[] = [];
    for (const endpoint of slice.endpoints ?? []) {
      const wanted = left.get(identity(endpoint));
      if (wanted === undefined) {
        differs = true;
        continue;
      }
      left.delete(identity(endpoint));
      const kept = endpoint.hints === undefined ? wanted : { ...wanted, hints: endpoint.hints };
      if (!semanticEqual(kept, endpoint)) differs = true;
      endpoints.push(kept);
    }
    if (!differs) unchanged.push(slice);
    else if (endpoints.length === 0) out.remove.push(slice);
    else changed.push({ ...slice, metadata: { ...slice.metadata, labels }, endpoints });
  }
  if (left.size > 0) {
    // An emptied slice is as good as any to put new endpoints into; it is only deleted when nothing needs it.
    for (const slice of changed.toSorted((a, b) => count(b) - count(a))) fill(slice, left);
  }
  while (left.size > 0) {
    const size = Math.min(left.size, MAX_ENDPOINTS);
    const roomy = unchanged.filter((slice) => count(slice) + size <= MAX_ENDPOINTS && count(slice) > 0).toSorted((a, b) => count(b) - count(a))[0];
    const target =
      roomy === undefined || left.size > MAX_ENDPOINTS ? emptySlice(service, family, labels, ports) : { ...roomy, endpoints: [...(roomy.endpoints ?? [])] };
    fill(target, left);
    if (roomy !== undefined && target.metadata.name === roomy.metadata.name) {
      unchanged.splice(unchanged.indexOf(roomy), 1);
      changed.push(target);
    } else out.create.push(target);
  }
  out.update.push(...changed);
}

const count = (slice: EndpointSlice): number => slice.endpoints?.length ?? 0;

function fill(slice: EndpointSlice, left: Map<string, Endpoint>): void {
  const endpoints = slice.endpoints ?? [];
  for (const [key, endpoint] of left) {
    if (endpoints.length >= MAX_ENDPOINTS) break;
    endpoints.push(endpoint);
    left.delete(key);
  }
  slice.endpoints = endpoints;
}

function endpointPorts(service: Service, pod: Pod): DiscoveryEndpointPort[] {
  return (service.spec.ports ?? []).flatMap((port) => {
    const number = targetPort(pod, port);
    if (number === undefined) return [];
    return [
      { name: port.name ?? '', port: number, protocol: port.protocol ?? 'TCP', ...(port.appProtocol === undefined ? {} : { appProtocol: port.appProtocol }) },
    ];
  });
}

function endpointOf(pod: Pod, node: Node | undefined, service: Service, family: Family): Endpoint {
  const serving = isPodReady(pod);
  const terminating = Boolean(pod.metadata.deletionTimestamp);
  const zone = node?.metadata.labels?.['topology.kubernetes.io/zone'];
  const hostname = hostnameIn(pod, service);
  return {
    addresses: podAddresses(pod, family),
    conditions: { ready: service.spec.publishNotReadyAddresses === true || (serving && !terminating), serving, terminating },
    ...(hostname === undefined ? {} : { hostname }),
    ...(pod.spec.nodeName ? { nodeName: pod.spec.nodeName } : {}),
    targetRef: { kind: 'Pod', namespace: pod.metadata.namespace, name: pod.metadata.name, uid: pod.metadata.uid },
    ...(zone ? { zone } : {}),
  };
}

/** Two endpoints with the same identity are the same one at two times. */
function identity(endpoint: Endpoint): string {
  return canonicalJson([endpoint.addresses.toSorted(), endpoint.hostname ?? '', endpoint.targetRef?.namespace ?? '', endpoint.targetRef?.name ?? '']);
}

function portsKey(ports: readonly DiscoveryEndpointPort[] | undefined): string {
  return (ports ?? [])
    .map((port) => canonicalJson([port.name ?? '', port.protocol ?? 'TCP', port.port ?? 0, port.appProtocol ?? '']))
    .toSorted()
    .join('|');
}

function isOwnedBy(slice: EndpointSlice, service: Service): boolean {
  return slice.metadata.ownerReferences?.some((owner) => owner.uid === service.metadata.uid && owner.kind === 'Service') === true;
}

function sliceLabels(service: Service): Record<string, string> {
  const reserved = new Set([SERVICE_NAME_LABEL, MANAGED_BY_LABEL, HEADLESS_LABEL]);
  const labels = Object.fromEntries(Object.entries(service.metadata.labels ?? {}).filter(([key]) => !reserved.has(key)));
  return {
    ...labels,
    ...(isHeadless(service) ? { [HEADLESS_LABEL]: '' } : {}),
    [SERVICE_NAME_LABEL]: service.metadata.name ?? '',
    [MANAGED_BY_LABEL]: SLICE_CONTROLLER,
  };
}

function emptySlice(service: Service, family: Family, labels: Record<string, string>, ports: DiscoveryEndpointPort[]): EndpointSlice {
  const name = service.metadata.name ?? '';
  return {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: {
      generateName: `${name}-`,
      namespace: service.metadata.namespace,
      labels,
      ownerReferences: [controllerRef(service, 'v1', 'Service')],
    },
    addressType: family,
    ports,
    endpoints: [],
  };
}

function withTrigger(slice: EndpointSlice, trigger: string | undefined): EndpointSlice {
  const { [TRIGGER_TIME]: _old, ...annotations } = slice.metadata.annotations ?? {};
  return { ...slice, metadata: { ...slice.metadata, annotations: trigger === undefined ? annotations : { ...annotations, [TRIGGER_TIME]: trigger } } };
}
