/** One spec of a Ginkgo suite, as a dry run lists it. */
export interface Spec {
  /** The texts of its containers and its own, joined by blanks: what reports and `--focus` call it. */
  readonly name: string;
  readonly labels: readonly string[];
}

/** Suites by the SIG that owns a spec; `other` is what the named ones leave over. */
const SIGS: Readonly<Record<string, string>> = {
  node: 'sig-node',
  storage: 'sig-storage',
  network: 'sig-network',
  apps: 'sig-apps',
  auth: 'sig-auth',
  api: 'sig-api-machinery',
  cli: 'sig-cli',
  scheduling: 'sig-scheduling',
};

/** What `--suite` takes for e2e.test: a SIG's share of the judged specs, all of them, or every spec that the binary has. */
export const E2E_SUITES = [...Object.keys(SIGS), 'all', 'every'] as const;

/** The suite a spec is counted in. */
export function suiteOf(name: string): string {
  const sig = /^\[(sig-[a-z-]+)\]/.exec(name)?.[1];
  return Object.entries(SIGS).find(([, value]) => value === sig)?.[0] ?? 'other';
}

const has = (spec: Spec, label: string): boolean => spec.labels.includes(label) || spec.name.includes(`[${label}]`);

/** Whether Kubernetes promises it of every cluster or of every node: what the scoreboard counts. */
export const isJudged = (spec: Spec): boolean => has(spec, 'Conformance') || has(spec, 'NodeConformance');

export const isConformance = (spec: Spec): boolean => has(spec, 'Conformance');
export const isNodeConformance = (spec: Spec): boolean => has(spec, 'NodeConformance');
export const isSlow = (spec: Spec): boolean => has(spec, 'Slow');

/** Whether it must be alone on the cluster: others' pods would fail it, or it would fail theirs. */
export const runsAlone = (spec: Spec): boolean => has(spec, 'Serial') || has(spec, 'Disruptive');

export interface Selection {
  readonly suite: string;
  /** Regular expressions on names; a spec must match one of them. None: all match. */
  readonly focus: readonly string[];
  readonly skip: readonly string[];
  /** `i/n`: the i-th of n parts, counted from 1. */
  readonly shard?: { readonly index: number; readonly of: number };
}

/** The specs that a selection names, sorted by name. Parts of a shard are dealt like cards, so that each has its share of the slow ones. */
export function select(specs: readonly Spec[], selection: Selection): Spec[] {
  const focus = selection.focus.map((text) => new RegExp(text));
  const skip = selection.skip.map((text) => new RegExp(text));
  const { suite, shard } = selection;
  return specs
    .filter((spec) => (suite === 'every' ? true : isJudged(spec) && (suite === 'all' || suiteOf(spec.name) === suite)))
    .filter((spec) => (focus.length === 0 || focus.some((one) => one.test(spec.name))) && !skip.some((one) => one.test(spec.name)))
    .sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))
    .filter((_, at) => shard === undefined || at % shard.of === shard.index - 1);
}

/** Reads `i/n`; null when it is none. */
export function parseShard(text: string): { index: number; of: number } | null {
  const [, first, second] = /^(\d{1,4})\/(\d{1,4})$/.exec(text) ?? [];
  const shard = { index: Number(first), of: Number(second) };
  return first !== undefined && shard.index >= 1 && shard.index <= shard.of ? shard : null;
}

/** What is wrong with a regular expression, or null. */
export function patternProblem(text: string): string | null {
  try {
    return new RegExp(text) instanceof RegExp ? null : 'no expression';
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Longest argument: Linux takes 128 KiB in one. */
const ARGUMENT_BYTES = 60_000;

/**
 * `--focus` arguments (Go's syntax) that match exactly these names; Ginkgo puts the suite's description and a blank
 * before a name and joins several arguments with `|`.
 */
export function focusArguments(description: string, names: readonly string[]): string[] {
  const quote = (text: string): string => text.replaceAll(/[\\.+*?()|[\]{}^$]/g, '\\$&');
  const parts: string[][] = [];
  let room = 0;
  for (const name of names) {
    const quoted = quote(name);
    const bytes = Buffer.byteLength(quoted) + 1;
    if (bytes > room) {
      parts.push([]);
      room = ARGUMENT_BYTES;
    }
    parts.at(-1)?.push(quoted);
    room -= bytes;
  }
  return parts.map((part) => `--focus=^${quote(description)} (?:${part.join('|')})$`);
}
