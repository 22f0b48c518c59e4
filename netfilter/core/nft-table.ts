import { isLoopback, parseCidr, type Family } from './ip.ts';
import type { Protocol } from './names.ts';
import type { BaseChain, Element, Rule, SetSpec, Statement } from './ops.ts';
import type { LocalDetector, RuleSettings } from './settings.ts';

/** The fixed part of the table: what is there before any Service. Names and hooks are kube-proxy's. */

const SERVICE_KEY = ['address', 'protocol', 'port'] as const;
const NODE_PORT_KEY = ['protocol', 'port'] as const;

export const sets = {
  clusterIPs: { name: 'cluster-ips', key: ['address'], comment: 'Active ClusterIPs' },
  hairpin: { name: 'hairpin-connections', key: ['address', 'address', 'protocol', 'port'], comment: 'service hairpin connections' },
  nodePortIPs: { name: 'nodeport-ips', key: ['address'], comment: 'IPs that accept NodePort traffic' },
  noEndpointServices: {
    name: 'no-endpoint-services',
    key: SERVICE_KEY,
    verdicts: true,
    comment: 'vmap to drop or reject packets to services with no endpoints',
  },
  noEndpointNodePorts: {
    name: 'no-endpoint-nodeports',
    key: NODE_PORT_KEY,
    verdicts: true,
    comment: 'vmap to drop or reject packets to service nodeports with no endpoints',
  },
  firewallIPs: { name: 'firewall-ips', key: SERVICE_KEY, verdicts: true, comment: 'destinations that are subject to LoadBalancerSourceRanges' },
  serviceIPs: { name: 'service-ips', key: SERVICE_KEY, verdicts: true, comment: 'ClusterIP, ExternalIP and LoadBalancer IP traffic' },
  serviceNodePorts: { name: 'service-nodeports', key: NODE_PORT_KEY, verdicts: true, comment: 'NodePort traffic' },
  localhostRejects: { name: 'localhost-nodeport-reject-ports', key: NODE_PORT_KEY, verdicts: true, comment: 'localhost NodePorts rejected by kube-proxy' },
} satisfies Record<string, SetSpec>;

const ENDPOINT_MAP = 'service-endpoints';

/**
 * A map of numbers to endpoints, from which many chains draw. Not of kube-proxy's names: it has an anonymous map for
 * each chain. They are of one protocol each, because nft takes a map of ports in rules of one protocol alone.
 */
export function endpointMap(protocol: Protocol, number: number): SetSpec {
  return { name: `${ENDPOINT_MAP}-${protocol}-${number}`, key: ['random'], targets: protocol };
}

/** What `endpointMap` made this name of, or null. */
export function endpointMapOf(name: string): { protocol: Protocol; number: number } | null {
  const match = /^service-endpoints-(tcp|udp|sctp)-(\d+)$/.exec(name);
  return match === null ? null : { protocol: match[1] as Protocol, number: Number(match[2]) };
}

/** The sets whose elements come from Services, apart from the maps of endpoints, of which there are as many as needed. */
export const SERVICE_SETS: readonly SetSpec[] = [
  sets.clusterIPs,
  sets.serviceIPs,
  sets.firewallIPs,
  sets.noEndpointServices,
  sets.noEndpointNodePorts,
  sets.serviceNodePorts,
  sets.hairpin,
  sets.localhostRejects,
];

export const TABLE_COMMENT = 'rules for kube-proxy';

export const REJECT_CHAIN = 'reject-chain';

/** Where packets to node ports on loopback addresses are counted and refused. */
export function localhostRejectChain(protocol: Protocol): string {
  return `localhost-nodeport-reject-${protocol}`;
}

/** What counts them. */
export function localhostRejectCounter(protocol: Protocol): string {
  return `localhost-nodeport-rejected-${protocol}`;
}

/** What is left of an earlier configuration under which more was refused on loopback addresses. */
export function localhostRejectsLeft(settings: RuleSettings, chains: readonly string[]): { protocols: readonly Protocol[]; isMapLeft: boolean } {
  const refused = settings.refusedOnLocalhost ?? [];
  const protocols = (['tcp', 'udp', 'sctp'] as const).filter((protocol) => !refused.includes(protocol) && chains.includes(localhostRejectChain(protocol)));
  return { protocols, isMapLeft: refused.length === 0 && protocols.length > 0 };
}

