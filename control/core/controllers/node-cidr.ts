import ipaddr from 'ipaddr.js';

/** The first range of `prefix` bits within `cluster` that none of `used` overlaps; undefined when all are taken. */
export function freeCidr(cluster: string, prefix: number, used: readonly string[]): string | undefined {
  const [network, bits] = ipaddr.IPv4.parseCIDR(cluster);
  const base = toNumber(network.octets) & (bits === 0 ? 0 : (-1 << (32 - bits)) >>> 0);
  const size = 2 ** (32 - prefix);
  const taken = used.flatMap((cidr) => {
    try {
      const [address, length] = ipaddr.IPv4.parseCIDR(cidr);
      const first = toNumber(address.octets);
      return [{ first, last: first + 2 ** (32 - length) - 1 }];
    } catch {
      return [];
    }
  });
  for (let index = 0; index < 2 ** (prefix - bits); index++) {
    const first = (base >>> 0) + index * size;
    if (taken.every((range) => first + size - 1 < range.first || first > range.last)) return `${toText(first)}/${prefix}`;
  }
  return undefined;
}

function toNumber(octets: readonly number[]): number {
  return octets.reduce((sum, octet) => sum * 256 + octet, 0);
}

function toText(address: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join('.');
}
