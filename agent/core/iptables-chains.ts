/** The kubelet's own chains of iptables: a sign of which iptables the node uses, and a rule against packets to loopback addresses from outside. */

export const hintChain = 'KUBE-IPTABLES-HINT';
export const firewallChain = 'KUBE-FIREWALL';
/** Made in every table; whoever flushes a table takes it away, and that is noticed. */
export const canaryChain = 'KUBE-KUBELET-CANARY';
export const tables = ['mangle', 'nat', 'filter'] as const;

/** What `iptables -S CHAIN` of the filter table prints; null: there is no such chain. */
export interface FilterFacts {
  readonly input: string | null;
  readonly output: string | null;
  readonly firewall: string | null;
}

/** Let in by kube-proxy's route_localnet (kubernetes#90259); kube-proxy writes the same rule. */
const dropMartians =
  '-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP';

/** Input of `iptables-restore --noflush` that adds what is missing; a chain that is named there is emptied, so one with rules is named only when it is new. */
export function utilChains(family: 4 | 6, filter: FilterFacts): string {
  const canary = `:${canaryChain} - [0:0]`;
  const has = (printed: string | null, rule: string): boolean => (printed ?? '').split('\n').some((line) => line.trim() === rule);
  const lines = ['*mangle', `:${hintChain} - [0:0]`, canary, 'COMMIT', '*nat', canary, 'COMMIT', '*filter', canary];
  // IPv6 has no addresses of that kind but one, which no route leads to.
  if (family === 4) {
    if (filter.firewall === null) lines.push(`:${firewallChain} - [0:0]`);
    for (const [chain, printed] of [
      ['OUTPUT', filter.output],
      ['INPUT', filter.input],
    ] as const)
      if (!has(printed, `-A ${chain} -j ${firewallChain}`)) lines.push(`-I ${chain} 1 -j ${firewallChain}`);
    if (!has(filter.firewall, dropMartians)) lines.push(dropMartians);
  }
  return [...lines, 'COMMIT', ''].join('\n');
}
