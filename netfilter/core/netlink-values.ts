import { ipBytes, parseCidr, putPlainIpv4, prefixMask, type Family } from './ip.ts';
import type { MessageWriter } from './netlink.ts';
import type { FieldType, NetworkTarget, Verdict } from './ops.ts';

/** Addresses, ports, keys and verdicts as the kernel's bytes. */

export const VERDICT_CODE = { drop: 0, jump: 0xfffffffd, goto: 0xfffffffc } as const;
/** nft's own numbers of data types; the kernel only stores them. */
export const TYPE_NUMBER = { ipv4: 7, ipv6: 8, protocol: 12, port: 13, random: 4, verdictIndex: 11 } as const;
export const PROTOCOLS: Record<string, number> = { tcp: 6, udp: 17, sctp: 132 };

export function protocolNumber(name: string): number {
  return PROTOCOLS[name] ?? Number(name);
}

function typeNumber(type: FieldType, family: Family): number {
  if (type === 'address') return family === 'ip' ? TYPE_NUMBER.ipv4 : TYPE_NUMBER.ipv6;
  return TYPE_NUMBER[type];
}

function fieldLength(type: FieldType, family: Family): number {
  if (type === 'address') return family === 'ip' ? 4 : 16;
  return 4;
}

export function keyTypeNumber(key: readonly FieldType[], family: Family): number {
  return key.reduce((number, type) => (number << 6) | typeNumber(type, family), 0);
}

export function keyLength(key: readonly FieldType[], family: Family): number {
  return key.reduce((length, type) => length + fieldLength(type, family), 0);
}

/** Room for one key or value on its way into a message: nothing in it outlives the call that writes it there. */
const ROOM = new Uint8Array(64);

function word(at: number, b0: number, b1: number, b2: number, b3: number): void {
  ROOM[at] = b0;
  ROOM[at + 1] = b1;
  ROOM[at + 2] = b2;
  ROOM[at + 3] = b3;
}

/** Puts an address where it belongs in the room and returns the place behind it. */
function roomAddress(at: number, text: string, family: Family): number {
  if (family === 'ip' && putPlainIpv4(ROOM, at, text)) return at + 4;
  const length = family === 'ip' ? 4 : 16;
  ROOM.set(ipBytes(text).subarray(0, length), at);
  return at + length;
}

/** A key in the room; every field of a concatenation is padded to 4. Returns its length. */
function roomKey(fields: readonly string[], key: readonly FieldType[], family: Family): number {
  let at = 0;
  for (let index = 0; index < key.length; index++) {
    const type = key[index]!;
    const text = fields[index] ?? '';
    if (type === 'address') {
      at = roomAddress(at, text, family);
      continue;
    }
    const number = type === 'protocol' ? protocolNumber(text) : Number(text);
    if (type === 'protocol') word(at, number, 0, 0, 0);
    else if (type === 'random') word(at, number & 0xff, (number >>> 8) & 0xff, (number >>> 16) & 0xff, number >>> 24);
    else word(at, number >> 8, number & 0xff, 0, 0);
    at += 4;
  }
  return at;
}

function roomTarget(target: NetworkTarget, family: Family): number {
  const at = roomAddress(0, target.address, family);
  word(at, target.port >> 8, target.port & 0xff, 0, 0);
  return at + 4;
}

/** A key as NFTA_DATA_VALUE inside an attribute of type `type`. */
export function putKey(writer: MessageWriter, type: number, fields: readonly string[], key: readonly FieldType[], family: Family): void {
  const data = writer.nest(type);
  writer.part(1, ROOM, roomKey(fields, key, family));
  writer.unnest(data);
}

/** The same for an endpoint. */
export function putTarget(writer: MessageWriter, type: number, target: NetworkTarget, family: Family): void {
  const data = writer.nest(type);
  writer.part(1, ROOM, roomTarget(target, family));
  writer.unnest(data);
}

/** Writes an endpoint's address over what stands at `addressAt`, its port over what stands at `portAt`. */
export function patchTarget(writer: MessageWriter, addressAt: number, portAt: number, target: NetworkTarget, family: Family): void {
  writer.patch(addressAt, ROOM, roomAddress(0, target.address, family));
  word(0, target.port >> 8, target.port & 0xff, 0, 0);
  writer.patch(portAt, ROOM, 2);
}

/** In the machine's byte order, as numbers that a rule draws are. */
export function hostWord(value: number): Uint8Array {
  return Uint8Array.of(value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, value >>> 24);
}

/** NFTA_DATA_VERDICT inside an attribute of type `type`. */
export function putVerdict(writer: MessageWriter, type: number, verdict: Verdict): void {
  const data = writer.nest(type);
  const inner = writer.nest(2);
  writer.u32(1, VERDICT_CODE[verdict.kind]);
  if (verdict.kind !== 'drop') writer.text(2, verdict.chain);
  writer.unnest(inner);
  writer.unnest(data);
}

export function putValue(writer: MessageWriter, type: number, value: Uint8Array): void {
  const data = writer.nest(type);
  writer.bytes(1, value);
  writer.unnest(data);
}

/** Masked address and mask of a prefix, for one that does not end at a byte. */
export function cidrBytes(cidr: string): { address: Uint8Array; mask: Uint8Array; prefix: number } {
  const parsed = parseCidr(cidr)!;
  const address = ipBytes(parsed.address);
  return { address, mask: prefixMask(address.length, parsed.prefix), prefix: parsed.prefix };
}
