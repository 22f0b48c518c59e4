import { cidrContains, isLoopback, parseCidr } from './ip.ts';
import type { Protocol } from './names.ts';
import type { RuleSettings } from './settings.ts';
import type { PortRules, Target, Verdict } from './ruleset.ts';

/** What a packet meets: the meaning of a ruleset, independent of the tables it is written to. */

export interface Packet {
  protocol: Protocol;
  src: string;
  dst: string;
  port: number;
  /** Sent by the node itself, not through it. */
  fromNode: boolean;
  /** Where it came in; empty when the node sent it. */
  inputInterface: string;
  /** Addresses of the node's own interfaces. */
  nodeAddresses: readonly string[];
}

export type Fate =
  | { kind: 'pass' } // not for a Service: goes on unchanged
  | { kind: 'reject' }
  | { kind: 'drop' }
  | { kind: 'to'; choices: readonly Choice[] };

export interface Choice {
  target: Target;
  masquerade: boolean;
}

export function fateText(fate: Fate): string {
  if (fate.kind !== 'to') return fate.kind;
  return fate.choices.map(({ target, masquerade }) => `${target.address} ${target.port}${masquerade ? ' masqueraded' : ''}`).join(', ');
}

function isFromPods(packet: Packet, settings: RuleSettings): boolean {
  const { detector } = settings;
  if (detector.kind === 'cidr') return cidrContains(parseCidr(detector.cidr)!, packet.src);
  if (detector.kind === 'bridge') return packet.inputInterface === detector.name;
  return detector.kind === 'prefix' && packet.inputInterface.startsWith(detector.name);
}

function takesNodePorts(packet: Packet, settings: RuleSettings): boolean {
  if (settings.nodePorts.kind === 'some') return settings.nodePorts.addresses.includes(packet.dst);
  return packet.nodeAddresses.includes(packet.dst) && !isLoopback(packet.dst);
}

type Frontend = { rules: PortRules; kind: 'cluster' | 'external' | 'load-balancer' | 'node-port' };

function frontendOf(ruleset: readonly PortRules[], packet: Packet, settings: RuleSettings): Frontend | null {
  const here = ruleset.filter((rules) => rules.id.protocol === packet.protocol);
  for (const rules of here) {
    if (rules.port !== packet.port) continue;
    if (rules.clusterIP === packet.dst) return { rules, kind: 'cluster' };
    if (rules.loadBalancerIPs.includes(packet.dst)) return { rules, kind: 'load-balancer' };
    if (rules.externalIPs.includes(packet.dst)) return { rules, kind: 'external' };
  }
  const rules = takesNodePorts(packet, settings) ? here.find((candidate) => candidate.nodePort === packet.port) : undefined;
  return rules === undefined ? null : { rules, kind: 'node-port' };
}

function mayEnter(rules: PortRules, packet: Packet, settings: RuleSettings): boolean {
  if (rules.sourceRanges.length === 0) return true;
  if (rules.sourceRanges.some((range) => cidrContains(parseCidr(range)!, packet.src))) return true;
  const nodeIsIn = settings.nodeIP !== '' && rules.sourceRanges.some((range) => cidrContains(parseCidr(range)!, settings.nodeIP));
  return nodeIsIn && rules.loadBalancerIPs.includes(packet.src);
}

function sendTo(rules: PortRules, verdict: Verdict, masquerade: boolean, packet: Packet): Fate {
  if (verdict === 'reject' || verdict === 'drop') return { kind: verdict };
  const choices = rules[verdict].map((target) => {
    const self = target.address === packet.src && rules.onNode.some((other) => other.address === target.address && other.port === target.port);
    return { target, masquerade: masquerade || self };
  });
  return { kind: 'to', choices };
}

/** The ruleset's answer. Ports must not claim each other's addresses. */
export function trace(ruleset: readonly PortRules[], packet: Packet, settings: RuleSettings): Fate {
  const frontend = frontendOf(ruleset, packet, settings);
  if (frontend === null) {
    const isRefused = (rules: PortRules): boolean => rules.nodePort === packet.port && rules.id.protocol === packet.protocol;
    if (isLoopback(packet.dst) && settings.refusedOnLocalhost?.includes(packet.protocol) === true && ruleset.some(isRefused)) return { kind: 'reject' };
    if (ruleset.some((rules) => rules.clusterIP === packet.dst)) return { kind: 'reject' };
    const unallocated = settings.serviceCIDRs.some((range) => cidrContains(parseCidr(range)!, packet.dst));
    return { kind: unallocated ? 'drop' : 'pass' };
  }
  const { rules, kind } = frontend;
  if (kind === 'load-balancer' && !mayEnter(rules, packet, settings)) return { kind: 'drop' };
  if (kind === 'cluster') {
    const masquerade = settings.masqueradeAll || (settings.detector.kind !== 'none' && !isFromPods(packet, settings));
    return sendTo(rules, rules.internal, masquerade, packet);
  }
  const external = rules.external!;
  if (external === 'reject' || !rules.externalLocal) return sendTo(rules, external, true, packet);
  // Policy Local is about clients outside: pods and the node itself may use any endpoint.
  if (isFromPods(packet, settings)) return sendTo(rules, 'cluster', false, packet);
  if (packet.fromNode || packet.nodeAddresses.includes(packet.src)) return sendTo(rules, 'cluster', true, packet);
  return sendTo(rules, external, false, packet);
}
