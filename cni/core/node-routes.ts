import { addressText, cidrText, contains, firstOf, parseAddress, parseCidr, type Address } from './address.ts';
import type { AddressFact, LinkFact, NeighbourFact, RouteFact } from './link-facts.ts';
import { ROUTE_PROTOCOL, type LinkOp, type RouteOp } from './link-ops.ts';
import { macOf } from './names.ts';

/** The ways to other nodes' pods: a route where a link reaches the node, a tunnel where none does. */

export interface NodeFacts {
  readonly name: string;
  readonly addresses: readonly string[];
  readonly podCIDRs: readonly string[];
}

export interface Overlay {
  readonly mode: 'auto' | 'always' | 'never';
  readonly vni: number;
  readonly port: number;
}

export const OVERLAY_LINK = 'nodelet-vx';
/** What a packet gains in the tunnel: outer IP, UDP, VXLAN and inner Ethernet headers. */
const VXLAN_BYTES: Readonly<Record<4 | 6, number>> = { 4: 50, 6: 70 };

export interface WantedWays {
  /** `link` 0 is the tunnel's, whose number nobody knows before it is made. */
  readonly routes: readonly RouteOp[];
  readonly tunnel: { readonly local: Address; readonly mac: string; readonly mtu: number } | null;
  readonly neighbours: readonly { readonly address: Address; readonly mac: string }[];
  readonly forwards: readonly { readonly mac: string; readonly to: Address }[];
  /** Nodes whose pods cannot be reached, each with the reason. */
  readonly unreachable: readonly string[];
}

const tunnelMac = (address: Address): string => macOf(`vxlan\n${addressText(address)}`);
const parsed = (texts: readonly string[]): Address[] => texts.flatMap((text) => parseAddress(text) ?? []);

/** Works the ways out from the Node objects and the links of this node. */
export function planWays(
  own: NodeFacts,
  others: readonly NodeFacts[],
  facts: { addresses: readonly AddressFact[]; links: readonly LinkFact[] },
  overlay: Overlay,
): WantedWays {
  const tunnelIndex = facts.links.find((link) => link.name === OVERLAY_LINK)?.index ?? -1;
  const local = facts.addresses.filter(
    (one) => one.link !== tunnelIndex && one.address.prefix > 0 && one.address.prefix < (one.address.family === 4 ? 32 : 128),
  );
  const ownAddresses = parsed(own.addresses);
  const routes: RouteOp[] = [];
  const neighbours: { address: Address; mac: string }[] = [];
  const forwards: { mac: string; to: Address }[] = [];
  const unreachable: string[] = [];
  let tunnel: WantedWays['tunnel'] = null;
  for (const node of others) {
    const addresses = parsed(node.addresses);
    for (const text of node.podCIDRs) {
      const dst = parseCidr(text);
      if (dst === null) continue;
      const reached = addresses
        .filter((address) => address.family === dst.family)
        .flatMap((address) => {
          const link = local.find((one) => contains(one.address, address));
          return link === undefined ? [] : [{ address, link: link.link }];
        })[0];
      if (overlay.mode !== 'always' && reached !== undefined) {
        routes.push({ dst, gateway: reached.address, link: reached.link, protocol: ROUTE_PROTOCOL.node });
        continue;
      }
      const from = ownAddresses.find((address) => addresses.some((other) => other.family === address.family));
      const to = addresses.find((address) => address.family === from?.family);
      if (overlay.mode === 'never' || from === undefined || to === undefined) {
        unreachable.push(
          `${node.name}: ${overlay.mode === 'never' ? `no link leads to ${node.addresses.join(', ')} and the overlay is off` : 'no address of a common family'}`,
        );
        continue;
      }
      const link = facts.addresses.find((one) => addressText(one.address) === addressText(from))?.link;
      const mtu = facts.links.find((one) => one.index === link)?.mtu ?? 1500;
      tunnel ??= { local: from, mac: tunnelMac(from), mtu: mtu - VXLAN_BYTES[from.family] };
      const mac = tunnelMac(to);
      const gateway: Address = { family: dst.family, value: firstOf(dst) };
      routes.push({ dst, gateway, link: 0, onLink: true, protocol: ROUTE_PROTOCOL.node });
      neighbours.push({ address: gateway, mac });
      if (!forwards.some((one) => one.mac === mac)) forwards.push({ mac, to });
    }
  }
  return { routes, tunnel, neighbours, forwards, unreachable: [...new Set(unreachable)] };
}

