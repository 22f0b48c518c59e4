/** Addresses as numbers, without a package: this room starts once a pod. Text form of IPv6: RFC 5952. */

export type Family = 4 | 6;

export interface Address {
  readonly family: Family;
  readonly value: bigint;
}

export interface Cidr extends Address {
  readonly prefix: number;
}

export const bitsOf = (family: Family): number => (family === 4 ? 32 : 128);

function parseV4(text: string): bigint | null {
  const parts = text.split('.');
  if (parts.length !== 4) return null;
  let value = 0n;
  for (const part of parts) {
    if (!/^\d{1,3}$/.test(part) || Number(part) > 255 || (part.length > 1 && part.startsWith('0'))) return null;
    value = (value << 8n) | BigInt(part);
  }
  return value;
}

function parseV6(text: string): bigint | null {
  let rest = text;
  const tail: string[] = [];
  const dotted = /^(.*:)(\d+\.\d+\.\d+\.\d+)$/.exec(text);
  if (dotted !== null) {
    const v4 = parseV4(dotted[2]!);
    if (v4 === null) return null;
    rest = `${dotted[1]}${(v4 >> 16n).toString(16)}:${(v4 & 0xffffn).toString(16)}`;
  }
  const halves = rest.split('::');
  if (halves.length > 2) return null;
  const head = halves[0] === '' ? [] : halves[0]!.split(':');
  if (halves.length === 2 && halves[1] !== '') tail.push(...halves[1]!.split(':'));
  const missing = 8 - head.length - tail.length;
  if (halves.length === 1 ? missing !== 0 : missing < 1) return null;
  let value = 0n;
  for (const group of [...head, ...Array.from({ length: Math.max(0, missing) }, () => '0'), ...tail]) {
    if (!/^[0-9a-f]{1,4}$/i.test(group)) return null;
    value = (value << 16n) | BigInt(`0x${group}`);
  }
  return value;
}

/** Null when it is no address; an IPv4 address in IPv6 form (::ffff:a.b.c.d) is IPv4. */
export function parseAddress(text: string): Address | null {
  if (!text.includes(':')) {
    const value = parseV4(text);
    return value === null ? null : { family: 4, value };
  }
  const value = parseV6(text);
  if (value === null) return null;
  return value >> 32n === 0xffffn ? { family: 4, value: value & 0xffffffffn } : { family: 6, value };
}

/** `address/prefix` as written: host bits stay. Null when it is none. */
export function parseAddressPrefix(text: string): Cidr | null {
  const slash = text.indexOf('/');
  const address = slash < 0 ? null : parseAddress(text.slice(0, slash));
  const digits = text.slice(slash + 1);
  if (address === null || !/^\d{1,3}$/.test(digits) || Number(digits) > bitsOf(address.family)) return null;
  return { ...address, prefix: Number(digits) };
}

/** A network: host bits are cleared. Null when it is none. */
export function parseCidr(text: string): Cidr | null {
  const found = parseAddressPrefix(text);
  return found === null ? null : { ...found, value: firstOf(found) };
}

/** The network's first address. */
export function firstOf(cidr: Cidr): bigint {
  const host = BigInt(bitsOf(cidr.family) - cidr.prefix);
  return (cidr.value >> host) << host;
}

/** The network's last address. */
export function lastOf(cidr: Cidr): bigint {
  return firstOf(cidr) + (1n << BigInt(bitsOf(cidr.family) - cidr.prefix)) - 1n;
}

export function contains(cidr: Cidr, address: Address): boolean {
  return cidr.family === address.family && address.value >= firstOf(cidr) && address.value <= lastOf(cidr);
}

/** Network byte order; 4 or 16 bytes. */
export function bytesOf(address: Address): Uint8Array {
  const bytes = new Uint8Array(address.family === 4 ? 4 : 16);
  let rest = address.value;
  for (let at = bytes.length - 1; at >= 0; at--) {
    bytes[at] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  return bytes;
}

/** Of 4 or 16 bytes in network byte order; null for any other length. */
export function addressOf(bytes: Uint8Array): Address | null {
  if (bytes.length !== 4 && bytes.length !== 16) return null;
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return { family: bytes.length === 4 ? 4 : 6, value };
}

export function addressText({ family, value }: Address): string {
  if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => String((value >> shift) & 0xffn)).join('.');
  const groups = Array.from({ length: 8 }, (_, at) => Number((value >> BigInt(112 - 16 * at)) & 0xffffn));
  let best = { at: 0, length: 0 };
  for (let at = 0; at < 8; at++) {
    let end = at;
    while (end < 8 && groups[end] === 0) end++;
    if (end - at > best.length) best = { at, length: end - at };
  }
  const hex = groups.map((group) => group.toString(16));
  if (best.length < 2) return hex.join(':');
  return `${hex.slice(0, best.at).join(':')}::${hex.slice(best.at + best.length).join(':')}`;
}

export function cidrText(cidr: Cidr): string {
  return `${addressText(cidr)}/${cidr.prefix}`;
}