const DSTNAT = -100;
const SRCNAT = 100;

export const BASE_CHAINS: readonly { name: string; base: BaseChain }[] = [
  { name: 'filter-prerouting-pre-dnat', base: { type: 'filter', hook: 'prerouting', priority: DSTNAT - 10 } },
  { name: 'filter-output-pre-dnat', base: { type: 'filter', hook: 'output', priority: DSTNAT - 10 } },
  { name: 'filter-input', base: { type: 'filter', hook: 'input', priority: 0 } },
  { name: 'filter-forward', base: { type: 'filter', hook: 'forward', priority: 0 } },
  { name: 'filter-output', base: { type: 'filter', hook: 'output', priority: 0 } },
  { name: 'nat-prerouting', base: { type: 'nat', hook: 'prerouting', priority: DSTNAT } },
  { name: 'nat-output', base: { type: 'nat', hook: 'output', priority: DSTNAT } },
  { name: 'nat-postrouting', base: { type: 'nat', hook: 'postrouting', priority: SRCNAT } },
];

/** A chain of the fixed part with all its rules. */
export interface FixedChain {
  name: string;
  comment?: string;
  rules: readonly Rule[];
}

export interface FixedTable {
  sets: readonly SetSpec[];
  /** Absent because all addresses of the node take node ports. */
  absentSets: readonly SetSpec[];
  chains: readonly FixedChain[];
  baseChains: readonly { name: string; base: BaseChain; rules: readonly Rule[] }[];
  nodePortElements: readonly Element[];
  counters: readonly string[];
}

/** What says that a packet comes from a pod of this cluster; null where that cannot be told. */
export function fromPods(detector: LocalDetector, family: Family, not: boolean): Statement | null {
  switch (detector.kind) {
    case 'none':
      return null;
    case 'cidr':
      return parseCidr(detector.cidr)?.family === family ? { kind: 'address', field: 'saddr', not, cidr: detector.cidr } : null;
    case 'bridge':
      return { kind: 'input-interface', not, name: detector.name, prefix: false };
    case 'prefix':
      return { kind: 'input-interface', not, name: detector.name, prefix: true };
  }
}

function jump(chain: string, onlyNew: boolean): Rule {
  const verdict: Statement = { kind: 'verdict', verdict: { kind: 'jump', chain } };
  return { statements: onlyNew ? [{ kind: 'connection-new' }, verdict] : [verdict] };
}

const BASE_RULES: Record<string, readonly Rule[]> = {
  'filter-prerouting-pre-dnat': [jump('firewall-check', true)],
  'filter-output-pre-dnat': [jump('firewall-check', true)],
  'filter-input': [jump('nodeport-endpoints-check', true), jump('service-endpoints-check', true)],
  'filter-forward': [jump('service-endpoints-check', true), jump('cluster-ips-check', true)],
  'filter-output': [jump('service-endpoints-check', true), jump('cluster-ips-check', true)],
  'nat-prerouting': [jump('services', false)],
  'nat-output': [jump('services', false)],
  'nat-postrouting': [jump('masquerading', false)],
};

function loopbackNet(family: Family): string {
  return family === 'ip' ? '127.0.0.0/8' : '::1/128';
}

/** Which packets are meant for a node port, before the port itself is looked at. */
function toNodePorts(settings: RuleSettings, dispatching: boolean): Statement[] {
  if (settings.nodePorts.kind === 'some') return [{ kind: 'in-set', fields: ['daddr'], set: sets.nodePortIPs.name }];
  const notLoopback: Statement = { kind: 'address', field: 'daddr', not: true, cidr: loopbackNet(settings.family) };
  return dispatching ? [{ kind: 'address-local', field: 'daddr' }, notLoopback] : [notLoopback];
}

const TO_SERVICE = ['daddr', 'l4proto', 'dport'] as const;
const TO_NODE_PORT = ['l4proto', 'dport'] as const;

function clusterIpMasquerade(settings: RuleSettings): Rule[] {
  const toClusterIP: Statement = { kind: 'in-set', fields: ['daddr'], set: sets.clusterIPs.name };
  const mark: Statement = { kind: 'set-mark', bits: settings.markBits };
  if (settings.masqueradeAll) return [{ statements: [toClusterIP, mark], comment: 'masquerade all clusterIP traffic' }];
  const notPods = fromPods(settings.detector, settings.family, true);
  return notPods === null ? [] : [{ statements: [toClusterIP, notPods, mark], comment: 'masquerade clusterIP traffic from outside cluster' }];
}

