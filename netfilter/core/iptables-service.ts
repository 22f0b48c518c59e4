import { cidrContains, hostPort, parseCidr } from './ip.ts';
import { iptablesEndpointName, iptablesNames, type IptablesNames } from './names.ts';
import type { PortRules, Target, Verdict } from './ruleset.ts';
import type { RuleSettings } from './settings.ts';

/** What one Service port has in iptables. A rule is its text without `-A CHAIN`; names and comments are kube-proxy's. */

/** Chains that all Service ports write to. */
export const SHARED_CHAINS = [
  'filter KUBE-SERVICES',
  'filter KUBE-EXTERNAL-SERVICES',
  'filter KUBE-NODEPORTS',
  'filter KUBE-PROXY-FIREWALL',
  'nat KUBE-SERVICES',
  'nat KUBE-NODEPORTS',
] as const;
export type SharedChain = (typeof SHARED_CHAINS)[number];

export interface PortChains {
  /** The port's own chains, all in nat. */
  chains: ReadonlyMap<string, readonly string[]>;
  shared: ReadonlyMap<SharedChain, readonly string[]>;
}

/** What does not change while the proxy runs. */
export interface IptablesOptions {
  /** Node ports answer on 127.0.0.0/8 too. */
  localhostNodePorts: boolean;
  /** Packets out of a connection's window are dropped rather than passed on untranslated. */
  dropInvalid: boolean;
  /** The kernel counts packets under these names (nfacct). */
  counters: boolean;
}

export const INVALID_COUNTER = 'ct_state_invalid_dropped_pkts';
export const LOCALHOST_COUNTER = 'localhost_nps_accepted_pkts';
export const MARK_CHAIN = 'KUBE-MARK-MASQ';

export function comment(text: string): string {
  return `-m comment --comment "${text}"`;
}

/** What says that a packet comes from a pod of this cluster, or (`not`) from elsewhere; null where that cannot be told. */
function fromPods({ detector, family }: RuleSettings, not: boolean): string | null {
  const sign = not ? '! ' : '';
  switch (detector.kind) {
    case 'none':
      return null;
    case 'cidr':
      // Asked for each Service, and the configuration was read before: a look at it is enough.
      return detector.cidr.includes(':') === (family === 'ip6') ? `${sign}-s ${detector.cidr}` : null;
    case 'bridge':
      return `${sign}-i ${detector.name}`;
    case 'prefix':
      return `${sign}-i ${detector.name}+`;
  }
}

class Port {
  readonly rules: PortRules;
  readonly settings: RuleSettings;
  readonly options: IptablesOptions;
  readonly brief: boolean;
  readonly names: IptablesNames;
  readonly chains = new Map<string, string[]>();
  readonly shared = new Map<SharedChain, string[]>();
  /** By address and port: a hash costs more than all else that is said of an endpoint, and its name is needed several times. */
  readonly #endpointNames = new Map<string, string>();

  constructor(rules: PortRules, settings: RuleSettings, options: IptablesOptions, brief: boolean) {
    this.rules = rules;
    this.settings = settings;
    this.options = options;
    this.brief = brief;
    this.names = iptablesNames(rules.id);
  }

