import { BlockList, isIPv6 } from 'node:net';

/** What an engine calls its own: its bridges, and the subnets of its networks. */
export interface Networks {
  readonly bridges: readonly string[];
  readonly subnets: readonly string[];
}

/** What `docker network inspect` of bridges tells (Docker Engine API, NetworkInspect). */
export interface DockerNetwork {
  readonly Id: string;
  readonly Options?: Readonly<Record<string, string>> | null;
  readonly IPAM?: { readonly Config?: readonly { readonly Subnet?: string }[] | null };
}

/** A bridge is named by its option, or by the first twelve digits of its network's id. */
export function networksOf(networks: readonly DockerNetwork[]): Networks {
  return {
    bridges: networks.map(({ Id, Options }) => Options?.['com.docker.network.bridge.name'] ?? `br-${Id.slice(0, 12)}`),
    subnets: networks.flatMap(({ IPAM }) => (IPAM?.Config ?? []).flatMap(({ Subnet }) => (Subnet === undefined ? [] : [Subnet]))),
  };
}

const isOfDocker = (chain: string): boolean => /^DOCKER(-|$)/.test(chain);
/** People put rules of their own into this one, which an engine leaves alone. */
const USERS = 'DOCKER-USER';

/**
 * What takes an ended engine's rules away, as input of `iptables-restore --noflush`, from what `iptables-save` tells: the
 * chains named DOCKER, the rules that jump to them, and those that name its bridges or its containers. Empty when there is none.
 */
export function withoutDocker(saved: string, { bridges, subnets }: Networks): string {
  const inside = new BlockList();
  for (const subnet of subnets) {
    const [address = '', bits = ''] = subnet.split('/');
    inside.addSubnet(address, Number(bits), isIPv6(address) ? 'ipv6' : 'ipv4');
  }
  const isContainer = (address: string): boolean => inside.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
  const tables = saved.split(/^(?=\*)/m).filter((text) => text.startsWith('*'));
  const parts = tables.map((text) => {
    const lines = text.split('\n');
    const rules = lines.filter((line) => line.startsWith('-A '));
    const chainOf = (rule: string): string => rule.split(' ')[1] ?? '';
    const isUsed = rules.some((rule) => chainOf(rule) === USERS && rule !== `-A ${USERS} -j RETURN`);
    const isGoing = (chain: string): boolean => isOfDocker(chain) && !(chain === USERS && isUsed);
    const chains = lines.flatMap((line) => /^:(\S+) -/.exec(line)?.[1] ?? []).filter(isGoing);
    const target = (rule: string): string => / -[jg] (\S+)/.exec(rule)?.[1] ?? '';
    const namesBridge = (rule: string): boolean => bridges.some((bridge) => new RegExp(` -[io] ${bridge}( |$)`).test(rule));
    // The way of a container back to itself through a port that it publishes.
    const isHairpin = (rule: string): boolean => {
      const [, from = '', to = ''] = / -s (\S+)\/\d+ -d (\S+)\/\d+ .*-j MASQUERADE/.exec(rule) ?? [];
      return from !== '' && from === to && isContainer(from);
    };
    const going = rules.filter((rule) => !isGoing(chainOf(rule)) && chainOf(rule) !== USERS && (isGoing(target(rule)) || namesBridge(rule) || isHairpin(rule)));
    const orders = [...going.map((rule) => `-D ${rule.slice(3)}`), ...chains.map((chain) => `-F ${chain}`), ...chains.map((chain) => `-X ${chain}`)];
    return orders.length === 0 ? '' : [lines[0], ...orders, 'COMMIT', ''].join('\n');
  });
  return parts.join('');
}

/** Tables of `iptables-save` that hold nothing: no rule, no chain of anybody's, and nothing is refused. */
export function emptyTables(saved: string): string[] {
  const tables = saved.split(/^(?=\*)/m).filter((text) => text.startsWith('*'));
  return tables.filter((text) => !/^-A /m.test(text) && !/^:\S+ (-|DROP)/m.test(text)).map((text) => /^\*(\S+)/.exec(text)?.[1] ?? '');
}

export const tablesIn = (saved: string): string[] => [...saved.matchAll(/^\*(\S+)/gm)].map(([, name]) => name ?? '');
