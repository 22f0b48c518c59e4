import { OpError } from '../../base/errors.ts';
import type { ProxyConfig } from './config.ts';
import { parseCidr, type Family } from './ip.ts';

/** What a configuration that can be used does not say, though it had better; and whether it fits the machine. */

type Said = Pick<ProxyConfig, 'mode' | 'detectLocalMode' | 'clusterCIDRs' | 'nodePortAddresses'>;

const NAMES: Readonly<Record<Family, string>> = { ip: 'IPv4', ip6: 'IPv6' };

function isOf(family: Family, cidr: string): boolean {
  return parseCidr(cidr)?.family === family;
}

/** For the log at the start. @param families those that the machine has */
export function configWarnings({ mode, detectLocalMode, clusterCIDRs, nodePortAddresses }: Said, families: readonly Family[]): string[] {
  const warnings: string[] = [];
  if (detectLocalMode === 'ClusterCIDR' && clusterCIDRs.length === 0)
    warnings.push('Detect-local-mode set to ClusterCIDR, but no cluster CIDR is given: traffic from outside to a ClusterIP is not masqueraded');
  // In nftables mode it means the node's own addresses.
  if (mode === 'iptables' && nodePortAddresses.length === 0)
    warnings.push("No nodePortAddresses are given: node ports answer on every address of this node. --nodeport-addresses=primary leaves it at the node's own");
  const isLimited = (family: Family): boolean => nodePortAddresses.some((entry) => parseCidr(entry) === null || isOf(family, entry));
  for (const family of families)
    if (nodePortAddresses.length > 0 && !isLimited(family) && clusterCIDRs.some((cidr) => isOf(family, cidr)))
      warnings.push(`The nodePortAddresses have none of ${NAMES[family]}: there node ports answer on every address of this node`);
  return warnings;
}

/** Throws where the machine has one family and all cluster CIDRs are of the other, as upstream ends then. */
export function checkFamilies({ detectLocalMode, clusterCIDRs }: Said, families: readonly Family[]): void {
  const [only] = families;
  if (only === undefined || families.length > 1 || detectLocalMode !== 'ClusterCIDR') return;
  if (clusterCIDRs.length === 0 || clusterCIDRs.some((cidr) => isOf(only, cidr))) return;
  throw new OpError('invalid', 'start the proxy', `this machine has ${NAMES[only]} alone, and clusterCIDR ${clusterCIDRs.join(',')} has nothing of it`, {
    advice: 'Give a clusterCIDR of that family, or another detectLocalMode.',
  });
}
