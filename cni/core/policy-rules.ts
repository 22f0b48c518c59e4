import type { NetworkPolicyPeer, NetworkPolicyPort } from '../../proto/kube/types.ts';
import { addressText } from './address.ts';
import { clusterRuleLines, inTier, isSubject, type ClusterPolicy, type Tier } from './cluster-policy.ts';
import { hashHex } from './names.ts';
import { protocolOf, selects, type Policy, type PolicyNamespace, type PolicyNode, type PolicyPod } from './policy-facts.ts';
import { blockMatch, named, portMatch, type Match, type PortRanges } from './policy-match.ts';
import { PolicySets, type SetContent } from './policy-sets.ts';

/**
 * NetworkPolicy v1 and ClusterNetworkPolicy as sets, maps and chains: a pod's address leads to the chain of its first tier,
 * and a chain names other pods by sets, so that a pod that comes or goes changes elements only. Pods of the same policies
 * share chains.
 */

export interface PolicyWorld {
  readonly node: string;
  readonly policies: Iterable<Policy>;
  readonly clusterPolicies: Iterable<ClusterPolicy>;
  readonly pods: Iterable<PolicyPod>;
  readonly namespaces: ReadonlyMap<string, PolicyNamespace>;
  readonly nodes: Iterable<PolicyNode>;
}

/** Names of chains by address. `node-egress` is of packets to the node itself, of which ClusterNetworkPolicies alone speak. */
export type Directions = Readonly<Record<MapName, ReadonlyMap<string, string>>>;
export const MAPS = ['egress4', 'egress6', 'ingress4', 'ingress6'] as const;
export const NODE_MAPS = ['node-egress4', 'node-egress6'] as const;
export type MapName = (typeof MAPS)[number] | (typeof NODE_MAPS)[number];

export interface PolicyRules {
  readonly sets: ReadonlyMap<string, SetContent>;
  readonly maps: Directions;
  /** Rules as nft writes them. */
  readonly chains: ReadonlyMap<string, readonly string[]>;
}

type Way = 'ingress' | 'egress';
const WAYS: readonly Way[] = ['ingress', 'egress'];
const COMMENT_BYTES = 120;
/** A pod cannot be kept from itself by a NetworkPolicy; packets come back to it by way of a Service. */
const SELF = ['ip saddr . ip daddr @self-4 return', 'ip6 saddr . ip6 daddr @self-6 return'];

/** Nothing is isolated on this node: there is no table then. */
export function isEmpty(rules: PolicyRules): boolean {
  return [...MAPS, ...NODE_MAPS].every((name) => rules.maps[name].size === 0);
}

/** Whether packets from pods to this node are judged too. */
export function guardsNode(rules: PolicyRules): boolean {
  return NODE_MAPS.some((name) => rules.maps[name].size > 0);
}

/** The ways in which a policy isolates; without policyTypes ingress, and egress where there are such rules. */
export function waysOf({ policyTypes, egress }: Policy['spec']): readonly Way[] {
  if (policyTypes === undefined || policyTypes.length === 0) return (egress ?? []).length > 0 ? ['ingress', 'egress'] : ['ingress'];
  return WAYS.filter((way) => policyTypes.includes(way === 'ingress' ? 'Ingress' : 'Egress'));
}

export function policyRules(world: PolicyWorld): PolicyRules {
  return new Planner(world).plan();
}

/** What speaks of one pod in one way, tier by tier in their order. */
interface Tiers {
  readonly admin: ClusterPolicy[];
  readonly own: Policy[];
  readonly baseline: ClusterPolicy[];
}

class Planner {
  readonly #world: PolicyWorld;
  readonly #pods: readonly PolicyPod[];
  readonly #sets: PolicySets;
  readonly #rules = new Map<string, readonly string[]>();
  readonly #chains = new Map<string, readonly string[]>();

  constructor(world: PolicyWorld) {
    this.#world = world;
    this.#pods = [...world.pods].filter((pod) => pod.addresses.length > 0);
    this.#sets = new PolicySets(this.#pods, world.namespaces, [...world.nodes]);
  }

