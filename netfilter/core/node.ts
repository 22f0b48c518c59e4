import { canonicalIp, cidrContains, familyOf, isLoopback, parseCidr, type Family } from './ip.ts';
import type { LocalDetector, RuleSettings, NodePortAddresses } from './settings.ts';
import type { ProxyConfig } from './config.ts';
import type { Topology } from './topology.ts';

/** What the Node object and the machine's addresses mean for the rules. */

/** The fields of a v1 Node that the proxy reads. */
export interface NodeObject {
  metadata: { name?: string; labels?: Record<string, string>; deletionTimestamp?: string };
  spec?: { podCIDRs?: string[]; podCIDR?: string; taints?: { key?: string }[] };
  status?: { addresses?: { type?: string; address?: string }[] };
}

export const ZONE_LABEL = 'topology.kubernetes.io/zone';
/** The taint of an autoscaler on a node that it is about to remove. */
export const TO_BE_DELETED_TAINT = 'ToBeDeletedByClusterAutoscaler';

export function topologyOf(node: NodeObject | null, nodeName: string): Topology {
  return { nodeName, zone: node?.metadata.labels?.[ZONE_LABEL] ?? '' };
}

/** The node's first address of a family, internal before external ones; empty when it has none. */
export function nodeAddress(node: NodeObject | null, bindAddress: string, family: Family): string {
  const bound = canonicalIp(bindAddress);
  if (bound !== null && bound !== '0.0.0.0' && bound !== '::' && familyOf(bound) === family) return bound;
  const addresses = node?.status?.addresses ?? [];
  for (const type of ['InternalIP', 'ExternalIP']) {
    const found = addresses.find((address) => address.type === type && familyOf(address.address ?? '') === family);
    if (found !== undefined) return canonicalIp(found.address!)!;
  }
  return '';
}

function detectorOf(config: ProxyConfig, node: NodeObject | null, family: Family): LocalDetector {
  const podCIDRs = node?.spec?.podCIDRs ?? (node?.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]);
  switch (config.detectLocalMode) {
    case 'BridgeInterface':
      return { kind: 'bridge', name: config.bridgeInterface };
    case 'InterfaceNamePrefix':
      return { kind: 'prefix', name: config.interfaceNamePrefix };
    default: {
      const cidrs = config.detectLocalMode === 'NodeCIDR' ? podCIDRs : config.clusterCIDRs;
      const cidr = cidrs.find((candidate) => parseCidr(candidate)?.family === family);
      return cidr === undefined ? { kind: 'none' } : { kind: 'cidr', cidr };
    }
  }
}

/** Which addresses of the machine take node ports. Without a setting all do in iptables mode, only the node's primary one in nftables mode (KEP-3866). */
function nodePortsOf(config: ProxyConfig, node: NodeObject | null, machine: readonly string[], family: Family): NodePortAddresses {
  const entries = config.nodePortAddresses.length > 0 ? config.nodePortAddresses : config.mode === 'nftables' ? ['primary'] : ['all'];
  const ranges = entries.flatMap((entry) => {
    const primary = nodeAddress(node, config.bindAddress, family);
    if (entry === 'primary') return primary === '' || isLoopback(primary) ? [] : [`${primary}/${family === 'ip' ? 32 : 128}`];
    if (entry === 'localhost') return ['127.0.0.0/8', '::1/128'];
    return entry === 'all' ? ['0.0.0.0/0', '::/0'] : [entry];
  });
  const cidrs = ranges.map((range) => parseCidr(range)!).filter((range) => range.family === family);
  // Before the node is known, the list only seems to be empty.
  if (cidrs.length === 0 && node === null && entries.includes('primary')) return { kind: 'some', addresses: [] };
  if (cidrs.length === 0 || cidrs.some((cidr) => cidr.prefix === 0)) return { kind: 'all' };
  const matching = machine.filter((address) => familyOf(address) === family && cidrs.some((cidr) => cidrContains(cidr, address)));
  return { kind: 'some', addresses: [...new Set(matching)].sort() };
}

/** Whether node ports are to answer on this family's loopback addresses by listeners: where those are asked for by name, not with all others. */
export function listensOnLoopback(config: ProxyConfig, family: Family): boolean {
  if (!config.loopbackListeners) return false;
  return config.nodePortAddresses.some((entry) => {
    const cidr = parseCidr(entry);
    return entry === 'localhost' || (cidr !== null && cidr.family === family && isLoopback(cidr.address));
  });
}

/** Whether node ports are to answer on 127.0.0.0/8. */
export function wantsLocalhostNodePorts(config: ProxyConfig): boolean {
  if (!config.localhostNodePorts) return false;
  const words = config.nodePortAddresses;
  if (words.includes('all') || words.includes('localhost')) return true;
  const cidrs = words.map((word) => parseCidr(word)).filter((cidr) => cidr?.family === 'ip');
  if (cidrs.length === 0) return !words.includes('primary');
  return cidrs.some((cidr) => isLoopback(cidr!.address) || cidrContains(cidr!, '127.0.0.0'));
}

export function settingsFor(
  family: Family,
  facts: { config: ProxyConfig; node: NodeObject | null; machineAddresses: readonly string[]; serviceCIDRs: readonly string[] },
): RuleSettings {
  const { config, node } = facts;
  return {
    family,
    markBits: (1 << config.masqueradeBit) >>> 0,
    masqueradeAll: config.masqueradeAll,
    detector: detectorOf(config, node, family),
    nodePorts: nodePortsOf(config, node, facts.machineAddresses, family),
    ...(config.loopbackListeners
      ? { refusedOnLocalhost: listensOnLoopback(config, family) ? (['udp', 'sctp'] as const) : (['tcp', 'udp', 'sctp'] as const) }
      : {}),
    nodeIP: nodeAddress(node, config.bindAddress, family),
    serviceCIDRs: facts.serviceCIDRs.filter((cidr) => parseCidr(cidr)?.family === family),
  };
}
