import { isLoopback } from './ip.ts';
import { comment, INVALID_COUNTER, MARK_CHAIN, type IptablesOptions, type SharedChain } from './iptables-service.ts';
import { markText } from './render-nft-text.ts';
import type { RuleSettings } from './settings.ts';

/** The fixed part of iptables mode: what is there before any Service. Names, hooks and comments are kube-proxy's. */

export const TABLES = ['mangle', 'filter', 'nat'] as const;
export type TableName = (typeof TABLES)[number];

/** Its loss says that somebody emptied the table. */
export const CANARY = 'KUBE-PROXY-CANARY';
/** Shared with the kubelet, which writes the same rule; never deleted. */
export const KUBELET_FIREWALL = 'KUBE-FIREWALL';

/** Chains of the fixed part that are the proxy's alone. */
export const OWN_CHAINS: Readonly<Record<TableName, readonly string[]>> = {
  mangle: [CANARY],
  filter: ['KUBE-SERVICES', 'KUBE-EXTERNAL-SERVICES', 'KUBE-FORWARD', 'KUBE-NODEPORTS', 'KUBE-PROXY-FIREWALL', CANARY],
  nat: ['KUBE-SERVICES', 'KUBE-NODEPORTS', 'KUBE-POSTROUTING', MARK_CHAIN, CANARY],
};

export function isServiceChain(name: string): boolean {
  return /^KUBE-(SVC|SVL|SEP|FW|EXT)-/.test(name);
}

/** A rule of a built-in chain that leads to one of ours. */
export interface Jump {
  table: TableName;
  from: string;
  to: string;
  onlyNew: boolean;
  comment: string;
}

function jump(table: TableName, from: string, to: string, onlyNew: boolean, said: string): Jump {
  return { table, from, to, onlyNew, comment: said };
}

/** Each is put before those that are there, in this order. */
export const JUMPS: readonly Jump[] = [
  jump('filter', 'INPUT', 'KUBE-EXTERNAL-SERVICES', true, 'kubernetes externally-visible service portals'),
  jump('filter', 'FORWARD', 'KUBE-EXTERNAL-SERVICES', true, 'kubernetes externally-visible service portals'),
  jump('filter', 'INPUT', 'KUBE-NODEPORTS', false, 'kubernetes health check service ports'),
  jump('filter', 'FORWARD', 'KUBE-SERVICES', true, 'kubernetes service portals'),
  jump('filter', 'OUTPUT', 'KUBE-SERVICES', true, 'kubernetes service portals'),
  jump('filter', 'FORWARD', 'KUBE-FORWARD', false, 'kubernetes forwarding rules'),
  jump('filter', 'INPUT', 'KUBE-PROXY-FIREWALL', true, 'kubernetes load balancer firewall'),
  jump('filter', 'OUTPUT', 'KUBE-PROXY-FIREWALL', true, 'kubernetes load balancer firewall'),
  jump('filter', 'FORWARD', 'KUBE-PROXY-FIREWALL', true, 'kubernetes load balancer firewall'),
  jump('nat', 'OUTPUT', 'KUBE-SERVICES', false, 'kubernetes service portals'),
  jump('nat', 'PREROUTING', 'KUBE-SERVICES', false, 'kubernetes service portals'),
  jump('nat', 'POSTROUTING', 'KUBE-POSTROUTING', false, 'kubernetes postrouting rules'),
  jump('filter', 'INPUT', KUBELET_FIREWALL, false, ''),
  jump('filter', 'OUTPUT', KUBELET_FIREWALL, false, ''),
];

export function jumpText(wanted: Jump): string {
  const parts = [wanted.onlyNew ? '-m conntrack --ctstate NEW' : '', wanted.comment === '' ? '' : comment(wanted.comment), `-j ${wanted.to}`];
  return parts.filter((part) => part !== '').join(' ');
}

/** Whether a line of `iptables-save` is that jump: versions of the tool differ in what else they print. */
export function isJump(line: string, wanted: Jump): boolean {
  return (
    line.startsWith(`-A ${wanted.from} `) &&
    line.trimEnd().endsWith(` -j ${wanted.to}`) &&
    / --(ct)?state NEW /.test(line) === wanted.onlyNew &&
    (wanted.comment === '' || line.includes(`"${wanted.comment}"`))
  );
}

/** Rules that do not come from Services: chains without a Service part, and the ends of shared chains. */
export interface FixedRules {
  chains: readonly { table: TableName; chain: string; rules: readonly string[] }[];
  tails: ReadonlyMap<SharedChain, readonly string[]>;
}

function toNodePorts(settings: RuleSettings, options: IptablesOptions): string[] {
  const last = comment('kubernetes service nodeports; NOTE: this must be the last rule in this chain');
  if (settings.nodePorts.kind === 'some') {
    const addresses = settings.nodePorts.addresses.filter((address) => !isLoopback(address) || (settings.family === 'ip' && options.localhostNodePorts));
    return addresses.map((address) => `${last} -d ${address} -j KUBE-NODEPORTS`);
  }
  const not = settings.family === 'ip6' ? ' ! -d ::1/128' : options.localhostNodePorts ? '' : ' ! -d 127.0.0.0/8';
  return [`${last} -m addrtype --dst-type LOCAL${not} -j KUBE-NODEPORTS`];
}

function forwarding(mark: string, options: IptablesOptions): string[] {
  const counted = options.counters ? ` -m nfacct --nfacct-name ${INVALID_COUNTER}` : '';
  return [
    ...(options.dropInvalid ? [`-m conntrack --ctstate INVALID${counted} -j DROP`] : []),
    `${comment('kubernetes forwarding rules')} -m mark --mark ${mark}/${mark} -j ACCEPT`,
    `${comment('kubernetes forwarding conntrack rule')} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
  ];
}

export function fixedRules(settings: RuleSettings, options: IptablesOptions): FixedRules {
  const mark = markText(settings.markBits);
  const chains: { table: TableName; chain: string; rules: readonly string[] }[] = [
    { table: 'mangle', chain: CANARY, rules: [] },
    { table: 'filter', chain: CANARY, rules: [] },
    { table: 'nat', chain: CANARY, rules: [] },
    { table: 'filter', chain: 'KUBE-FORWARD', rules: forwarding(mark, options) },
    {
      table: 'nat',
      chain: 'KUBE-POSTROUTING',
      rules: [
        `-m mark ! --mark ${mark}/${mark} -j RETURN`,
        `-j MARK --xor-mark ${mark}`,
        `${comment('kubernetes service traffic requiring SNAT')} -j MASQUERADE --random-fully`,
      ],
    },
    { table: 'nat', chain: MARK_CHAIN, rules: [`-j MARK --or-mark ${mark}`] },
  ];
  if (settings.family === 'ip' && options.localhostNodePorts) {
    // Node ports on 127.0.0.1 need route_localnet, and that would let neighbours in without this rule.
    const martians = '-d 127.0.0.0/8 ! -s 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP';
    chains.push({ table: 'filter', chain: KUBELET_FIREWALL, rules: [`${comment('block incoming localnet connections')} ${martians}`] });
  }
  return { chains, tails: new Map([['nat KUBE-SERVICES', toNodePorts(settings, options)]]) };
}