  plan(): PolicyRules {
    const maps: Record<MapName, Map<string, string>> = {
      egress4: new Map(),
      egress6: new Map(),
      ingress4: new Map(),
      ingress6: new Map(),
      'node-egress4': new Map(),
      'node-egress6': new Map(),
    };
    const lead = (map: Way | 'node-egress', pod: PolicyPod, chain: string | null): void => {
      if (chain === null) return;
      for (const address of pod.addresses) maps[`${map}${address.family}`].set(addressText(address), chain);
    };
    for (const [pod, tiers] of this.#chosen()) {
      for (const way of WAYS) lead(way, pod, this.#entry(way, tiers[way], true));
      lead('node-egress', pod, this.#entry('egress', tiers.egress, false));
      if (WAYS.some((way) => tiers[way].own.length > 0)) this.#sets.addSelf(pod.addresses);
    }
    return { sets: this.#sets.all, maps, chains: this.#chains };
  }

  /** This node's pods that some policy speaks of; NetworkPolicies in the order of keys. */
  #chosen(): Map<PolicyPod, Record<Way, Tiers>> {
    const chosen = new Map<PolicyPod, Record<Way, Tiers>>();
    const world = this.#world;
    const here = this.#pods.filter((pod) => pod.node === world.node);
    const tiersOf = (pod: PolicyPod): Record<Way, Tiers> => {
      const known = chosen.get(pod) ?? { ingress: { admin: [], own: [], baseline: [] }, egress: { admin: [], own: [], baseline: [] } };
      chosen.set(pod, known);
      return known;
    };
    const bySpace = Map.groupBy(here, (pod) => pod.namespace);
    for (const policy of [...world.policies].sort((a, b) => (a.key < b.key ? -1 : 1))) {
      const ways = waysOf(policy.spec);
      for (const pod of bySpace.get(policy.namespace) ?? [])
        if (selects(policy.spec.podSelector ?? {}, pod.labels)) for (const way of ways) tiersOf(pod)[way].own.push(policy);
    }
    const clusterPolicies = [...world.clusterPolicies];
    for (const tier of ['admin', 'baseline'] as const)
      for (const policy of inTier(clusterPolicies, tier)) {
        const ways = WAYS.filter((way) => (policy.spec[way] ?? []).length > 0);
        for (const pod of here) if (isSubject(policy, pod, world.namespaces)) for (const way of ways) tiersOf(pod)[way][tier].push(policy);
      }
    return chosen;
  }

  /**
   * The chain that a packet meets first; null when nothing speaks of it. A NetworkPolicy decides finally, so that the tier
   * behind it is for pods that none selects; and none speaks of packets to the node.
   */
  #entry(way: Way, { admin, own, baseline }: Tiers, withOwn: boolean): string | null {
    let next: string | null = null;
    if (own.length > 0) next = withOwn ? this.#ownChain(way, own) : null;
    else if (baseline.length > 0) next = this.#tierChain('baseline', way, baseline, null);
    return admin.length > 0 ? this.#tierChain('admin', way, admin, next) : next;
  }

  #ownChain(way: Way, policies: readonly Policy[]): string {
    const name = `${way}-${hashHex(policies.map((policy) => policy.key).join('\n'))}`;
    if (!this.#chains.has(name)) this.#chains.set(name, [...SELF, ...policies.flatMap((policy) => this.#allowed(policy, way)), 'drop']);
    return name;
  }

  #tierChain(tier: Tier, way: Way, policies: readonly ClusterPolicy[], next: string | null): string {
    const name = `${tier}-${way}-${hashHex([...policies.map((policy) => policy.name), next ?? ''].join('\n'))}`;
    if (this.#chains.has(name)) return name;
    const lines = policies.flatMap((policy) => (policy.spec[way] ?? []).flatMap((rule, at) => clusterRuleLines(policy, at, rule, way, next, this.#sets)));
    this.#chains.set(name, next === null ? lines : [...lines, `goto ${next}`]);
    return name;
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
    return named(this.#sets.pods(peer.podSelector ?? {}, peer.namespaceSelector ?? namespace), end);
  }

  #ports(ports: readonly NetworkPolicyPort[]): Match[] {
    const matches: Match[] = [];
    const ranges: PortRanges = new Map();
    for (const { protocol, port, endPort } of ports) {
      const known = protocolOf(protocol);
      if (known === null) continue;
      if (typeof port === 'string') matches.push(...portMatch(this.#sets.namedPort(port, known)));
      else ranges.set(known, [...(ranges.get(known) ?? []), port === undefined ? [0, 65_535] : [port, Math.max(port, endPort ?? port)]]);
    }
    return [...matches, ...portMatch(ranges)];
  }
}
