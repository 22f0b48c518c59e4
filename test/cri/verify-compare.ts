import type { Outcome } from '../conformance/ginkgo-report.ts';

export interface Difference {
  readonly name: string;
  /** How it ended on each side: in the whole run, then alone. */
  readonly direct: readonly string[];
  readonly tapped: readonly string[];
  /** A flake ends on one side at least once as it ended on the other. */
  readonly verdict: 'flake' | 'differs';
  /** What the failing side said first. */
  readonly reason: string;
}

const REPEATS = 3;

export function count(results: ReadonlyMap<string, Outcome>): { passed: number; failed: number; skipped: number } {
  const of = (wanted: Outcome['result']): number => [...results.values()].filter(({ result }) => result === wanted).length;
  return { passed: of('passed'), failed: of('failed'), skipped: of('skipped') };
}

/** Specs that ended differently, each repeated alone on both sides in turn until it is a flake or the repeats are over. */
export async function compareRuns(
  direct: ReadonlyMap<string, Outcome>,
  tapped: ReadonlyMap<string, Outcome>,
  again: (name: string, side: 'direct' | 'tapped') => Promise<string>,
): Promise<{ differences: Difference[]; failedInBoth: string[] }> {
  const differences: Difference[] = [];
  const failedInBoth: string[] = [];
  for (const name of [...new Set([...direct.keys(), ...tapped.keys()])].toSorted()) {
    const [one, other] = [direct.get(name), tapped.get(name)];
    if (one?.result === 'failed' && other?.result === 'failed') failedInBoth.push(name);
    if (one?.result === other?.result) continue;
    const ends = { direct: [one?.result ?? 'none'] as string[], tapped: [other?.result ?? 'none'] as string[] };
    const isFlake = (): boolean => ends.direct.some((end) => ends.tapped.includes(end));
    for (let repeat = 0; repeat < REPEATS && !isFlake(); repeat++) {
      for (const side of ['tapped', 'direct'] as const) ends[side].push(await again(name, side));
    }
    const reason = (one?.result === 'failed' ? one : other)?.reason ?? '';
    differences.push({ name, ...ends, verdict: isFlake() ? 'flake' : 'differs', reason });
  }
  return { differences, failedInBoth };
}
