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

function setWord(bytes: Uint8Array, at: number, b0: number, b1: number, b2: number, b3: number): void {
  bytes[at] = b0;
  bytes[at + 1] = b1;
  bytes[at + 2] = b2;
  bytes[at + 3] = b3;
}

/** A number that a rule draws. */
export function setNumber(bytes: Uint8Array, at: number, number: number): void {
  setWord(bytes, at, number & 0xff, (number >>> 8) & 0xff, (number >>> 16) & 0xff, number >>> 24);
}

/** Writes an address and returns the place behind it. */
function setAddress(bytes: Uint8Array, at: number, text: string, family: Family): number {
  const length = fieldLength('address', family);
  if (family === 'ip6' || !putPlainIpv4(bytes, at, text)) bytes.set(ipBytes(text).subarray(0, length), at);
  return at + length;
}

/** Writes a key, every field of a concatenation padded to 4, and returns the place behind it. */
export function setKey(bytes: Uint8Array, begin: number, fields: readonly string[], key: readonly FieldType[], family: Family): number {
  let at = begin;
  for (let index = 0; index < key.length; index++) {
    const type = key[index]!;
    const text = fields[index] ?? '';
    if (type === 'address') {
      at = setAddress(bytes, at, text, family);
      continue;
    }
    const number = type === 'protocol' ? protocolNumber(text) : Number(text);
    if (type === 'protocol') setWord(bytes, at, number, 0, 0, 0);
    else if (type === 'random') setNumber(bytes, at, number);
    else setWord(bytes, at, number >> 8, number & 0xff, 0, 0);
    at += 4;
  }
  return at;
}

/** Writes an endpoint, whose port stands behind its address or elsewhere. */
export function setTarget(bytes: Uint8Array, at: number, target: NetworkTarget, family: Family, portAt?: number): void {
  const end = setAddress(bytes, at, target.address, family);
  const port = portAt ?? end;
  bytes[port] = target.port >> 8;
  bytes[port + 1] = target.port & 0xff;
}

/** A key as NFTA_DATA_VALUE inside an attribute of type `type`. */
export function putKey(writer: MessageWriter, type: number, fields: readonly string[], key: readonly FieldType[], family: Family): void {
  const data = writer.nest(type);
  const at = writer.room(1, keyLength(key, family));
  setKey(writer.buffer, at, fields, key, family);
  writer.unnest(data);
}

/** The same for an endpoint. */
export function putTarget(writer: MessageWriter, type: number, target: NetworkTarget, family: Family): void {
  const data = writer.nest(type);
  const at = writer.room(1, keyLength(['address', 'port'], family));
  setTarget(writer.buffer, at, target, family);
  writer.unnest(data);
}

/** In the machine's byte order, as numbers that a rule draws are. */
export function hostWord(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  setNumber(bytes, 0, value);
  return bytes;
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
