import type { Endpoint, ServicePort } from './model.ts';

/**
 * Which endpoints a Service port uses on this node: traffic policies, topology hints, and the fallback to
 * endpoints that are terminating but still serve (KEP-1669, KEP-2086, KEP-2433, KEP-4444).
 */

export interface Topology {
  nodeName: string;
  /** Value of topology.kubernetes.io/zone; empty when the node has none. */
  zone: string;
}

export interface Chosen {
  /** For traffic under policy Cluster; empty when the port never has such traffic. */
  cluster: readonly Endpoint[];
  /** For traffic under policy Local. */
  local: readonly Endpoint[];
  /** The union of both, ordered. */
  reachable: readonly Endpoint[];
  /** Whether the Service has a usable endpoint anywhere in the cluster. */
  anywhere: boolean;
}

/** Reachable by an address other than the cluster IP. */
export function isExternallyReachable(port: ServicePort): boolean {
  return port.nodePort !== 0 || port.loadBalancerIPs.length > 0 || port.externalIPs.length > 0;
}

function usesCluster(port: ServicePort): boolean {
  return !port.internalLocal || isExternallyReachable(port);
}

function usesLocal(port: ServicePort): boolean {
  return port.internalLocal || (port.externalLocal && isExternallyReachable(port));
}

/** Ready ones; without any, those that are terminating but serve. */
function usable(endpoints: readonly Endpoint[]): Endpoint[] {
  const ready = endpoints.filter((endpoint) => endpoint.ready);
  return ready.length > 0 ? ready : endpoints.filter((endpoint) => endpoint.serving && endpoint.terminating);
}

/**
 * Hints count only when every ready endpoint has one and at least one names us; node hints go before zone hints.
 */
function nearest(ready: readonly Endpoint[], topology: Topology): readonly Endpoint[] {
  if (ready.every((endpoint) => endpoint.nodes.length > 0)) {
    const here = ready.filter((endpoint) => endpoint.nodes.includes(topology.nodeName));
    if (here.length > 0) return here;
  }
  if (topology.zone !== '' && ready.every((endpoint) => endpoint.zones.length > 0)) {
    const here = ready.filter((endpoint) => endpoint.zones.includes(topology.zone));
    if (here.length > 0) return here;
  }
  return ready;
}

function union(all: readonly Endpoint[], one: readonly Endpoint[], two: readonly Endpoint[]): readonly Endpoint[] {
  if (two.length === 0) return one;
  if (one.length === 0) return two;
  const members = new Set([...one, ...two]);
  return all.filter((endpoint) => members.has(endpoint));
}

export function chooseEndpoints(endpoints: readonly Endpoint[], port: ServicePort, topology: Topology): Chosen {
  const everywhere = usable(endpoints);
  const anyReady = everywhere[0]?.ready === true;
  const cluster = usesCluster(port) ? (anyReady ? nearest(everywhere, topology) : everywhere) : [];
  const local = usesLocal(port) ? usable(endpoints.filter((endpoint) => endpoint.local)) : [];
  return { cluster, local, reachable: union(endpoints, cluster, local), anywhere: everywhere.length > 0 };
}
