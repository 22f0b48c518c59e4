import { cidrText, contains, parseCidr, type Cidr, type Family } from './address.ts';

/** Parts of rules as nft writes them. */

export interface Match {
  /** Null: both. */
  readonly family: Family | null;
  readonly text: string;
}

export type End = 'saddr' | 'daddr';
/** By protocol; from 0 to 65535 is the whole protocol. */
export type PortRanges = Map<string, (readonly [number, number])[]>;

export const FAMILIES: readonly Family[] = [4, 6];
export const IP = { 4: 'ip', 6: 'ip6' } as const;
const LAST_PORT = 65_535;

/** An end that is in a pair of sets, one a family. */
export function named(set: string, end: End): Match[] {
  return FAMILIES.map((family) => ({ family, text: `${IP[family]} ${end} @${set}-${family}` }));
}

/** A destination in a pair of sets of addresses and ports, or in ranges of ports. */
export function portMatch(ports: string | PortRanges): Match[] {
  if (typeof ports === 'string') return FAMILIES.map((family) => ({ family, text: `${IP[family]} daddr . meta l4proto . th dport @${ports}-${family}` }));
  return [...ports].map(([protocol, list]) => {
    const ranges = joined(list);
    const isWhole = ranges.some(([from, to]) => from === 0 && to === LAST_PORT);
    return {
      family: null,
      text: isWhole ? `meta l4proto ${protocol}` : `${protocol} dport { ${ranges.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(', ')} }`,
    };
  });
}

/** An end in one of these networks. */
export function networkMatch(cidrs: readonly Cidr[], end: End): Match[] {
  return FAMILIES.flatMap((family): Match[] => {
    const own = widest(cidrs.filter((cidr) => cidr.family === family));
    if (own.length === 0) return [];
    if (own[0]!.prefix === 0) return [{ family, text: `meta nfproto ipv${family}` }];
    const list = own.map(cidrText);
    return [{ family, text: `${IP[family]} ${end} ${list.length === 1 ? list[0] : `{ ${list.join(', ')} }`}` }];
  });
}

/** NetworkPolicy's ipBlock: a network without parts of it. */
export function blockMatch(block: { cidr: string; except?: string[] }, end: End): Match[] {
  const cidr = parseCidr(block.cidr);
  if (cidr === null) return [];
  const ip = IP[cidr.family];
  const except = widest((block.except ?? []).flatMap((text) => parseCidr(text) ?? []).filter((one) => one.family === cidr.family));
  if (except.some((one) => one.prefix === 0)) return [];
  return networkMatch([cidr], end).map(({ family, text }) => ({
    family,
    text: except.length === 0 ? text : `${text} ${ip} ${end} != { ${except.map(cidrText).join(', ')} }`,
  }));
}

/** Anonymous sets of ranges take no overlap. */
function joined(ranges: readonly (readonly [number, number])[]): [number, number][] {
  const sorted = [...ranges].sort((a, b) => a[0] - b[0]);
  const result: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = result.at(-1);
    if (last !== undefined && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else result.push([from, to]);
  }
  return result;
}

/** Of networks that lie in each other the widest, which comes first. */
function widest(cidrs: readonly Cidr[]): Cidr[] {
  const sorted = [...cidrs].sort((a, b) => a.prefix - b.prefix);
  const kept: Cidr[] = [];
  for (const cidr of sorted) if (!kept.some((one) => contains(one, cidr))) kept.push(cidr);
  return kept;
}
