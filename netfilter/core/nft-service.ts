import { commentText, nftEndpointNames, nftNames, type NftNames, type Protocol } from './names.ts';
import { cidrContains, parseCidr, withoutCovered } from './ip.ts';
import type { Slots } from './slots.ts';
import { fromPods, localhostRejectChain, REJECT_CHAIN, sets } from './nft-table.ts';
import type { RuleSettings } from './settings.ts';
import type { Element, Rule, SetSpec, Statement, Verdict as NftVerdict } from './ops.ts';
import type { PortRules, Target, Verdict } from './ruleset.ts';

/** Everything of the table that one Service port owns. Keys of maps may be claimed by several ports at once. */
export interface PortObjects {
  /** Chains by name, in an order in which each only refers to those before it. */
  chains: ReadonlyMap<string, readonly Rule[]>;
  affinitySets: readonly SetSpec[];
  elements: readonly { set: SetSpec; element: Element }[];
  /** Endpoints under the numbers that belong to this port's chains: elements that no other port can claim. */
  drawn: readonly Drawn[];
}

/** The elements of a map from number `first` on. */
export interface Drawn {
  set: SetSpec;
  first: number;
  targets: readonly Target[];
}

function drawnElement({ first }: Drawn, target: Target, index: number): Element {
  return { key: [String(first + index)], target };
}

export function* drawnElements(drawn: readonly Drawn[]): Generator<{ set: SetSpec; element: Element }> {
  for (const one of drawn) for (const [index, target] of one.targets.entries()) yield { set: one.set, element: drawnElement(one, target, index) };
}

/** All elements that a port wants. */
export function* elementsOf(objects: PortObjects): Generator<{ set: SetSpec; element: Element }> {
  yield* objects.elements;
  yield* drawnElements(objects.drawn);
}

function isDrawing(chain: readonly Rule[] | undefined): boolean {
  return chain?.some((rule) => rule.statements.some((statement) => statement.kind === 'dnat-random')) === true;
}

/** Gives back the numbers of a port that goes. */
export function releaseSlots(objects: PortObjects, slots: Slots): void {
  for (const [chain, rules] of objects.chains) if (isDrawing(rules)) slots.release(chain);
}

/** One object for all rules that match a protocol. */
const PROTOCOL: Readonly<Record<Protocol, Statement>> = {
  tcp: { kind: 'protocol', protocol: 'tcp' },
  udp: { kind: 'protocol', protocol: 'udp' },
  sctp: { kind: 'protocol', protocol: 'sctp' },
};

function goto(chain: string): Statement {
  return { kind: 'verdict', verdict: { kind: 'goto', chain } };
}

function spread(rules: PortRules, chain: string, targets: readonly Target[], drawing: Drawing): Rule[] {
  if (rules.affinitySeconds === null) {
    const protocol = PROTOCOL[rules.id.protocol];
    const only = targets[0];
    if (targets.length === 1 && only !== undefined) return [{ statements: [protocol, { kind: 'dnat', target: only }] }];
    const { map: set, first } = drawing.slots.take(chain, rules.id.protocol, targets.length);
    drawing.drawn = [...drawing.drawn, { set, first, targets }];
    return [{ statements: [protocol, { kind: 'dnat-random', first, count: targets.length, map: set.name }] }];
  }
  const names = targets.map((target) => nftEndpointNames(rules.id, target.address, target.port));
  return [
    ...names.map(({ chain, affinity }): Rule => ({ statements: [{ kind: 'in-set', fields: ['saddr'], set: affinity }, goto(chain)] })),
    { statements: [{ kind: 'goto-random', chains: names.map(({ chain }) => chain) }] },
  ];
}

function externalChain(rules: PortRules, names: NftNames, settings: RuleSettings): Rule[] {
  const mark: Statement = { kind: 'set-mark', bits: settings.markBits };
  const chain: Rule[] = [];
  if (!rules.externalLocal) {
    chain.push({ statements: [mark], comment: 'masquerade' });
  } else {
    const pods = fromPods(settings.detector, settings.family, false);
    const fromNode: Statement = { kind: 'address-local', field: 'saddr' };
    if (pods !== null) chain.push({ statements: [pods, goto(names.cluster)], comment: 'short-circuit pod traffic' });
    chain.push({ statements: [fromNode, mark], comment: 'masquerade local traffic' });
    chain.push({ statements: [fromNode, goto(names.cluster)], comment: 'short-circuit local traffic' });
  }
  if (rules.external === 'cluster' || rules.external === 'local') chain.push({ statements: [goto(names[rules.external])] });
  return chain;
}

function firewallRule(rules: PortRules, settings: RuleSettings): Rule {
  const fromNode = rules.sourceRanges.some((range) => settings.nodeIP !== '' && cidrContains(parseCidr(range)!, settings.nodeIP));
  const own = rules.loadBalancerIPs.map((address) => `${address}/${settings.family === 'ip' ? 32 : 128}`);
  const cidrs = withoutCovered(fromNode ? [...rules.sourceRanges, ...own] : rules.sourceRanges);
  return {
    statements: [
      { kind: 'address-in', field: 'saddr', not: true, cidrs },
      { kind: 'verdict', verdict: { kind: 'drop' } },
    ],
  };
}

