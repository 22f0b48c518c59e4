import type { LabelSelector, ObjectMeta } from '../../proto/kube/types.ts';
import { parseCidr } from './address.ts';
import { selects, type PolicyNamespace, type PolicyPod } from './policy-facts.ts';
import { named, networkMatch, portMatch, type Match, type PortRanges } from './policy-match.ts';
import type { PolicySets } from './policy-sets.ts';

/**
 * ClusterNetworkPolicy v1alpha2 (policy.networking.k8s.io, the network-policy-api of SIG Network): tiers before and after
 * NetworkPolicies, priorities, Accept, Deny and Pass.
 */

export interface NamespacedPods {
  namespaceSelector?: LabelSelector;
  podSelector?: LabelSelector;
}

export interface ClusterPolicyPeer {
  namespaces?: LabelSelector;
  pods?: NamespacedPods;
  nodes?: LabelSelector;
  networks?: string[];
  domainNames?: string[];
}

interface DestinationPort {
  destinationPort?: { number?: number; range?: { start: number; end: number } };
}

export interface ClusterPolicyProtocol {
  tcp?: DestinationPort;
  udp?: DestinationPort;
  sctp?: DestinationPort;
  destinationNamedPort?: string;
}

export interface ClusterPolicyRule {
  name?: string;
  action: string;
  from?: ClusterPolicyPeer[];
  to?: ClusterPolicyPeer[];
  protocols?: ClusterPolicyProtocol[];
}

export interface ClusterNetworkPolicy {
  apiVersion?: string;
  kind?: string;
  metadata: ObjectMeta;
  spec: {
    tier: string;
    priority: number;
    subject: { namespaces?: LabelSelector; pods?: NamespacedPods };
    ingress?: ClusterPolicyRule[];
    egress?: ClusterPolicyRule[];
  };
}

export type Tier = 'admin' | 'baseline';

/** A policy without what the server adds. */
export interface ClusterPolicy {
  readonly name: string;
  readonly spec: ClusterNetworkPolicy['spec'];
}

export function clusterPolicyFacts(policy: ClusterNetworkPolicy): ClusterPolicy {
  return { name: policy.metadata.name ?? '', spec: policy.spec };
}

/** Whether some peer names nodes. */
export function namesNodes({ spec }: ClusterPolicy): boolean {
  return (spec.egress ?? []).some((rule) => (rule.to ?? []).some((peer) => peer.nodes !== undefined));
}

/** A tier's policies, the first to ask first: by priority, and by name where that is the same. */
export function inTier(policies: Iterable<ClusterPolicy>, tier: Tier): ClusterPolicy[] {
  return [...policies]
    .filter(({ spec }) => spec.tier === (tier === 'admin' ? 'Admin' : 'Baseline'))
    .sort((a, b) => a.spec.priority - b.spec.priority || (a.name < b.name ? -1 : 1));
}

/** Whether the policy speaks of the pod; one that has the node's addresses is nobody's subject. */
export function isSubject({ spec: { subject } }: ClusterPolicy, pod: PolicyPod, namespaces: ReadonlyMap<string, PolicyNamespace>): boolean {
  const labels = namespaces.get(pod.namespace)?.labels;
  if (labels === undefined) return false;
  if (subject.namespaces !== undefined) return selects(subject.namespaces, labels);
  if (subject.pods === undefined) return false;
  return selects(subject.pods.namespaceSelector ?? {}, labels) && selects(subject.pods.podSelector ?? {}, pod.labels);
}

/** Fields of a rule and of its parts. Another one is of a version of the API that says what is not understood here. */
const RULE_FIELDS = new Set(['name', 'action', 'from', 'to', 'protocols']);
const PEER_FIELDS = ['namespaces', 'pods', 'nodes', 'networks', 'domainNames'] as const;
const L4 = ['tcp', 'udp', 'sctp'] as const;

/** `closed`: something in the rule is not understood, so that it lets nothing through. */
type Reading = { readonly state: 'closed' } | { readonly state: 'read'; readonly peers: readonly Match[]; readonly ports: readonly Match[] };

/** A rule's lines in a chain; `next` is the chain of the tier that comes after, null where none does. */
export function clusterRuleLines(
  policy: ClusterPolicy,
  at: number,
  rule: ClusterPolicyRule,
  way: 'ingress' | 'egress',
  next: string | null,
  sets: PolicySets,
): string[] {
  const comment = `comment "${policy.name.slice(0, 100)} ${at}"`;
  const reading = readRule(rule, way, sets);
  // As the API asks of who meets a field that it does not know: an Accept matches nothing, all else denies everything.
  if (reading.state === 'closed') return rule.action === 'Accept' ? [] : [`drop ${comment}`];
  const verdict = rule.action === 'Accept' ? 'return' : rule.action !== 'Pass' ? 'drop' : next === null ? 'return' : `goto ${next}`;
  const lines: string[] = [];
  for (const peer of reading.peers)
    for (const port of reading.ports)
      if (peer.family === null || port.family === null || peer.family === port.family)
        lines.push([peer.text, port.text, `${verdict} ${comment}`].filter((part) => part !== '').join(' '));
  return lines;
}

function readRule(rule: ClusterPolicyRule, way: 'ingress' | 'egress', sets: PolicySets): Reading {
  if (Object.keys(rule).some((field) => !RULE_FIELDS.has(field))) return { state: 'closed' };
  const peers: Match[] = [];
  for (const peer of (way === 'ingress' ? rule.from : rule.to) ?? []) {
    const found = readPeer(peer, way, sets);
    if (found === null) return { state: 'closed' };
    // Names are not followed. They stand in Accept rules alone, where that lets less through.
    if (peer.domainNames !== undefined && rule.action !== 'Accept') return { state: 'closed' };
    peers.push(...found);
  }
  if (rule.protocols === undefined) return { state: 'read', peers, ports: [{ family: null, text: '' }] };
  const ports = readProtocols(rule.protocols, sets);
  return ports === null ? { state: 'closed' } : { state: 'read', peers, ports };
}

function readPeer(peer: ClusterPolicyPeer, way: 'ingress' | 'egress', sets: PolicySets): readonly Match[] | null {
  const end = way === 'ingress' ? 'saddr' : 'daddr';
  if (!PEER_FIELDS.some((field) => peer[field] !== undefined)) return null;
  if (peer.namespaces !== undefined) return named(sets.pods({}, peer.namespaces), end);
  if (peer.pods !== undefined) return named(sets.pods(peer.pods.podSelector ?? {}, peer.pods.namespaceSelector ?? {}), end);
  if (peer.nodes !== undefined) return named(sets.nodes(peer.nodes), end);
  return networkMatch(
    (peer.networks ?? []).flatMap((text) => parseCidr(text) ?? []),
    end,
  );
}

function readProtocols(protocols: readonly ClusterPolicyProtocol[], sets: PolicySets): Match[] | null {
  const ranges: PortRanges = new Map();
  const matches: Match[] = [];
  for (const one of protocols) {
    if (one.destinationNamedPort !== undefined) {
      matches.push(...portMatch(sets.namedPort(one.destinationNamedPort, null)));
      continue;
    }
    const protocol = L4.find((name) => one[name] !== undefined);
    if (protocol === undefined) return null;
    const port = one[protocol]?.destinationPort;
    const [from, to] = port === undefined ? [0, 65_535] : port.range === undefined ? [port.number, port.number] : [port.range.start, port.range.end];
    if (from === undefined || to === undefined) return null;
    ranges.set(protocol, [...(ranges.get(protocol) ?? []), [from, to]]);
  }
  return [...matches, ...portMatch(ranges)];
}
