import { hostPort, ipOf, parseCidr, cidrText, type Family } from './ip.ts';
import type { PortId, Protocol } from './names.ts';

/**
 * What Services and EndpointSlices say, in one address family: ports with their addresses, and endpoints with
 * their conditions. Nothing is chosen here yet (`topology.ts` does that).
 */

/** The fields of a v1 Service that the proxy reads. */
export interface ServiceObject {
  metadata: { namespace?: string; name?: string; labels?: Record<string, string> };
  spec?: {
    type?: string;
    clusterIP?: string;
    clusterIPs?: string[];
    externalIPs?: string[];
    loadBalancerSourceRanges?: string[];
    externalTrafficPolicy?: string;
    internalTrafficPolicy?: string;
    healthCheckNodePort?: number;
    sessionAffinity?: string;
    sessionAffinityConfig?: { clientIP?: { timeoutSeconds?: number } };
    ports?: { name?: string; protocol?: string; port?: number; nodePort?: number }[];
  };
  status?: { loadBalancer?: { ingress?: { ip?: string; ipMode?: string }[] } };
}

/** The fields of a discovery.k8s.io/v1 EndpointSlice that the proxy reads. */
export interface EndpointSliceObject {
  metadata: { namespace?: string; name?: string; labels?: Record<string, string>; annotations?: Record<string, string> };
  addressType?: string;
  ports?: { name?: string | null; protocol?: string | null; port?: number | null }[] | null;
  endpoints?:
    | {
        addresses?: string[];
        nodeName?: string | null;
        conditions?: { ready?: boolean | null; serving?: boolean | null; terminating?: boolean | null };
        hints?: { forZones?: { name?: string }[]; forNodes?: { name?: string }[] } | null;
      }[]
    | null;
}

/** One port of one Service with the addresses of one family. */
export interface ServicePort {
  id: PortId;
  clusterIP: string;
  port: number;
  /** 0 when there is none. */
  nodePort: number;
  externalIPs: readonly string[];
  loadBalancerIPs: readonly string[];
  /** Empty means anybody. Canonical CIDRs. */
  sourceRanges: readonly string[];
  /** Seconds a client sticks to its endpoint; null without session affinity. */
  affinitySeconds: number | null;
  externalLocal: boolean;
  internalLocal: boolean;
}

export interface Endpoint {
  address: string;
  port: number;
  local: boolean;
  ready: boolean;
  serving: boolean;
  terminating: boolean;
  zones: readonly string[];
  nodes: readonly string[];
}

export const SERVICE_PROXY_NAME_LABEL = 'service.kubernetes.io/service-proxy-name';
export const HEADLESS_LABEL = 'service.kubernetes.io/headless';
export const SERVICE_NAME_LABEL = 'kubernetes.io/service-name';
/** metav1 default of ClientIPConfig.timeoutSeconds. */
const DEFAULT_AFFINITY_SECONDS = 10_800;

export function serviceKey(object: ServiceObject): string {
  return `${object.metadata.namespace ?? ''}/${object.metadata.name ?? ''}`;
}

/** The Service a slice belongs to, or null when it belongs to none or is of a headless one. */
export function sliceServiceKey(slice: EndpointSliceObject): string | null {
  const name = slice.metadata.labels?.[SERVICE_NAME_LABEL];
  if (name === undefined || name === '' || slice.metadata.labels?.[HEADLESS_LABEL] !== undefined) return null;
  return `${slice.metadata.namespace ?? ''}/${name}`;
}

function protocolOf(text: string | null | undefined): Protocol | null {
  const lower = (text ?? 'TCP').toLowerCase();
  return lower === 'tcp' || lower === 'udp' || lower === 'sctp' ? lower : null;
}

/** Headless, ExternalName and other proxies' Services get no rules. */
function isProxied(service: ServiceObject): boolean {
  const { clusterIP = '', type } = service.spec ?? {};
  return clusterIP !== '' && clusterIP !== 'None' && type !== 'ExternalName' && service.metadata.labels?.[SERVICE_PROXY_NAME_LABEL] === undefined;
}

/** Most lists are empty: they share one. */
const NONE: readonly string[] = [];

function ofFamily(addresses: readonly string[], family: Family): readonly string[] {
  if (addresses.length === 0) return NONE;
  return [...new Set(addresses.map((address) => ipOf(address, family)).filter((address) => address !== null))];
}

function clusterIpOf({ clusterIPs = [], clusterIP = '' }: NonNullable<ServiceObject['spec']>, family: Family): string | null {
  let found: string | null = null;
  clusterIPs.forEach((address) => (found ??= ipOf(address, family)));
  return found ?? ipOf(clusterIP, family);
}

