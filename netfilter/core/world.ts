import { serviceKey, servicePorts, sliceServiceKey, endpointsByPort, type EndpointSliceObject, type ServiceObject } from './model.ts';
import { serviceRules, type PortRules, type Target } from './ruleset.ts';
import type { Family } from './ip.ts';
import type { Topology } from './topology.ts';

/** The Services and EndpointSlices as last heard from the API server. */
export interface World {
  services: Map<string, ServiceObject>;
  /** By Service key, then by slice name. */
  slices: Map<string, Map<string, EndpointSliceObject>>;
  /** Which Service a slice (`namespace/name`) is of, as it was last heard. */
  sliceService: Map<string, string>;
  /** Whether spec.externalIPs count. */
  readonly externalIPs: boolean;
}

export function emptyWorld({ externalIPs } = { externalIPs: true }): World {
  return { services: new Map(), slices: new Map(), sliceService: new Map(), externalIPs };
}

/** Puts in or takes out one Service; returns its key. */
export function applyService(world: World, service: ServiceObject, gone: boolean): string {
  const key = serviceKey(service);
  if (gone) world.services.delete(key);
  else
    world.services.set(
      key,
      world.externalIPs || service.spec?.externalIPs === undefined ? service : { ...service, spec: { ...service.spec, externalIPs: [] } },
    );
  return key;
}

/** Puts in or takes out one slice; returns the keys of the Services it concerns (two when its label changed). */
export function applySlice(world: World, slice: EndpointSliceObject, gone: boolean): string[] {
  const name = slice.metadata.name ?? '';
  const id = `${slice.metadata.namespace ?? ''}/${name}`;
  const before = world.sliceService.get(id);
  const after = gone ? null : sliceServiceKey(slice);
  const touched: string[] = [];
  if (before !== undefined && before !== after) {
    const slices = world.slices.get(before);
    slices?.delete(name);
    if (slices?.size === 0) world.slices.delete(before);
    world.sliceService.delete(id);
    touched.push(before);
  }
  if (after !== null) {
    const slices = world.slices.get(after) ?? new Map<string, EndpointSliceObject>();
    slices.set(name, slice);
    world.slices.set(after, slices);
    world.sliceService.set(id, after);
    touched.push(after);
  }
  return touched;
}

/** Takes a whole list of Services; returns the keys that may have changed. */
export function replaceServices(world: World, services: readonly ServiceObject[]): string[] {
  const touched = new Set(world.services.keys());
  world.services = new Map();
  for (const service of services) touched.add(applyService(world, service, false));
  return [...touched];
}

export function replaceSlices(world: World, slices: readonly EndpointSliceObject[]): string[] {
  const touched = new Set(world.slices.keys());
  world.slices = new Map();
  world.sliceService = new Map();
  for (const slice of slices) for (const key of applySlice(world, slice, false)) touched.add(key);
  return [...touched];
}

export function rulesFor(world: World, key: string, family: Family, topology: Topology): PortRules[] {
  const service = world.services.get(key);
  return service === undefined ? [] : serviceRules(service, world.slices.get(key)?.values() ?? [], family, topology);
}

/** A UDP port with the addresses that lead to it and the endpoints its flows may rest on. */
export interface UdpPort {
  addresses: readonly string[];
  port: number;
  nodePort: number;
  endpoints: ReadonlySet<string>;
}

export function udpPorts(world: World, family: Family): UdpPort[] {
  const ports: UdpPort[] = [];
  for (const [key, service] of world.services) {
    if (service.spec?.ports?.some((port) => port.protocol === 'UDP') !== true) continue;
    const endpoints = endpointsByPort(world.slices.get(key)?.values() ?? [], family, '');
    for (const port of servicePorts(service, family)) {
      if (port.id.protocol !== 'udp') continue;
      const serving = (endpoints.get(`udp/${port.id.port}`) ?? []).filter((endpoint) => endpoint.serving);
      ports.push({
        addresses: [port.clusterIP, ...port.externalIPs, ...port.loadBalancerIPs],
        port: port.port,
        nodePort: port.nodePort,
        endpoints: new Set(serving.map(({ address, port: number }) => `${address} ${number}`)),
      });
    }
  }
  return ports;
}

/** A TCP node port with the endpoints that a client on the node itself is sent to. */
export interface LoopbackPort {
  nodePort: number;
  endpoints: readonly Target[];
  /** Null without session affinity. */
  affinitySeconds: number | null;
}

/** The node ports that a family's listeners on loopback serve; without endpoints there is nothing to listen for. */
export function loopbackPorts(world: World, family: Family, topology: Topology): LoopbackPort[] {
  const ports: LoopbackPort[] = [];
  for (const [key, service] of world.services) {
    if (service.spec?.ports?.some((port) => (port.nodePort ?? 0) !== 0) !== true) continue;
    for (const { id, nodePort, externalLocal, local, cluster, affinitySeconds } of rulesFor(world, key, family, topology)) {
      const endpoints = externalLocal ? local : cluster;
      if (nodePort !== 0 && id.protocol === 'tcp' && endpoints.length > 0) ports.push({ nodePort, endpoints, affinitySeconds });
    }
  }
  return ports;
}

export interface HealthCheckPort {
  /** `namespace/name` of the Service. */
  key: string;
  port: number;
  localEndpoints: number;
}

/** How many ready endpoints of a Service are on this node, by their addresses. */
export function localEndpoints(world: World, key: string, nodeName: string, family: Family): number {
  const endpoints = [...endpointsByPort(world.slices.get(key)?.values() ?? [], family, nodeName).values()].flat();
  return new Set(endpoints.filter((endpoint) => endpoint.local && endpoint.ready).map((endpoint) => endpoint.address)).size;
}
