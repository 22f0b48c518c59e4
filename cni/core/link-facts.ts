import { addressOf, type Address, type Cidr } from './address.ts';
import { linkHeader, RTM } from './link-ops.ts';
import { attributes, messagesOf, MessageWriter, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, readText } from '../../base/netlink.ts';

/** What a network namespace has, as rtnetlink tells. */

export interface LinkFact {
  readonly index: number;
  readonly name: string;
  readonly mac: string;
  readonly mtu: number;
  readonly isUp: boolean;
}

export interface AddressFact {
  readonly link: number;
  readonly address: Cidr;
}

export interface RouteFact {
  readonly dst: Cidr;
  readonly gateway: Address | null;
  readonly link: number;
  readonly protocol: number;
  readonly metric: number;
}

export interface NeighbourFact {
  readonly link: number;
  readonly mac: string;
  /** Of a neighbour its address, of a forwarding entry the machine behind which it is. */
  readonly address: Address;
}

const RT_TABLE_MAIN = 254;
const RTN_UNICAST = 1;
const IFLA = { address: 1, name: 3, mtu: 4 } as const;
const NUD_PERMANENT = 0x80;

const AF_OF: Readonly<Record<number, 4 | 6>> = { 2: 4, 10: 6 };

/** Asks for everything of a kind; answered with one end of dump. */
export function encodeDump(what: 'links' | 'addresses' | 'routes' | 'neighbours' | 'forwards'): Uint8Array {
  const writer = new MessageWriter(64);
  const types = { links: RTM.getLink, addresses: RTM.getAddress, routes: RTM.getRoute, neighbours: RTM.getNeighbour, forwards: RTM.getNeighbour } as const;
  const length = { links: 16, addresses: 8, routes: 12, neighbours: 12, forwards: 12 }[what];
  const head = new Uint8Array(length);
  if (what === 'forwards') head[0] = 7;
  writer.end(writer.open(types[what], NLM_F_REQUEST | NLM_F_DUMP, 1, head));
  return writer.finish();
}

/** Asks for one link, by number or name. */
export function encodeGetLink(link: number | string): Uint8Array {
  const writer = new MessageWriter(64);
  const token = writer.open(RTM.getLink, NLM_F_REQUEST | NLM_F_ACK, 1, linkHeader(typeof link === 'number' ? link : 0, 0));
  if (typeof link === 'string') writer.text(IFLA.name, link);
  writer.end(token);
  return writer.finish();
}

const word = (bytes: Uint8Array | undefined): number =>
  bytes === undefined || bytes.length < 4 ? 0 : (bytes[0]! | (bytes[1]! << 8) | (bytes[2]! << 16) | (bytes[3]! << 24)) >>> 0;
const macText = (bytes: Uint8Array | undefined): string => [...(bytes ?? [])].map((byte) => byte.toString(16).padStart(2, '0')).join(':');
const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

export function decodeLinks(datagrams: Iterable<Uint8Array>): LinkFact[] {
  const links: LinkFact[] = [];
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== RTM.newLink || payload.length < 16) continue;
    const found = attributes(payload, 16);
    links.push({
      index: viewOf(payload).getInt32(4, true),
      name: readText(found.get(IFLA.name)),
      mac: macText(found.get(IFLA.address)),
      mtu: word(found.get(IFLA.mtu)),
      isUp: (viewOf(payload).getUint32(8, true) & 1) !== 0,
    });
  }
  return links;
}

export function decodeAddresses(datagrams: Iterable<Uint8Array>): AddressFact[] {
  const list: AddressFact[] = [];
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== RTM.newAddress || payload.length < 8) continue;
    const found = attributes(payload, 8);
    const address = addressOf(found.get(2) ?? found.get(1) ?? new Uint8Array());
    if (address !== null) list.push({ link: viewOf(payload).getUint32(4, true), address: { ...address, prefix: payload[1]! } });
  }
  return list;
}

/** Unicast routes of the main table with one way. */
export function decodeRoutes(datagrams: Iterable<Uint8Array>): RouteFact[] {
  const list: RouteFact[] = [];
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== RTM.newRoute || payload.length < 12 || payload[7] !== RTN_UNICAST) continue;
    const family = AF_OF[payload[0]!];
    const found = attributes(payload, 12);
    const table = found.has(15) ? word(found.get(15)) : payload[4]!;
    if (family === undefined || table !== RT_TABLE_MAIN) continue;
    const dst = addressOf(found.get(1) ?? new Uint8Array(family === 4 ? 4 : 16));
    if (dst === null) continue;
    list.push({
      dst: { ...dst, prefix: payload[1]! },
      gateway: found.has(5) ? addressOf(found.get(5)!) : null,
      link: word(found.get(4)),
      protocol: payload[5]!,
      metric: word(found.get(6)),
    });
  }
  return list;
}

/** Permanent ones alone: those that somebody wrote. */
export function decodeNeighbours(datagrams: Iterable<Uint8Array>): NeighbourFact[] {
  const list: NeighbourFact[] = [];
  for (const { type, payload } of messagesOf(datagrams)) {
    if (type !== RTM.newNeighbour || payload.length < 12 || (viewOf(payload).getUint16(8, true) & NUD_PERMANENT) === 0) continue;
    const found = attributes(payload, 12);
    const address = addressOf(found.get(1) ?? new Uint8Array());
    if (address !== null && found.has(2)) list.push({ link: viewOf(payload).getInt32(4, true), mac: macText(found.get(2)), address });
  }
  return list;
}

/** The link that leads to the outside: that of the default route with the lowest metric, IPv4's first. 0 when there is none. */
export function uplinkOf(routes: readonly RouteFact[]): number {
  const best = routes.filter((route) => route.dst.prefix === 0 && route.link !== 0).sort((a, b) => a.dst.family - b.dst.family || a.metric - b.metric);
  return best[0]?.link ?? 0;
}
