/**
 * Addresses and names of one set: a hub (control plane and the switch between nodes) and its nodes. Everything
 * follows from the set's number and the node's number, so that nothing has to be asked for or remembered.
 */
/** Whose kubelet a node has. */
export type AgentKind = 'ours' | 'upstream';
/** Whose service proxy a node has, and in which mode. */
export type ProxyKind = 'nftables' | 'iptables' | 'upstream-nftables' | 'upstream-iptables';
/** Whose pod network: ours, or the reference plugins ptp, host-local and portmap. */
export type CniKind = 'nodelet' | 'reference';
/** How kubelets come to their credentials: made by us beforehand, or asked for with a bootstrap token as kubeadm's nodes do. */
export type JoinKind = 'certificate' | 'token';

export interface SetPlan {
  readonly name: string;
  /** 0 for the first set on the machine, 1 for the one beside it, … */
  readonly index: number;
  readonly state: string;
  readonly hub: HubPlan;
  readonly serviceCidr: string;
  readonly podCidr: string;
  /** First address of the Service range: the API server's Service. */
  readonly serviceIp: string;
  readonly dnsIp: string;
  /** URL of the API server. */
  readonly server: string;
  readonly controlPlane: 'embedded' | 'real';
  readonly join: JoinKind;
  /** Whether the API server writes an audit log. */
  readonly audit: boolean;
  readonly cni: CniKind;
  /** The second family's ranges; null: IPv4 alone. */
  readonly ipv6: Ipv6Ranges | null;
  readonly nodes: readonly NodePlan[];
}

export interface Ipv6Ranges {
  readonly podCidr: string;
  readonly serviceCidr: string;
  readonly hubIp: string;
}

export interface HubPlan {
  readonly subnet: string;
  readonly ip: string;
  /** The host's address on the one link between host and hub. */
  readonly hostIp: string;
  readonly hostLink: string;
  readonly dir: string;
}

export interface NodePlan {
  readonly name: string;
  readonly number: number;
  readonly ip: string;
  readonly podCidr: string;
  /** Its own and its pods' of the second family. */
  readonly ipv6: { readonly ip: string; readonly podCidr: string } | null;
  readonly dir: string;
  /** Below the cgroup file system's root, leading slash. */
  readonly cgroup: string;
  readonly agent: AgentKind;
  readonly proxy: ProxyKind;
}

export interface SetOptions {
  readonly name: string;
  readonly index: number;
  readonly stateHome: string;
  readonly nodeCount: number;
  readonly controlPlane: 'embedded' | 'real';
  /** One for all nodes, or one a node in their order and then from the first again; ours when absent. */
  readonly agents?: readonly AgentKind[];
  /** As `agents`; when absent that of the node's kubelet's maker. */
  readonly proxies?: readonly ProxyKind[];
  readonly join?: JoinKind;
  readonly audit?: boolean;
  /** The reference plugins when absent. */
  readonly cni?: CniKind;
  /** Nodes, pods and Services of both families. */
  readonly dualStack?: boolean;
  /** Given by the user; derived from the set's number when absent. */
  readonly subnet?: string;
  readonly serviceCidr?: string;
  readonly podCidr?: string;
}

export const MAX_NODES = 100;
export const MAX_SETS = 12;

/** Works out the plan. Subnets must have the form a.b.c.0/24 (hub) and a.b.0.0/16 (pods, Services); checked by `subnetProblem`. */
export function planSet(options: SetOptions): SetPlan {
  const state = `${options.stateHome}/${options.name}`;
  const subnet = options.subnet ?? `10.89.${options.index}.0/24`;
  const serviceCidr = options.serviceCidr ?? `10.${96 + options.index}.0.0/16`;
  const podCidr = options.podCidr ?? `10.${244 - 2 * options.index}.0.0/16`;
  const base = subnet.slice(0, subnet.lastIndexOf('.'));
  const podBase = podCidr.split('.').slice(0, 2).join('.');
  const serviceBase = serviceCidr.split('.').slice(0, 2).join('.');
  const isDual = options.dualStack === true;
  // From 1 on: a group of zeros would be left out of the text form.
  const group = (options.index + 1).toString(16);
  const nodes = Array.from({ length: options.nodeCount }, (_, at): NodePlan => {
    const number = at + 1;
    const agent = each(options.agents, at) ?? 'ours';
    return {
      name: `node-${number}`,
      number,
      ip: `${base}.${10 + number}`,
      podCidr: `${podBase}.${number}.0/24`,
      ipv6: isDual ? { ip: `fd00:89:${group}::${(10 + number).toString(16)}`, podCidr: `fd00:244:${group}:${number.toString(16)}::/64` } : null,
      dir: `${state}/nodes/node-${number}`,
      cgroup: `${cgroupOf(options.name)}/node-${number}`,
      agent,
      proxy: each(options.proxies, at) ?? (agent === 'ours' ? 'nftables' : 'upstream-nftables'),
    };
  });
  return {
    name: options.name,
    index: options.index,
    state,
    hub: { subnet, ip: `${base}.1`, hostIp: `${base}.254`, hostLink: `nodelet${options.index}`, dir: `${state}/hub` },
    serviceCidr,
    podCidr,
    serviceIp: `${serviceBase}.0.1`,
    dnsIp: `${serviceBase}.0.10`,
    server: `https://${base}.1:6443`,
    controlPlane: options.controlPlane,
    join: options.join ?? 'certificate',
    audit: options.audit ?? false,
    cni: options.cni ?? 'reference',
    ipv6: isDual ? { podCidr: `fd00:244:${group}::/48`, serviceCidr: `fd00:96:${group}::/112`, hubIp: `fd00:89:${group}::1` } : null,
    nodes,
  };
}

