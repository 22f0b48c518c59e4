import { ipBytes, parseCidr, prefixMask, type Family } from './ip.ts';
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

/** A key as bytes; every field of a concatenation is padded to 4. */
export function keyBytes(fields: readonly string[], key: readonly FieldType[], family: Family): Uint8Array {
  const bytes = new Uint8Array(keyLength(key, family));
  let at = 0;
  for (let index = 0; index < key.length; index++) {
    const type = key[index]!;
    const text = fields[index] ?? '';
    if (type === 'address') bytes.set(ipBytes(text).subarray(0, fieldLength(type, family)), at);
    else if (type === 'protocol') bytes[at] = protocolNumber(text);
    else if (type === 'random') bytes.set(hostWord(Number(text)), at);
    else {
      const port = Number(text);
      bytes[at] = port >> 8;
      bytes[at + 1] = port & 0xff;
    }
    at += fieldLength(type, family);
  }
  return bytes;
}

/** In the machine's byte order, as numbers that a rule draws are. */
export function hostWord(value: number): Uint8Array {
  return Uint8Array.of(value & 0xff, (value >>> 8) & 0xff, (value >>> 16) & 0xff, value >>> 24);
}

export function targetBytes(target: NetworkTarget, family: Family): Uint8Array {
  return keyBytes([target.address, String(target.port)], ['address', 'port'], family);
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
