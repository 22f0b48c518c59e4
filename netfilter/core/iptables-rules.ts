/** Rules as `iptables-save` prints them and as we write them, read into their parts. */

export interface Match {
  /** The option's long name: `-s` is `source`. */
  name: string;
  not: boolean;
  value: string;
}

export interface IptablesRule {
  chain: string;
  matches: readonly Match[];
  target: string;
  /** Options of the target, in their order. */
  options: readonly Match[];
  comment: string;
  text: string;
}

export interface SavedRules {
  /** By table and chain; a chain without rules is there, too. */
  chains: ReadonlyMap<string, readonly IptablesRule[]>;
  /** Verdict of a built-in chain at its end. */
  policies: ReadonlyMap<string, string>;
}

const LONG: Readonly<Record<string, string>> = {
  s: 'source',
  d: 'destination',
  p: 'protocol',
  i: 'in-interface',
  o: 'out-interface',
  m: 'match',
  j: 'jump',
  g: 'goto',
};
/** Options without a value. */
const FLAGS = new Set(['rcheck', 'set', 'reap', 'rsource', 'rdest', 'random-fully', 'update', 'rttl', 'fragment']);

export function chainKey(table: string, chain: string): string {
  return `${table} ${chain}`;
}

function words(text: string): string[] {
  return [...text.matchAll(/"((?:[^"\\]|\\.)*)"|(\S+)/g)].map(([, quoted, plain]) => quoted?.replaceAll(/\\(.)/g, '$1') ?? plain!);
}

/** A rule from `-A CHAIN …` on. */
export function parseRule(line: string): IptablesRule {
  const [, chain = '', ...rest] = words(line);
  const matches: Match[] = [];
  const options: Match[] = [];
  let target = '';
  let comment = '';
  let not = false;
  for (let at = 0; at < rest.length; at++) {
    const word = rest[at]!;
    if (word === '!') {
      not = true;
      continue;
    }
    const short = word.replace(/^-+/, '');
    const name = word.startsWith('--') ? short : (LONG[short] ?? short);
    const value = FLAGS.has(name) ? '' : (rest[++at] ?? '');
    if (name === 'comment') comment = value;
    else if (name === 'jump' || name === 'goto') target = name === 'goto' ? `goto ${value}` : value;
    else if (name !== 'match') (target === '' ? matches : options).push({ name, not, value });
    not = false;
  }
  return { chain, matches, target, options, comment, text: line };
}

/** Reads the output of `iptables-save`, of any number of tables. */
export function parseSaved(text: string): SavedRules {
  const chains = new Map<string, IptablesRule[]>();
  const policies = new Map<string, string>();
  let table = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('*')) table = line.slice(1);
    else if (line.startsWith(':')) {
      const [chain = '', policy = ''] = line.slice(1).split(' ');
      chains.set(chainKey(table, chain), []);
      if (policy !== '-') policies.set(chainKey(table, chain), policy);
    } else if (line.startsWith('-A ')) {
      const rule = parseRule(line);
      const key = chainKey(table, rule.chain);
      const rules = chains.get(key);
      if (rules === undefined) chains.set(key, [rule]);
      else rules.push(rule);
    }
  }
  return { chains, policies };
}