  #share(chain: SharedChain, rule: string): void {
    const rules = this.shared.get(chain);
    if (rules === undefined) this.shared.set(chain, [rule]);
    else rules.push(rule);
  }

  #to(what: string, address: string, port: number): string {
    const { protocol } = this.rules.id;
    return `${comment(what)} -m ${protocol} -p ${protocol} -d ${address} --dport ${port}`;
  }

  #refusal(verdict: Verdict): { target: string; why: string } | null {
    if (verdict === 'reject') return { target: 'REJECT', why: `${this.rules.label} has no endpoints` };
    return verdict === 'drop' ? { target: 'DROP', why: `${this.rules.label} has no local endpoints` } : null;
  }

  /** Rules that lead from the Service's addresses to its chains, or to a refusal. */
  frontends(): void {
    const { rules, names } = this;
    const { label, port, clusterIP, internal, external } = rules;
    const inside = this.#refusal(internal);
    if (inside === null) {
      const chain = internal === 'local' ? names.local : names.cluster;
      this.#share('nat KUBE-SERVICES', `${this.#to(`${label} cluster IP`, clusterIP, port)} -j ${chain}`);
    } else {
      this.#share('filter KUBE-SERVICES', `${this.#to(inside.why, clusterIP, port)} -j ${inside.target}`);
    }
    if (rules.healthCheckNodePort !== 0) {
      const accept = `${comment(`${label} health check node port`)} -m tcp -p tcp --dport ${rules.healthCheckNodePort} -j ACCEPT`;
      this.#share('filter KUBE-NODEPORTS', accept);
    }
    if (external === null) return;
    const outside = this.#refusal(external);
    const refuse = (address: string): void => {
      if (outside !== null) this.#share('filter KUBE-EXTERNAL-SERVICES', `${this.#to(outside.why, address, port)} -j ${outside.target}`);
    };
    for (const address of rules.externalIPs) {
      if (external !== 'reject') this.#share('nat KUBE-SERVICES', `${this.#to(`${label} external IP`, address, port)} -j ${names.external}`);
      refuse(address);
    }
    const guarded = this.#isGuarded();
    for (const address of rules.loadBalancerIPs) {
      const chain = guarded ? names.firewall : names.external;
      if (external !== 'reject') this.#share('nat KUBE-SERVICES', `${this.#to(`${label} loadbalancer IP`, address, port)} -j ${chain}`);
      if (guarded) this.#share('filter KUBE-PROXY-FIREWALL', `${this.#to(`${label} traffic not accepted by ${names.firewall}`, address, port)} -j DROP`);
      refuse(address);
    }
    this.#nodePort(external, outside);
  }

  #nodePort(external: Verdict, outside: { target: string; why: string } | null): void {
    const { label, nodePort, id } = this.rules;
    if (nodePort === 0) return;
    const { localhostNodePorts, counters } = this.options;
    const protocol = `-m ${id.protocol} -p ${id.protocol}`;
    if (external !== 'reject') {
      if (localhostNodePorts && counters && this.settings.family === 'ip') {
        const counted = `-m nfacct --nfacct-name ${LOCALHOST_COUNTER} -j ${this.names.external}`;
        this.#share('nat KUBE-NODEPORTS', `${comment(label)} ${protocol} -d 127.0.0.0/8 --dport ${nodePort} ${counted}`);
      }
      this.#share('nat KUBE-NODEPORTS', `${comment(label)} ${protocol} --dport ${nodePort} -j ${this.names.external}`);
    }
    if (outside !== null) {
      const refused = `-m addrtype --dst-type LOCAL ${protocol} --dport ${nodePort} -j ${outside.target}`;
      this.#share('filter KUBE-EXTERNAL-SERVICES', `${comment(outside.why)} ${refused}`);
    }
  }

  /** Source ranges need a target to keep people from. */
  #isGuarded(): boolean {
    const { sourceRanges, loadBalancerIPs, external } = this.rules;
    return sourceRanges.length > 0 && loadBalancerIPs.length > 0 && external !== null && external !== 'reject';
  }

  /** The chains of the port, in which a connection finds its endpoint. */
  ownChains(): void {
    const { rules, names } = this;
    const { internal, external } = rules;
    if (external !== null && external !== 'reject') this.chains.set(names.external, this.#external(external));
    if (this.#isGuarded()) this.chains.set(names.firewall, this.#firewall());
    for (const way of ['cluster', 'local'] as const) {
      const masquerade = internal === way ? this.#masquerade() : [];
      if (rules[way].length > 0) this.chains.set(names[way], [...masquerade, ...this.#spread(rules[way])]);
    }
    for (const target of rules.reachable) this.chains.set(this.#endpointChain(target), this.#endpoint(target));
  }

  #masquerade(): string[] {
    const { label, clusterIP, port } = this.rules;
    const to = this.#to(`${label} cluster IP`, clusterIP, port);
    if (this.settings.masqueradeAll) return [`${to} -j ${MARK_CHAIN}`];
    const notPods = fromPods(this.settings, true);
    return notPods === null ? [] : [`${to} ${notPods} -j ${MARK_CHAIN}`];
  }

  #external(verdict: Verdict): string[] {
    const { names } = this;
    const { label, externalLocal } = this.rules;
    const chain: string[] = [];
    if (!externalLocal) {
      chain.push(`${comment(`masquerade traffic for ${label} external destinations`)} -j ${MARK_CHAIN}`);
    } else {
      const pods = fromPods(this.settings, false);
      const fromNode = '-m addrtype --src-type LOCAL';
      if (pods !== null) chain.push(`${comment(`pod traffic for ${label} external destinations`)} ${pods} -j ${names.cluster}`);
      chain.push(`${comment(`masquerade LOCAL traffic for ${label} external destinations`)} ${fromNode} -j ${MARK_CHAIN}`);
      chain.push(`${comment(`route LOCAL traffic for ${label} external destinations`)} ${fromNode} -j ${names.cluster}`);
    }
    if (verdict === 'cluster' || verdict === 'local') chain.push(`-j ${names[verdict]}`);
    return chain;
  }

  #firewall(): string[] {
    const { names } = this;
    const { label, sourceRanges, loadBalancerIPs } = this.rules;
    const { nodeIP } = this.settings;
    const nodeIsIn = nodeIP !== '' && sourceRanges.some((range) => cidrContains(parseCidr(range)!, nodeIP));
    const sources = nodeIsIn ? [...sourceRanges, ...loadBalancerIPs] : sourceRanges;
    return [
      ...sources.map((source) => `${comment(`${label} loadbalancer IP`)} -s ${source} -j ${names.external}`),
      comment(`other traffic to ${label} will be dropped by KUBE-PROXY-FIREWALL`),
    ];
  }

  #endpointChain({ address, port }: Target): string {
    const of = hostPort(address, port);
    let name = this.#endpointNames.get(of);
    if (name === undefined) this.#endpointNames.set(of, (name = iptablesEndpointName(this.rules.id, address, port)));
    return name;
  }

  #spread(targets: readonly Target[]): string[] {
    const { label, affinitySeconds } = this.rules;
    const ways = targets.map((target) => ({
      chain: this.#endpointChain(target),
      said: this.brief ? '' : `${comment(`${label} -> ${hostPort(target.address, target.port)}`)} `,
    }));
    const sticky = ways.map(({ chain, said }) => `${said}-m recent --name ${chain} --rcheck --seconds ${affinitySeconds} --reap -j ${chain}`);
    const choices = ways.map(({ chain, said }, index) => {
      const left = ways.length - index;
      return `${said}${left === 1 ? '' : `-m statistic --mode random --probability ${(1 / left).toFixed(10)} `}-j ${chain}`;
    });
    return affinitySeconds === null ? choices : [...sticky, ...choices];
  }

  #endpoint(target: Target): string[] {
    const { label, id, affinitySeconds } = this.rules;
    const said = this.brief ? '' : `${comment(label)} `;
    const remember = affinitySeconds === null ? '' : `-m recent --name ${this.#endpointChain(target)} --set `;
    return [
      `${said}-s ${target.address} -j ${MARK_CHAIN}`,
      `${said}${remember}-m ${id.protocol} -p ${id.protocol} -j DNAT --to-destination ${hostPort(target.address, target.port)}`,
    ];
  }
}

/** @param brief leave out the comments of endpoints, which are most of a large table */
export function portChains(rules: PortRules, settings: RuleSettings, options: IptablesOptions, brief: boolean): PortChains {
  const port = new Port(rules, settings, options, brief);
  port.frontends();
  port.ownChains();
  return { chains: port.chains, shared: port.shared };
}
