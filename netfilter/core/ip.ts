import ipaddr from 'ipaddr.js';

/** The two address families of nftables; each has a table of its own. */
export type Family = 'ip' | 'ip6';

function withoutLeadingZeros(text: string): string {
  return /^[0-9.]+$/.test(text) ? text.replaceAll(/(^|\.)0+(?=[0-9])/g, '$1') : text;
}

function parse(text: string): ipaddr.IPv4 | ipaddr.IPv6 | null {
  const plain = withoutLeadingZeros(text);
  // The library also takes "10.1" and "0x7f.1", which no Kubernetes object means.
  if (!plain.includes(':') && !/^\d{1,3}(\.\d{1,3}){3}$/.test(plain)) return null;
  if (plain.includes('%') || !ipaddr.isValid(plain)) return null;
  const address = ipaddr.parse(plain);
  return address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
}

/** An IPv4 address as most are written: nothing to make canonical. */
const PLAIN_IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

/** Canonical text (RFC 5952 for IPv6), or null when it is no address. Leading zeros are decimal, as in Go's sloppy parser. */
export function canonicalIp(text: string): string | null {
  if (PLAIN_IPV4.test(text)) return text;
  const address = parse(text);
  if (address === null) return null;
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
}

/** Canonical text of an address of that family; null for any other. */
export function ipOf(text: string, family: Family): string | null {
  if (PLAIN_IPV4.test(text)) return family === 'ip' ? text : null;
  return familyOf(text) === family ? canonicalIp(text) : null;
}

export function familyOf(text: string): Family | null {
  if (PLAIN_IPV4.test(text)) return 'ip';
  const address = parse(text);
  if (address === null) return null;
  return address.kind() === 'ipv4' ? 'ip' : 'ip6';
}

/** Writes an IPv4 address as most are written; false when it is none. */
export function putPlainIpv4(bytes: Uint8Array, at: number, text: string): boolean {
  let part = -1;
  let end = at;
  for (let index = 0; index <= text.length; index++) {
    const code = index === text.length ? DOT : text.charCodeAt(index);
    if (code === DOT) {
      if (part < 0 || part > 255 || end === at + 4) return false;
      bytes[end++] = part;
      part = -1;
    } else if (code < ZERO || code > ZERO + 9 || part === 0) return false;
    else part = part < 0 ? code - ZERO : 10 * part + code - ZERO;
  }
  return end === at + 4;
}

const DOT = 0x2e;
const ZERO = 0x30;

/** Network byte order; 4 or 16 bytes. */
export function ipBytes(text: string): Uint8Array {
  const plain = new Uint8Array(4);
  if (putPlainIpv4(plain, 0, text)) return plain;
  const address = parse(text);
  return Uint8Array.from(address === null ? [] : address.toByteArray());
}

export interface Cidr {
  family: Family;
  /** First address, canonical text. */
  address: string;
  prefix: number;
}

function bitsOf(family: Family): number {
  return family === 'ip' ? 32 : 128;
}

/** A CIDR with its host bits cleared; null when it is none. */
export function parseCidr(text: string): Cidr | null {
  const slash = text.indexOf('/');
  if (slash < 0) return null;
  const bytes = ipBytes(text.slice(0, slash));
  const prefixText = text.slice(slash + 1);
  if (bytes.length === 0 || !/^\d{1,3}$/.test(prefixText)) return null;
  const family: Family = bytes.length === 4 ? 'ip' : 'ip6';
  const prefix = Number(prefixText);
  if (prefix > bitsOf(family)) return null;
  return { family, address: bytesToIp(maskBytes(bytes, prefix)), prefix };
}

export function cidrText(cidr: Cidr): string {
  return `${cidr.address}/${cidr.prefix}`;
}

/** A netmask of `prefix` bits over `length` bytes. */
export function prefixMask(length: number, prefix: number): Uint8Array {
  const mask = new Uint8Array(length);
  for (let bit = 0; bit < prefix; bit++) mask[bit >> 3]! |= 0x80 >> (bit & 7);
  return mask;
}

function maskBytes(bytes: Uint8Array, prefix: number): Uint8Array {
  const mask = prefixMask(bytes.length, prefix);
  return bytes.map((byte, index) => byte & mask[index]!);
}

export function bytesToIp(bytes: Uint8Array): string {
  if (bytes.length === 4) return bytes.join('.');
  const address = ipaddr.fromByteArray([...bytes]);
  return address instanceof ipaddr.IPv6 ? address.toRFC5952String() : address.toString();
}

export function cidrContains(cidr: Cidr, address: string): boolean {
  const bytes = ipBytes(address);
  if (familyOf(address) !== cidr.family) return false;
  return bytesToIp(maskBytes(bytes, cidr.prefix)) === cidr.address;
}

/** First and last address of a CIDR as numbers, for interval sets. */
export function cidrRange(cidr: Cidr): { first: bigint; last: bigint } {
  const first = bytesToNumber(ipBytes(cidr.address));
  const span = 1n << BigInt(bitsOf(cidr.family) - cidr.prefix);
  return { first, last: first + span - 1n };
}

export function bytesToNumber(bytes: Uint8Array): bigint {
  let value = 0n;
  for (const byte of bytes) value = (value << 8n) | BigInt(byte);
  return value;
}

export function numberToBytes(value: bigint, length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let rest = value;
  for (let index = length - 1; index >= 0; index--) {
    bytes[index] = Number(rest & 0xffn);
    rest >>= 8n;
  }
  return bytes;
}

/** Whether it is 127.0.0.0/8 or ::1. */
export function isLoopback(text: string): boolean {
  const canonical = canonicalIp(text);
  return canonical !== null && (canonical === '::1' || (canonical.startsWith('127.') && !canonical.includes(':')));
}

/** `ip:port`, with brackets around IPv6. */
export function hostPort(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Without those that another one covers: the kernel refuses overlapping intervals. Order is kept. */
export function withoutCovered(cidrs: readonly string[]): string[] {
  const parsed = [...new Set(cidrs)].map((text) => ({ text, cidr: parseCidr(text)! }));
  return parsed
    .filter(({ cidr }) => !parsed.some((other) => other.cidr.prefix < cidr.prefix && cidrContains(other.cidr, cidr.address)))
    .map(({ text }) => text);
}
