import type { Outcome, Result } from './ginkgo-report.ts';

/** One run of a suite: everything its results have in common. */
export interface RunFacts {
  /** Sorts by time: `20261129T221005Z-…`. */
  readonly id: string;
  /** ISO 8601, UTC. */
  readonly date: string;
  readonly commit: string;
  /** Of the node under test and what it ran on; empty where it is not known. */
  readonly versions: Readonly<Record<string, string>>;
  readonly nodes: number;
  readonly parallel: number;
}

/** How a spec ended in one run, as it is kept. */
export interface Kept {
  readonly run: string;
  readonly result: Result;
  readonly seconds: number;
  readonly reason?: string;
}

/** The results of one side: the last ones of each spec, oldest first. */
export type Results = ReadonlyMap<string, readonly Kept[]>;

/** How many results of a spec are kept. */
export const KEPT = 10;
/** How many of the last must be passes. */
export const NEEDED = 3;

/** Adds a run's outcomes. Doing it twice changes nothing, and the order of runs does not matter. */
export function addOutcomes(results: Results, run: string, outcomes: readonly Outcome[]): Results {
  const all = new Map(results);
  for (const { name, result, reason, seconds } of outcomes) {
    const kept = [...(all.get(name) ?? []).filter((one) => one.run !== run), { run, result, seconds, ...(reason === '' ? {} : { reason }) }];
    all.set(name, kept.sort((a, b) => (a.run < b.run ? -1 : 1)).slice(-KEPT));
  }
  return all;
}

/** Results as text: a line for each spec, sorted, so that two branches merge line by line. */
export function formatResults(results: Results): string {
  return [...results]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, last]) => `${JSON.stringify({ name, last })}\n`)
    .join('');
}

/** Reads `formatResults`' text back; throws on a line that is not one. */
export function parseResults(text: string): Results {
  const results = new Map<string, readonly Kept[]>();
  for (const line of text.split('\n')) {
    if (line.trim() === '') continue;
    const { name, last } = JSON.parse(line) as { name: string; last: Kept[] };
    results.set(name, last);
  }
  return results;
}

/** Where a spec stands on one side. */
export interface Standing {
  readonly result: Result;
  readonly reason?: string;
  /** How many of its last results this rests on; fewer than three is less than a verdict. */
  readonly runs: number;
  /** Failures among all kept results, when there are some and not all failed. */
  readonly flake?: { readonly failed: number; readonly of: number };
  /** Where that was, when it was not on the host. */
  readonly place?: 'machine';
  /** Of the last run. */
  readonly run: string;
  readonly seconds: number;
}

/** A spec counts as passed when its last three results are passes; null when it never ran. */
export function standing(kept: readonly Kept[]): Standing | null {
  const last = kept.at(-1);
  if (last === undefined) return null;
  const counted = kept.slice(-NEEDED);
  const failures = counted.filter((one) => one.result === 'failed');
  const failed = kept.filter((one) => one.result === 'failed').length;
  const shown = last.result === 'skipped' ? last : (failures.at(-1) ?? last);
  return {
    result: shown.result,
    ...(shown.reason === undefined ? {} : { reason: shown.reason }),
    runs: counted.length,
    ...(failed > 0 && failed < kept.length ? { flake: { failed, of: kept.length } } : {}),
    run: last.run,
    seconds: last.seconds,
  };
}
