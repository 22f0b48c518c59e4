/** What two recordings of the same kubelet may differ in, by the name that stands for it. */
export interface Names {
  /** Exact texts: UIDs, addresses, names that were made up. */
  readonly texts: ReadonlyMap<string, string>;
}

const PATTERNS: readonly [RegExp, string][] = [
  [/(\/containers\/[^/\s]+\/)[0-9a-f]{8}\b/g, '$1<made up>'],
  [/ in [\d.]+m?s \([\d.]+m?s including waiting\)/g, ' in <duration> (<duration> including waiting)'],
  [/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)/g, '<time>'],
  [/\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+/g, '..<stamp>'],
  [/sha256:[0-9a-f]{64}/g, 'sha256:<digest>'],
  [/\b[0-9a-f]{64}\b/g, '<id>'],
  [/kube-api-access-[a-z0-9]{5}\b/g, 'kube-api-access-<suffix>'],
  [/\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/g, '<uid>'],
];

/** A text with names in place of what was made up for this run. */
export function normaliseText(text: string, { texts }: Names): string {
  let out = text;
  // Longer ones first, and no part of a number: an address may begin another.
  for (const [from, to] of [...texts].sort(([a], [b]) => b.length - a.length)) {
    if (from !== '' && out.includes(from)) out = out.replaceAll(new RegExp(`${from.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}(?!\\d)`, 'g'), to);
  }
  for (const [pattern, name] of PATTERNS) out = out.replaceAll(pattern, name);
  return out;
}

/** The same of everything within a value; keys too. Numbers that are times of the runtime (nanoseconds) are named. */
export function normalise(value: unknown, names: Names): unknown {
  if (typeof value === 'string') return /^1\d{18}$/.test(value) ? '<time>' : normaliseText(value, names);
  if (Array.isArray(value)) return value.map((item) => normalise(item, names));
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [normaliseText(key, names), normalise(inner, names)]));
}

export interface Difference {
  /** `cri[3].request.config.labels.app`. */
  readonly path: string;
  readonly upstream: unknown;
  readonly ours: unknown;
}

/** Every leaf in which two values differ; lists are compared place by place. */
export function differences(upstream: unknown, ours: unknown, path = ''): Difference[] {
  if (Object.is(upstream, ours)) return [];
  if (Array.isArray(upstream) && Array.isArray(ours)) {
    return Array.from({ length: Math.max(upstream.length, ours.length) }, (_, at) => differences(upstream[at], ours[at], `${path}[${at}]`)).flat();
  }
  if (isObject(upstream) && isObject(ours)) {
    const keys = new Set([...Object.keys(upstream), ...Object.keys(ours)]);
    return [...keys].sort().flatMap((key) => differences(upstream[key], ours[key], path === '' ? key : `${path}.${key}`));
  }
  return [{ path, upstream, ours }];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
