import type { LabelSelector, NetworkPolicyPeer, NetworkPolicyPort } from '../../proto/kube/types.ts';
import { addressText, cidrText, contains, parseCidr, type Cidr } from './address.ts';
import { hashHex } from './names.ts';
import { protocolOf, selects, type Policy, type PolicyNamespace, type PolicyPod } from './policy-facts.ts';

/**
 * NetworkPolicy v1 as sets, maps and chains: a pod's address leads to the chain of its policies, and a chain names other
 * pods by sets, so that a pod that comes or goes changes elements only. Pods of the same policies share one chain.
 */

export interface PolicyWorld {
  readonly node: string;
  readonly policies: Iterable<Policy>;
  readonly pods: Iterable<PolicyPod>;
  readonly namespaces: ReadonlyMap<string, PolicyNamespace>;
}

export interface SetContent {
  readonly type: string;
  readonly elements: ReadonlySet<string>;
}

/** Names of chains by address, for each of the four maps. */
export type Directions = Readonly<Record<MapName, ReadonlyMap<string, string>>>;
export const MAPS = ['egress4', 'egress6', 'ingress4', 'ingress6'] as const;
export type MapName = (typeof MAPS)[number];

export interface PolicyRules {
  readonly sets: ReadonlyMap<string, SetContent>;
  readonly maps: Directions;
  /** Rules as nft writes them. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
}

type Way = 'ingress' | 'egress';
type Family = 4 | 6;
const FAMILIES: readonly Family[] = [4, 6];
const IP = { 4: 'ip', 6: 'ip6' } as const;
const TYPE = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const;
const COMMENT_BYTES = 120;

/** Nothing is isolated on this node: there is no table then. */
export function isEmpty(rules: PolicyRules): boolean {
  return MAPS.every((name) => rules.maps[name].size === 0);
}

/** The ways in which a policy isolates; without policyTypes ingress, and egress where there are such rules. */
export function waysOf({ policyTypes, egress }: Policy['spec']): readonly Way[] {
  if (policyTypes === undefined || policyTypes.length === 0) return (egress ?? []).length > 0 ? ['ingress', 'egress'] : ['ingress'];
  return (['ingress', 'egress'] as const).filter((way) => policyTypes.includes(way === 'ingress' ? 'Ingress' : 'Egress'));
}

export function policyRules(world: PolicyWorld): PolicyRules {
  return new Planner(world).plan();
}

class Planner {
  readonly #world: PolicyWorld;
  readonly #pods: readonly PolicyPod[];
  readonly #sets = new Map<string, { type: string; elements: Set<string> }>();
  readonly #rules = new Map<string, readonly string[]>();

  constructor(world: PolicyWorld) {
    this.#world = world;
    this.#pods = [...world.pods].filter((pod) => pod.addresses.length > 0);
  }