/** Whether addresses other than the cluster IP may lead to it (the API's own rule for externalTrafficPolicy). */
function acceptsExternal(service: ServiceObject): boolean {
  const { type, externalIPs = [] } = service.spec ?? {};
  return type === 'LoadBalancer' || type === 'NodePort' || externalIPs.length > 0;
}

/** The ports of a Service in one family; empty when the proxy has nothing to do for it. */
export function servicePorts(service: ServiceObject, family: Family): ServicePort[] {
  const spec = service.spec;
  if (spec === undefined || !isProxied(service)) return [];
  const clusterIP = clusterIpOf(spec, family);
  if (clusterIP === null) return [];
  const externalIPs = ofFamily(spec.externalIPs ?? NONE, family);
  const ranges = (spec.loadBalancerSourceRanges ?? []).map((range) => parseCidr(range.trim())).filter((range) => range?.family === family);
  const anybody = ranges.some((range) => range?.prefix === 0);
  const ingress = (service.status?.loadBalancer?.ingress ?? []).filter((entry) => entry.ipMode === undefined || entry.ipMode === 'VIP');
  const loadBalancerIPs = ofFamily(
    ingress.map((entry) => entry.ip ?? ''),
    family,
  );
  const ports: ServicePort[] = [];
  spec.ports?.forEach((port) => {
    const protocol = protocolOf(port.protocol);
    if (protocol === null || port.port === undefined) return;
    ports.push({
      id: { namespace: service.metadata.namespace ?? '', name: service.metadata.name ?? '', port: port.name ?? '', protocol },
      clusterIP,
      port: port.port,
      nodePort: port.nodePort ?? 0,
      externalIPs,
      loadBalancerIPs,
      sourceRanges: anybody || ranges.length === 0 ? NONE : [...new Set(ranges.map((range) => cidrText(range!)))],
      affinitySeconds: spec.sessionAffinity === 'ClientIP' ? (spec.sessionAffinityConfig?.clientIP?.timeoutSeconds ?? DEFAULT_AFFINITY_SECONDS) : null,
      externalLocal: spec.externalTrafficPolicy === 'Local' && acceptsExternal(service),
      internalLocal: spec.internalTrafficPolicy === 'Local',
    });
  });
  return ports;
}

/** The port on which a load balancer asks this node about its local endpoints; 0 for none. */
export function healthCheckNodePort(service: ServiceObject): number {
  const spec = service.spec;
  if (spec === undefined || !isProxied(service)) return 0;
  return spec.type === 'LoadBalancer' && spec.externalTrafficPolicy === 'Local' ? (spec.healthCheckNodePort ?? 0) : 0;
}

/**
 * Endpoints of one Service by `protocol/port name`, ordered by `ip:port`. A slice port without a number adds
 * nothing. The same address in two slices counts once; one that is not terminating wins.
 */
export function endpointsByPort(slices: Iterable<EndpointSliceObject>, family: Family, nodeName: string): Map<string, Endpoint[]> {
  const wanted = family === 'ip' ? 'IPv4' : 'IPv6';
  const byPort = new Map<string, Map<string, Endpoint>>();
  // Nearly every slice has its endpoints in order, and sorting makes much garbage.
  const unordered = new Set<string>();
  for (const slice of slices) {
    if (slice.addressType !== wanted) continue;
    for (const port of slice.ports ?? []) {
      const protocol = protocolOf(port.protocol);
      if (protocol === null || port.port === undefined || port.port === null || port.port === 0) continue;
      const key = `${protocol}/${port.name ?? ''}`;
      let endpoints = byPort.get(key);
      if (endpoints === undefined) byPort.set(key, (endpoints = new Map()));
      const number = port.port;
      let last = '';
      if (endpoints.size > 0) unordered.add(key);
      slice.endpoints?.forEach((endpoint) => {
        const address = ipOf(endpoint.addresses?.[0] ?? '', family);
        if (address === null) return;
        const { conditions = {}, hints } = endpoint;
        const terminating = conditions.terminating === true;
        const name = hostPort(address, number);
        if (terminating && endpoints.has(name)) return;
        if (name < last) unordered.add(key);
        last = name;
        endpoints.set(name, {
          address,
          port: number,
          local: nodeName !== '' && endpoint.nodeName === nodeName,
          ready: conditions.ready !== false,
          serving: conditions.serving !== false,
          terminating,
          zones: hints?.forZones?.map((zone) => zone.name ?? '') ?? NONE,
          nodes: hints?.forNodes?.map((node) => node.name ?? '') ?? NONE,
        });
      });
    }
  }
  const sorted = new Map<string, Endpoint[]>();
  for (const [key, endpoints] of byPort) {
    const inOrder = (): Endpoint[] => [...endpoints.keys()].sort().map((name) => endpoints.get(name)!);
    sorted.set(key, unordered.has(key) ? inOrder() : [...endpoints.values()]);
  }
  return sorted;
}
