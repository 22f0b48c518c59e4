import type { ProxyConfig } from './config.ts';

/** What a configuration that can be used does not say, though it had better; for the log at the start. */
export function configWarnings(config: Pick<ProxyConfig, 'mode' | 'detectLocalMode' | 'clusterCIDRs' | 'nodePortAddresses'>): string[] {
  const warnings: string[] = [];
  if (config.detectLocalMode === 'ClusterCIDR' && config.clusterCIDRs.length === 0)
    warnings.push('Detect-local-mode set to ClusterCIDR, but no cluster CIDR is given: traffic from outside to a ClusterIP is not masqueraded');
  // In nftables mode it means the node's own addresses.
  if (config.mode === 'iptables' && config.nodePortAddresses.length === 0)
    warnings.push("No nodePortAddresses are given: node ports answer on every address of this node. --nodeport-addresses=primary leaves it at the node's own");
  return warnings;
}