function fixedChains(settings: RuleSettings): FixedChain[] {
  const refused = settings.refusedOnLocalhost ?? [];
  const toLoopback: Statement = { kind: 'address', field: 'daddr', cidr: loopbackNet(settings.family) };
  const serviceCIDRs = settings.serviceCIDRs.filter((cidr) => parseCidr(cidr)?.family === settings.family);
  return [
    {
      name: 'nodeport-endpoints-check',
      rules: [
        { statements: [...toNodePorts(settings, false), { kind: 'verdict-map', fields: TO_NODE_PORT, map: sets.noEndpointNodePorts.name }] },
        ...(refused.length === 0
          ? []
          : [{ statements: [toLoopback, { kind: 'verdict-map', fields: TO_NODE_PORT, map: sets.localhostRejects.name }] as Statement[] }]),
      ],
    },
    ...refused.map((protocol): FixedChain => ({
      name: localhostRejectChain(protocol),
      rules: [{ statements: [{ kind: 'count', counter: localhostRejectCounter(protocol) }, { kind: 'reject' }] }],
    })),
    { name: 'service-endpoints-check', rules: [{ statements: [{ kind: 'verdict-map', fields: TO_SERVICE, map: sets.noEndpointServices.name }] }] },
    { name: 'firewall-check', rules: [{ statements: [{ kind: 'verdict-map', fields: TO_SERVICE, map: sets.firewallIPs.name }] }] },
    {
      name: 'services',
      rules: [
        ...clusterIpMasquerade(settings),
        { statements: [{ kind: 'verdict-map', fields: TO_SERVICE, map: sets.serviceIPs.name }] },
        { statements: [...toNodePorts(settings, true), { kind: 'verdict-map', fields: TO_NODE_PORT, map: sets.serviceNodePorts.name }] },
      ],
    },
    {
      name: 'masquerading',
      rules: [
        { statements: [{ kind: 'marked', bits: settings.markBits }, { kind: 'toggle-mark', bits: settings.markBits }, { kind: 'masquerade' }] },
        {
          statements: [
            { kind: 'connection-dnated' },
            { kind: 'in-set', fields: ['saddr', 'daddr', 'l4proto', 'dport'], set: sets.hairpin.name },
            { kind: 'masquerade' },
          ],
        },
      ],
    },
    {
      name: 'cluster-ips-check',
      rules: [
        {
          statements: [{ kind: 'in-set', fields: ['daddr'], set: sets.clusterIPs.name }, { kind: 'reject' }],
          comment: 'Reject traffic to invalid ports of ClusterIPs',
        },
        ...(serviceCIDRs.length === 0
          ? []
          : [
              {
                statements: [
                  { kind: 'address-in', field: 'daddr', cidrs: serviceCIDRs },
                  { kind: 'verdict', verdict: { kind: 'drop' } },
                ] as Statement[],
                comment: 'Drop traffic to unallocated ClusterIPs',
              },
            ]),
      ],
    },
    { name: REJECT_CHAIN, comment: 'helper for @no-endpoint-services / @no-endpoint-nodeports', rules: [{ statements: [{ kind: 'reject' }] }] },
  ];
}

export function fixedTable(settings: RuleSettings): FixedTable {
  const all = settings.nodePorts.kind === 'all';
  const addresses = settings.nodePorts.kind === 'some' ? settings.nodePorts.addresses.filter((address) => !isLoopback(address)) : [];
  const refused = settings.refusedOnLocalhost ?? [];
  const usual = refused.length > 0 ? SERVICE_SETS : SERVICE_SETS.filter((set) => set !== sets.localhostRejects);
  return {
    sets: all ? usual : [...usual, sets.nodePortIPs],
    absentSets: all ? [sets.nodePortIPs] : [],
    chains: fixedChains(settings),
    baseChains: BASE_CHAINS.map((chain) => ({ ...chain, rules: BASE_RULES[chain.name]! })),
    counters: refused.map(localhostRejectCounter),
    nodePortElements: addresses.map((address) => ({ key: [address] })),
  };
}