/** Making or removing the tunnel; the rest follows once its number is known. */
export function tunnelOps(wanted: WantedWays, links: readonly LinkFact[], overlay: Overlay): LinkOp[] {
  const there = links.find((link) => link.name === OVERLAY_LINK);
  if (there !== undefined && wanted.tunnel !== null && there.mac === wanted.tunnel.mac && there.mtu === wanted.tunnel.mtu) return [];
  return [
    ...(there === undefined ? [] : [{ op: 'delete-link', link: OVERLAY_LINK } as const]),
    ...(wanted.tunnel === null ? [] : [{ op: 'add-vxlan', name: OVERLAY_LINK, ...wanted.tunnel, vni: overlay.vni, port: overlay.port } as const]),
  ];
}

interface Observed {
  readonly routes: readonly RouteFact[];
  readonly neighbours: readonly NeighbourFact[];
  readonly forwards: readonly NeighbourFact[];
  /** Number of the tunnel's link; 0 when there is none. */
  readonly tunnel: number;
}

const routeKey = (route: Pick<RouteOp, 'dst' | 'gateway' | 'link'>): string =>
  `${cidrText(route.dst)} ${route.gateway === null ? '' : addressText(route.gateway)} ${route.link}`;

/** What is missing or wrong, and what is ours and not wanted any more. Others' routes are never touched. */
export function wayOps(wanted: WantedWays, observed: Observed): LinkOp[] {
  const ops: LinkOp[] = [];
  const routes = wanted.routes.map((route) => (route.link === 0 ? { ...route, link: observed.tunnel } : route));
  const ours = observed.routes.filter((route) => route.protocol === ROUTE_PROTOCOL.node);
  const have = new Set(ours.map(routeKey));
  const want = new Set(routes.map(routeKey));
  const wantedTargets = new Set(routes.map((route) => cidrText(route.dst)));
  // What goes first: a replaced route would be deleted by its destination otherwise.
  for (const route of ours)
    if (!want.has(routeKey(route)) && !wantedTargets.has(cidrText(route.dst)))
      ops.push({ op: 'delete-route', dst: route.dst, gateway: route.gateway, link: route.link, protocol: route.protocol });
  const link = observed.tunnel;
  if (link !== 0) {
    const neighbourKey = (one: { address: Address; mac: string }): string => `${addressText(one.address)} ${one.mac}`;
    const there = observed.neighbours.filter((one) => one.link === link);
    const forwards = observed.forwards.filter((one) => one.link === link);
    const wantedNeighbours = new Set(wanted.neighbours.map(neighbourKey));
    const wantedForwards = new Set(wanted.forwards.map((one) => neighbourKey({ address: one.to, mac: one.mac })));
    for (const one of there) if (!wantedNeighbours.has(neighbourKey(one))) ops.push({ op: 'delete-neighbour', link, address: one.address, mac: one.mac });
    for (const one of forwards) if (!wantedForwards.has(neighbourKey(one))) ops.push({ op: 'delete-forward', link, mac: one.mac, to: one.address });
    const haveNeighbours = new Set(there.map(neighbourKey));
    const haveForwards = new Set(forwards.map(neighbourKey));
    for (const one of wanted.forwards)
      if (!haveForwards.has(neighbourKey({ address: one.to, mac: one.mac }))) ops.push({ op: 'set-forward', link, mac: one.mac, to: one.to });
    for (const one of wanted.neighbours) if (!haveNeighbours.has(neighbourKey(one))) ops.push({ op: 'set-neighbour', link, ...one });
  }
  for (const route of routes) if (!have.has(routeKey(route))) ops.push({ op: 'replace-route', ...route });
  return ops;
}
