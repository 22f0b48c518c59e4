import type { Family } from './ip.ts';
import type { Protocol } from './names.ts';

/** What the node and the configuration mean for the rules. */

export type LocalDetector = { kind: 'none' } | { kind: 'cidr'; cidr: string } | { kind: 'bridge'; name: string } | { kind: 'prefix'; name: string };

export type NodePortAddresses = { kind: 'all' } | { kind: 'some'; addresses: readonly string[] };

/** What the rules depend on beside Services and EndpointSlices. One for each family, for either kind of table. */
export interface RuleSettings {
  family: Family;
  /** The packet-mark bits that ask for masquerading. */
  markBits: number;
  masqueradeAll: boolean;
  /** How traffic of this node's pods is told from other traffic. */
  detector: LocalDetector;
  nodePorts: NodePortAddresses;
  /** Protocols whose node ports are refused on loopback addresses; nftables mode only, absent where nothing is done about them. */
  refusedOnLocalhost?: readonly Protocol[];
  /** The node's primary address in this family; empty when unknown. */
  nodeIP: string;
  /** Ranges the API server takes cluster IPs from, where it says so (ServiceCIDR objects). */
  serviceCIDRs: readonly string[];
}
