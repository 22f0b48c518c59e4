import { portLabel, type PortId } from './names.ts';
import { endpointsByPort, healthCheckNodePort, servicePorts, type Endpoint, type EndpointSliceObject, type ServiceObject, type ServicePort } from './model.ts';
import { chooseEndpoints, isExternallyReachable, type Topology } from './topology.ts';
import type { Family } from './ip.ts';

/** What has to happen to packets, said without the words of any kernel table. Renderers follow. */

export interface Target {
  address: string;
  port: number;
}

/** Fate of a connection to a frontend once masquerading is decided. */
export type Verdict = 'cluster' | 'local' | 'reject' | 'drop';

export interface PortRules {
  id: PortId;
  /** `namespace/name:port`, for comments. */
  label: string;
  clusterIP: string;
  port: number;
  nodePort: number;
  /** Where a load balancer asks this node about its Service; 0 for nowhere. */
  healthCheckNodePort: number;
  externalIPs: readonly string[];
  loadBalancerIPs: readonly string[];
  /** Who may use the load-balancer addresses; empty means anybody. */
  sourceRanges: readonly string[];
  affinitySeconds: number | null;
  /** Fate of traffic to the cluster IP. */
  internal: Verdict;
  /** Fate of traffic from outside to node ports, external and load-balancer addresses; null when there are none. */
  external: Verdict | null;
  /**
   * Policy Local for external addresses: the client's address is kept, and pods and the node itself are sent to
   * the cluster's endpoints all the same.
   */
  externalLocal: boolean;
  cluster: readonly Target[];
  local: readonly Target[];
  /** Every target this node may send to. */
  reachable: readonly Target[];
  /** Targets on this node: a pod that reaches itself needs masquerading. */
  onNode: readonly Target[];
  /** All endpoints there are, usable here or not. */
  endpointCount: number;
}

const NOWHERE: readonly Target[] = [];

function targets(endpoints: readonly Endpoint[]): readonly Target[] {
  return endpoints.length === 0 ? NOWHERE : endpoints.map(({ address, port }) => ({ address, port }));
}

function rulesOf(port: ServicePort, endpoints: readonly Endpoint[], healthCheck: number, topology: Topology): PortRules {
  const chosen = chooseEndpoints(endpoints, port, topology);
  const fate = (local: boolean): Verdict => {
    if (!chosen.anywhere) return 'reject';
    if (!local) return 'cluster';
    return chosen.local.length > 0 ? 'local' : 'drop';
  };
  const cluster = targets(chosen.cluster);
  return {
    id: port.id,
    label: portLabel(port.id),
    clusterIP: port.clusterIP,
    port: port.port,
    nodePort: port.nodePort,
    healthCheckNodePort: healthCheck,
    externalIPs: port.externalIPs,
    loadBalancerIPs: port.loadBalancerIPs,
    sourceRanges: port.sourceRanges,
    affinitySeconds: port.affinitySeconds,
    internal: fate(port.internalLocal),
    external: isExternallyReachable(port) ? fate(port.externalLocal) : null,
    externalLocal: port.externalLocal,
    cluster,
    local: targets(chosen.local),
    reachable: chosen.reachable === chosen.cluster ? cluster : targets(chosen.reachable),
    onNode: targets(chosen.reachable.filter((endpoint) => endpoint.local)),
    endpointCount: endpoints.length,
  };
}

/** The rules of all ports of one Service in one family. */
export function serviceRules(service: ServiceObject, slices: Iterable<EndpointSliceObject>, family: Family, topology: Topology): PortRules[] {
  const ports = servicePorts(service, family);
  if (ports.length === 0) return [];
  const endpoints = endpointsByPort(slices, family, topology.nodeName);
  const healthCheck = healthCheckNodePort(service);
  return ports.map((port) => rulesOf(port, endpoints.get(`${port.id.protocol}/${port.id.port}`) ?? [], healthCheck, topology));
}