/** Chains draw their endpoints by number from one map; what they put there is collected. */
interface Drawing {
  slots: Slots;
  drawn: readonly Drawn[];
}

function portChains(rules: PortRules, names: NftNames, settings: RuleSettings, drawing: Drawing): Map<string, readonly Rule[]> {
  const chains = new Map<string, readonly Rule[]>();
  if (rules.affinitySeconds !== null) {
    for (const target of rules.reachable) {
      const { chain, affinity } = nftEndpointNames(rules.id, target.address, target.port);
      chains.set(chain, [
        { statements: [{ kind: 'remember', field: 'saddr', set: affinity }] },
        {
          statements: [PROTOCOL[rules.id.protocol], { kind: 'dnat', target }],
        },
      ]);
    }
  }
  if (rules.cluster.length > 0) chains.set(names.cluster, spread(rules, names.cluster, rules.cluster, drawing));
  if (rules.local.length > 0) chains.set(names.local, spread(rules, names.local, rules.local, drawing));
  if (rules.external !== null && rules.external !== 'reject') chains.set(names.external, externalChain(rules, names, settings));
  if (rules.sourceRanges.length > 0 && rules.loadBalancerIPs.length > 0) chains.set(names.firewall, [firewallRule(rules, settings)]);
  return chains;
}

function refusal(verdict: Verdict): NftVerdict | null {
  if (verdict === 'reject') return { kind: 'goto', chain: REJECT_CHAIN };
  return verdict === 'drop' ? { kind: 'drop' } : null;
}

function portElements(rules: PortRules, names: NftNames, settings: RuleSettings): { set: SetSpec; element: Element }[] {
  const { protocol } = rules.id;
  const comment = (): string => commentText(rules.label);
  const toService = (address: string): string[] => [address, protocol, String(rules.port)];
  const refusedInside = refusal(rules.internal);
  const key = toService(rules.clusterIP);
  const elements: { set: SetSpec; element: Element }[] = [
    { set: sets.clusterIPs, element: { key: [rules.clusterIP] } },
    refusedInside === null
      ? { set: sets.serviceIPs, element: { key, verdict: { kind: 'goto', chain: rules.internal === 'local' ? names.local : names.cluster } } }
      : { set: sets.noEndpointServices, element: { key, verdict: refusedInside, comment: comment() } },
  ];
  rules.onNode.forEach(({ address, port }) => elements.push({ set: sets.hairpin, element: { key: [address, address, protocol, String(port)] } }));
  if (rules.external === null) return elements;
  const refusedOutside = refusal(rules.external);
  const verdict: NftVerdict = { kind: 'goto', chain: names.external };
  for (const address of new Set([...rules.externalIPs, ...rules.loadBalancerIPs])) {
    if (rules.external !== 'reject') elements.push({ set: sets.serviceIPs, element: { key: toService(address), verdict } });
    if (refusedOutside !== null)
      elements.push({ set: sets.noEndpointServices, element: { key: toService(address), verdict: refusedOutside, comment: comment() } });
  }
  if (rules.sourceRanges.length > 0) {
    for (const address of rules.loadBalancerIPs)
      elements.push({ set: sets.firewallIPs, element: { key: toService(address), verdict: { kind: 'goto', chain: names.firewall } } });
  }
  if (rules.nodePort !== 0) {
    const nodePort = [protocol, String(rules.nodePort)];
    if (settings.refusedOnLocalhost?.includes(protocol) === true)
      elements.push({ set: sets.localhostRejects, element: { key: nodePort, verdict: { kind: 'goto', chain: localhostRejectChain(protocol) } } });
    if (rules.external !== 'reject') elements.push({ set: sets.serviceNodePorts, element: { key: nodePort, verdict } });
    if (refusedOutside !== null) elements.push({ set: sets.noEndpointNodePorts, element: { key: nodePort, verdict: refusedOutside, comment: comment() } });
  }
  return elements;
}

/** @param slots gives and takes back the numbers by which the port's chains draw their endpoints */
export function portObjects(rules: PortRules, settings: RuleSettings, slots: Slots): PortObjects {
  const names = nftNames(rules.id);
  const drawing: Drawing = { slots, drawn: NOTHING_DRAWN };
  const chains = portChains(rules, names, settings, drawing);
  [names.cluster, names.local].forEach((chain) => isDrawing(chains.get(chain)) || slots.release(chain));
  return {
    chains,
    affinitySets: affinitySets(rules),
    elements: portElements(rules, names, settings),
    drawn: drawing.drawn,
  };
}

const NOTHING_DRAWN: readonly Drawn[] = [];
const NO_SETS: readonly SetSpec[] = [];

function affinitySets(rules: PortRules): readonly SetSpec[] {
  const seconds = rules.affinitySeconds;
  if (seconds === null) return NO_SETS;
  return rules.reachable.map((target) => ({
    name: nftEndpointNames(rules.id, target.address, target.port).affinity,
    key: ['address'],
    timeoutSeconds: seconds,
  }));
}