  plan(): PolicyRules {
    const chosen = this.#isolated();
    const maps = {
      egress4: new Map<string, string>(),
      egress6: new Map<string, string>(),
      ingress4: new Map<string, string>(),
      ingress6: new Map<string, string>(),
    };
    const chains = new Map<string, readonly string[]>();
    for (const [pod, ways] of chosen) {
      for (const way of ['ingress', 'egress'] as const) {
        const policies = ways[way];
        if (policies.length === 0) continue;
        const chain = `${way}-${hashHex(policies.map((policy) => policy.key).join('\n'))}`;
        if (!chains.has(chain)) chains.set(chain, [...policies.flatMap((policy) => this.#allowed(policy, way)), 'drop']);
        for (const address of pod.addresses) maps[`${way}${address.family}`].set(addressText(address), chain);
      }
      // A pod cannot be kept from itself; packets come back to it by way of a Service.
      for (const address of pod.addresses) {
        const text = addressText(address);
        this.#set(`self-${address.family}`, `${TYPE[address.family]} . ${TYPE[address.family]}`).add(`${text} . ${text}`);
      }
    }
    return { sets: this.#sets, maps, chains };
  }

  /** This node's pods that some policy selects, with their policies in the order of keys. */
  #isolated(): Map<PolicyPod, Record<Way, Policy[]>> {
    const chosen = new Map<PolicyPod, Record<Way, Policy[]>>();
    const own = Map.groupBy(
      this.#pods.filter((pod) => pod.node === this.#world.node),
      (pod) => pod.namespace,
    );
    const policies = [...this.#world.policies].sort((a, b) => (a.key < b.key ? -1 : 1));
    for (const policy of policies) {
      const ways = waysOf(policy.spec);
      for (const pod of own.get(policy.namespace) ?? []) {
        if (!selects(policy.spec.podSelector ?? {}, pod.labels)) continue;
        const known = chosen.get(pod) ?? { ingress: [], egress: [] };
        for (const way of ways) known[way].push(policy);
        chosen.set(pod, known);
      }
    }
    return chosen;
  }

  #set(name: string, type: string): Set<string> {
    const known = this.#sets.get(name);
    if (known !== undefined) return known.elements;
    const elements = new Set<string>();
    this.#sets.set(name, { type, elements });
    return elements;
  }

  /** What a policy lets through, as rules that end the chain. */
  #allowed(policy: Policy, way: Way): readonly string[] {
    const key = `${way} ${policy.key}`;
    const known = this.#rules.get(key);
    if (known !== undefined) return known;
    const rules: string[] = [];
    const listed = way === 'ingress' ? policy.spec.ingress : policy.spec.egress;
    for (const rule of listed ?? []) {
      const peers = ('from' in rule ? rule.from : 'to' in rule ? rule.to : undefined) ?? [];
      const from = peers.length === 0 ? [{ family: null, text: '' }] : peers.flatMap((peer) => this.#peer(peer, policy.namespace, way));
      const ports = (rule.ports ?? []).length === 0 ? [{ family: null, text: '' }] : this.#ports(rule.ports ?? []);
      for (const peer of from)
        for (const port of ports)
          if (peer.family === null || port.family === null || peer.family === port.family)
            rules.push([peer.text, port.text, `return comment "${policy.key.slice(0, COMMENT_BYTES)}"`].filter((part) => part !== '').join(' '));
    }
    this.#rules.set(key, rules);
    return rules;
  }

  #peer(peer: NetworkPolicyPeer, namespace: string, way: Way): Match[] {
    const end = way === 'ingress' ? 'saddr' : 'daddr';
    if (peer.ipBlock !== undefined) return blockMatch(peer.ipBlock, end);
    if (peer.podSelector === undefined && peer.namespaceSelector === undefined) return [];
    const name = this.#podSet(peer.podSelector ?? {}, peer.namespaceSelector ?? namespace);
    return FAMILIES.map((family) => ({ family, text: `${IP[family]} ${end} @${name}-${family}` }));
  }

  /** Two sets, one a family, of the pods that are selected in one namespace or in all that are selected. */
  #podSet(pods: LabelSelector, where: LabelSelector | string): string {
    const name = `pods-${hashHex(JSON.stringify([canonical(pods), typeof where === 'string' ? where : canonical(where)]))}`;
    if (this.#sets.has(`${name}-4`)) return name;
    const sets = { 4: this.#set(`${name}-4`, TYPE[4]), 6: this.#set(`${name}-6`, TYPE[6]) };
    const isThere = new Map<string, boolean>();
    const inSpace = (namespace: string): boolean => {
      if (typeof where === 'string') return namespace === where;
      const known = isThere.get(namespace);
      if (known !== undefined) return known;
      const found = this.#world.namespaces.get(namespace);
      const is = found !== undefined && selects(where, found.labels);
      isThere.set(namespace, is);
      return is;
    };
    for (const pod of this.#pods)
      if (inSpace(pod.namespace) && selects(pods, pod.labels)) for (const address of pod.addresses) sets[address.family].add(addressText(address));
    return name;
  }

  #ports(ports: readonly NetworkPolicyPort[]): Match[] {
    const matches: Match[] = [];
    const numbers = new Map<string, [number, number][]>();
    const whole = new Set<string>();
    for (const { protocol, port, endPort } of ports) {
      const known = protocolOf(protocol);
      if (known === null) continue;
      if (port === undefined) whole.add(known);
      else if (typeof port === 'number') numbers.set(known, [...(numbers.get(known) ?? []), [port, Math.max(port, endPort ?? port)]]);
      else matches.push(...this.#named(port, known));
    }
    for (const protocol of whole) matches.push({ family: null, text: `meta l4proto ${protocol}` });
    for (const [protocol, ranges] of numbers)
      if (!whole.has(protocol))
        matches.push({
          family: null,
          text: `${protocol} dport { ${joined(ranges)
            .map(([from, to]) => (from === to ? from : `${from}-${to}`))
            .join(', ')} }`,
        });
    return matches;
  }

  /** A name is another number in each pod: where the packet goes, which is the isolated pod itself for ingress. */
  #named(port: string, protocol: 'tcp' | 'udp' | 'sctp'): Match[] {
    const name = `port-${hashHex(`${protocol} ${port}`)}`;
    if (!this.#sets.has(`${name}-4`)) {
      const sets = { 4: this.#set(`${name}-4`, `${TYPE[4]} . inet_proto . inet_service`), 6: this.#set(`${name}-6`, `${TYPE[6]} . inet_proto . inet_service`) };
      for (const pod of this.#pods)
        for (const one of pod.ports)
          if (one.name === port && one.protocol === protocol)
            for (const address of pod.addresses) sets[address.family].add(`${addressText(address)} . ${protocol} . ${one.port}`);
    }
    return FAMILIES.map((family) => ({ family, text: `${IP[family]} daddr . meta l4proto . th dport @${name}-${family}` }));
  }
}

interface Match {
  /** Null: both. */
  readonly family: Family | null;
  readonly text: string;
}

/** Selectors that say the same have one text. */
function canonical(selector: LabelSelector): unknown {
  return [
    Object.entries(selector.matchLabels ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)),
    (selector.matchExpressions ?? []).map(({ key, operator, values = [] }) => JSON.stringify([key, operator, [...values].sort()])).sort(),
  ];
}

/** Anonymous sets of ranges take no overlap. */
function joined(ranges: readonly (readonly [number, number])[]): [number, number][] {
  const sorted = [...ranges].sort((a, b) => a[0] - b[0]);
  const result: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = result.at(-1);
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else result.push([from, to]);
  }
  return result;
}

/** Of networks that lie in each other the widest. */
function widest(cidrs: readonly Cidr[]): Cidr[] {
  const sorted = [...cidrs].sort((a, b) => a.prefix - b.prefix);
  const kept: Cidr[] = [];
  for (const cidr of sorted) if (!kept.some((one) => contains(one, cidr))) kept.push(cidr);
  return kept;
}

function blockMatch(block: { cidr: string; except?: string[] }, end: 'saddr' | 'daddr'): Match[] {
  const cidr = parseCidr(block.cidr);
  if (cidr === null) return [];
  const ip = IP[cidr.family];
  const except = widest((block.except ?? []).flatMap((text) => parseCidr(text) ?? []).filter((one) => one.family === cidr.family));
  if (except.some((one) => one.prefix === 0)) return [];
  const within = cidr.prefix === 0 ? `meta nfproto ipv${cidr.family}` : `${ip} ${end} ${cidrText(cidr)}`;
  return [{ family: cidr.family, text: except.length === 0 ? within : `${within} ${ip} ${end} != { ${except.map(cidrText).join(', ')} }` }];
}