/** Ranges and addresses of both families, where there are two; the first family first. */
export const podCidrsOf = (of: SetPlan | NodePlan): string[] => [of.podCidr, ...(of.ipv6 === null ? [] : [of.ipv6.podCidr])];
export const serviceCidrsOf = (set: SetPlan): string[] => [set.serviceCidr, ...(set.ipv6 === null ? [] : [set.ipv6.serviceCidr])];
export const nodeIpsOf = (node: NodePlan): string[] => [node.ip, ...(node.ipv6 === null ? [] : [node.ipv6.ip])];

const each = <T>(list: readonly T[] | undefined, at: number): T | undefined => list?.[at % list.length];

/** The cgroup that holds everything of a set. */
export function cgroupOf(name: string): string {
  return `/nodelet-${name}`;
}

/** What is wrong with a set's name, or null. */
export function nameProblem(name: string): string | null {
  return /^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$/.test(name) ? null : `"${name}" is not a name: use at most 32 lower-case letters, digits and dashes`;
}

/** What is wrong with a subnet that a user gave, or null. */
export function subnetProblem(text: string, prefix: 16 | 24): string | null {
  const match = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})\/(\d{1,2})$/.exec(text);
  const parts = match?.slice(1, 5).map(Number) ?? [];
  const zeros = prefix === 24 ? parts[3] === 0 : parts[2] === 0 && parts[3] === 0;
  if (match === null || parts.some((part) => part > 255) || Number(match[5]) !== prefix || !zeros) {
    return `"${text}" is not a subnet of the form ${prefix === 24 ? '10.89.0.0/24' : '10.244.0.0/16'}`;
  }
  return null;
}

function range(cidr: string): [number, number] {
  const [address = '', length = '32'] = cidr.split('/');
  const start = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  const size = 2 ** (32 - Number(length));
  const from = Math.floor(start / size) * size;
  return [from, from + size - 1];
}

/** Whether two IPv4 subnets share an address. */
export function overlap(a: string, b: string): boolean {
  const [aFrom, aTo] = range(a);
  const [bFrom, bTo] = range(b);
  return aFrom <= bTo && bFrom <= aTo;
}

/** A subnet of a plan that is not free, and the flag that chooses another. */
export interface Conflict {
  readonly flag: '--subnet' | '--pod-cidr' | '--service-cidr';
  readonly text: string;
}

/** Subnets of a plan that share addresses with each other, or with routes (other than the default) and links of the host. */
export function conflicts(plan: SetPlan, routes: readonly { dst: string; dev: string }[]): Conflict[] {
  const wanted: [string, Conflict['flag']][] = [
    [plan.hub.subnet, '--subnet'],
    [plan.podCidr, '--pod-cidr'],
    [plan.serviceCidr, '--service-cidr'],
  ];
  const found: Conflict[] = [];
  for (const [at, [cidr, flag]] of wanted.entries()) {
    for (const [other, otherFlag] of wanted.slice(0, at))
      if (overlap(cidr, other)) found.push({ flag, text: `${cidr} shares addresses with ${other} of ${otherFlag}: choose another with ${flag}` });
  }
  for (const route of routes) {
    if (route.dst === 'default' || route.dev === plan.hub.hostLink || route.dst.includes(':')) continue;
    for (const [cidr, flag] of wanted) {
      if (overlap(cidr, route.dst)) found.push({ flag, text: `${cidr} is taken by ${route.dst} on ${route.dev}: choose another with ${flag}` });
    }
  }
  return found;
}
