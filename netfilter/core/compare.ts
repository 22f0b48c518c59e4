import { chainKey, parseSaved, type IptablesRule, type Match, type SavedRules } from './iptables-rules.ts';
import { SHARED_CHAINS } from './iptables-service.ts';
import { isServiceChain as isIptablesServiceChain, OWN_CHAINS, TABLES } from './iptables-table.ts';
import { endpointMapOf } from './nft-table.ts';
import type { TextTable } from './trace-nft.ts';

/** What is in the kernel's tables beside what should be there, whoever wrote it: upstream's proxy says the same in other words. */

/** Rules and keys in a form in which equal meaning is equal text. */
export interface Contents {
  /** Rules by chain, in their order where that means something. */
  chains: ReadonlyMap<string, readonly string[]>;
  /** Keys with what they lead to, by map or set. */
  sets: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

export interface Difference {
  /** `chain NAME` or `map NAME`. */
  where: string;
  missing: readonly string[];
  extra: readonly string[];
}

function sortedList(text: string): string {
  return text
    .split(',')
    .map((item) => item.trim())
    .toSorted()
    .join(', ');
}

function nftRule(rule: string, table: TextTable): string {
  const endpoint = (map: string, number: number): string => table.sets.get(map)?.get(String(number)) ?? `nothing (${map} ${number})`;
  return rule
    .replaceAll(
      /dnat ip6?(?: addr \. port)? to numgen random mod (\d+)(?: offset (\d+))? map @(\S+)/g,
      (_, count: string, first = '0', map = '') =>
        `dnat to one of ${Array.from({ length: Number(count) }, (_unused, index) => endpoint(map, Number(first) + index))
          .toSorted()
          .join(', ')}`,
    )
    .replaceAll(
      /dnat ip6?(?: addr \. port)? to numgen random mod \d+ map \{ (.*?) \}/g,
      (_, list: string) => `dnat to one of ${sortedList(list.replaceAll(/\d+ : /g, ''))}`,
    )
    .replaceAll(/numgen random mod \d+ vmap \{ (.*?) \}/g, (_, list: string) => `goto one of ${sortedList(list.replaceAll(/\d+ : goto /g, ''))}`)
    .replaceAll(/dnat ip6? to /g, 'dnat to ')
    .replaceAll(/(?:mark and|meta mark &) (\S+) != 0(?:x0+)?/g, (_, bits: string) => `marked ${Number(bits)}`)
    .replaceAll(/(?:mark set mark or|meta mark set meta mark \|) (\S+)/g, (_, bits: string) => `set mark ${Number(bits)}`)
    .replaceAll(/(?:mark set mark xor|meta mark set meta mark \^) (\S+)/g, (_, bits: string) => `toggle mark ${Number(bits)}`)
    .replaceAll(/\{ ([^{}:]*) \}/g, (_, list: string) => `{ ${sortedList(list)} }`)
    .replaceAll(/\{ (\S+) \}/g, '$1')
    .replaceAll(/reject with \S+ \S+/g, 'reject');
}

/** A table of nftables mode. Chains that wait for their deletion, maps of endpoints and what packets wrote are left out. */
export function nftContents(table: TextTable): Contents {
  const chains = new Map<string, string[]>();
  for (const [name, rules] of table.chains) {
    if (rules.length > 0 || !name.includes('/'))
      chains.set(
        name,
        rules.map((rule) => nftRule(rule, table)),
      );
  }
  const sets = new Map([...table.sets].filter(([name]) => endpointMapOf(name) === null && !name.startsWith('affinity-')));
  return { chains, sets };
}

function iptablesMatch({ name, not, value }: Match): string | null {
  const said = (text: string): string => `${not ? '! ' : ''}${name} ${text}`.trim();
  switch (name) {
    case 'source':
    case 'destination':
      return said(value.includes('/') ? value : `${value}/${value.includes(':') ? 128 : 32}`);
    case 'probability':
      return said(Number(value).toFixed(6));
    case 'mark':
      return said(value.split('/').map(Number).join('/'));
    case 'ctstate':
      return said(value.split(',').toSorted().join(','));
    // Counters may be missing, and these are the tool's defaults.
    case 'nfacct-name':
    case 'mask':
    case 'rsource':
      return null;
    default:
      return said(value);
  }
}

function iptablesTarget(rule: IptablesRule): string {
  const options = rule.options.map(({ name, value }) => {
    if (name === 'or-mark') return `mark ${Number(value)}/${Number(value)}`;
    if (name === 'xor-mark') return `mark ${Number(value)}/0`;
    if (name === 'set-xmark') return `mark ${value.split('/').map(Number).join('/')}`;
    return name === 'reject-with' ? '' : `${name} ${value}`.trim();
  });
  return [`-> ${rule.target}`, ...options].filter((part) => part !== '').join(' ');
}

function iptablesRule(rule: IptablesRule): string {
  const matches = rule.matches.map(iptablesMatch).filter((match) => match !== null);
  return [...matches.toSorted(), iptablesTarget(rule)].join(' ');
}

const SHARED = new Set<string>(SHARED_CHAINS);

/** The proxy's chains of iptables mode, and the ways into them. */
export function iptablesContents(saved: SavedRules): Contents {
  const chains = new Map<string, string[]>();
  const own = new Set(TABLES.flatMap((table) => OWN_CHAINS[table].map((chain) => chainKey(table, chain))));
  for (const [key, rules] of saved.chains) {
    const chain = key.slice(key.indexOf(' ') + 1);
    if (own.has(key) || (key.startsWith('nat ') && isIptablesServiceChain(chain))) {
      const texts = rules.map(iptablesRule);
      chains.set(key, SHARED.has(key) ? texts.toSorted() : texts);
    } else if (/^[A-Z]+$/.test(chain)) {
      const ways = rules.filter((rule) => own.has(chainKey(key.slice(0, key.indexOf(' ')), rule.target))).map(iptablesRule);
      if (ways.length > 0) chains.set(key, ways.toSorted());
    }
  }
  return { chains, sets: new Map() };
}

/** What we would write, as input of `iptables-restore`. */
export function restoreContents(text: string): Contents {
  return iptablesContents(parseSaved(text.replaceAll(/^-I (\S+) \d+ /gm, '-A $1 ')));
}

function minus(from: readonly string[], other: readonly string[]): string[] {
  const left = new Map<string, number>();
  for (const item of other) left.set(item, (left.get(item) ?? 0) + 1);
  return from.filter((item) => {
    const count = left.get(item) ?? 0;
    left.set(item, count - 1);
    return count <= 0;
  });
}

/** Empty: the kernel has what it should have. */
export function compareContents(wanted: Contents, there: Contents): Difference[] {
  const differences: Difference[] = [];
  for (const name of new Set([...wanted.chains.keys(), ...there.chains.keys()])) {
    const want = wanted.chains.get(name);
    const have = there.chains.get(name);
    if (want === undefined) differences.push({ where: `chain ${name}`, missing: [], extra: have!.length === 0 ? ['(the chain itself)'] : have! });
    else if (have === undefined) differences.push({ where: `chain ${name}`, missing: want.length === 0 ? ['(the chain itself)'] : want, extra: [] });
    else if (want.join('\n') !== have.join('\n')) {
      const missing = minus(want, have);
      const extra = minus(have, want);
      const order = missing.length === 0 && extra.length === 0;
      differences.push({
        where: `chain ${name}`,
        missing: order ? want.map((rule, index) => `${index + 1}. ${rule}`) : missing,
        extra: order ? have.map((rule, index) => `${index + 1}. ${rule}`) : extra,
      });
    }
  }
  for (const name of new Set([...wanted.sets.keys(), ...there.sets.keys()])) {
    const texts = (keys: ReadonlyMap<string, string> | undefined): string[] =>
      [...(keys ?? [])].map(([key, value]) => (value === '' ? key : `${key} : ${value}`));
    const want = texts(wanted.sets.get(name));
    const have = texts(there.sets.get(name));
    const missing = minus(want, have);
    const extra = minus(have, want);
    if (missing.length > 0 || extra.length > 0) differences.push({ where: `map ${name}`, missing, extra });
  }
  return differences;
}
