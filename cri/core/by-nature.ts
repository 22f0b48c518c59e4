/** What two recordings of the same kubelet may differ in, by the name that stands for it. */
export interface Names {
  /** Exact texts: UIDs, addresses, names that were made up. */
  readonly texts: ReadonlyMap<string, string>;
}

const PATTERNS: readonly (readonly [RegExp, string])[] = [
  [/(\/containers\/[^/\s]+\/)[0-9a-f]{8}\b/g, '$1<made up>'],
  [/ in [\d.]+m?s \([\d.]+m?s including waiting\)/g, ' in <duration> (<duration> including waiting)'],
  [/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)/g, '<time>'],
  [/\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+/g, '..<stamp>'],
  [/sha256:[0-9a-f]{64}/g, 'sha256:<digest>'],
  [/\b[0-9a-f]{64}\b/g, '<id>'],
  [/kube-api-access-[a-z0-9]{5}\b/g, 'kube-api-access-<suffix>'],
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, '<uid>'],
];
const ADDRESSES = /(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){2,7})(?![\w.:]*\w)/gi;
/** No pattern finds anything in a text without a number. */
const NUMBER = /\d/;

export type Namer = (text: string) => string;

/**
 * Puts names in place of what was made up for this run. Whatever looks like an address is named too where `addresses`
 * says so; else only those that `names` has.
 */
export function namer({ texts }: Names, addresses = false): Namer {
  // Longer ones first, and no part of a number: an address may begin another.
  const exact = [...texts]
    .filter(([from]) => from !== '')
    .sort(([a], [b]) => b.length - a.length)
    .map(([from, to]) => [from, new RegExp(`${from.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}(?!\\d)`, 'g'), to] as const);
  return (text) => {
    let out = text;
    for (const [from, pattern, to] of exact) if (out.includes(from)) out = out.replaceAll(pattern, () => to);
    if (!NUMBER.test(out) && !out.includes('kube-api-access-')) return out;
    for (const [pattern, name] of PATTERNS) out = out.replaceAll(pattern, name);
    return addresses ? out.replaceAll(ADDRESSES, '<address>') : out;
  };
}

/** The same of everything within a value; keys too. Numbers that are times of the runtime (nanoseconds) are named. */
export function nameWithin(value: unknown, name: Namer): unknown {
  if (typeof value === 'string') return /^1\d{18}$/.test(value) ? '<time>' : name(value);
  if (Array.isArray(value)) return value.map((item) => nameWithin(item, name));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [name(key), nameWithin(inner, name)]));
}

/** As `nameWithin`, for names that are at hand. */
export function normalise(value: unknown, names: Names): unknown {
  return nameWithin(value, namer(names));
}

/** Upstream's order of variables is Go's random one of maps, other at every start: it says nothing, and is made one. */
export function settleEnvironment<T>(entries: readonly T[], nameOf: (entry: T) => string): T[] {
  return [...entries].sort((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
}
