import { writeFile } from 'node:fs/promises';
import type { Program } from '../../scripts/command.ts';
import { endLeftovers } from './ginkgo.ts';
import { junit, type Outcome } from './ginkgo-report.ts';
import { createRun, lastRun, newRunId, readJournal, type Asked } from './journal.ts';
import type { RunFacts } from './results.ts';
import { runSpecs, type Target } from './run.ts';
import type { Paths } from './store.ts';
import type { Spec } from './suites.ts';

/** A run's answer, for `--json`. */
export interface Answer {
  readonly suite: string;
  readonly side: string;
  readonly run: string;
  readonly dir: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly chosen: number;
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly notRun: number;
  readonly seconds: number;
  readonly results: readonly Outcome[];
}

export interface Conducted {
  /** Folder of all runs. */
  readonly home: string;
  readonly asked: Asked;
  readonly facts: Omit<RunFacts, 'id' | 'date'>;
  readonly description: string;
  readonly specs: readonly Spec[];
  readonly chosen: readonly Spec[];
  readonly isResumed: boolean;
  readonly target: Target;
  readonly paths: Paths | null;
  /** Removes what a stopped run has left behind besides its processes; says how much in words. */
  tidy(): Promise<string>;
}

/** Runs the chosen specs, or with `isResumed` those of them that the last run of the same has no result of. */
export async function conduct(program: Program, work: Conducted): Promise<Answer> {
  const { host, progress } = program;
  const started = performance.now();
  const { home, asked, chosen } = work;
  const last = work.isResumed ? await lastRun(home, asked) : null;
  if (work.isResumed && last === null) progress.note('  there is no earlier run of this to go on with: starting one');
  const earlier = last === null ? [] : [...last.earlier, last.facts.id];
  const had = new Map<string, Outcome>();
  for (const id of earlier) for (const outcome of await readJournal(`${home}/${id}`)) had.set(outcome.name, outcome);
  if (last !== null) {
    const ended = await endLeftovers(last.dir);
    progress.note(`  going on with ${last.facts.id}: ${had.size} have results (left of it: ${ended} processes, ${await work.tidy()})`);
  }
  const rest = chosen.filter((spec) => !had.has(spec.name));
  const facts: RunFacts = { id: newRunId(asked.side), date: new Date().toISOString(), ...work.facts };
  const run = await createRun(home, { asked, facts, earlier, names: chosen.map((spec) => spec.name) });
  const made = Object.entries(facts.versions).map(([key, value]) => `${key} ${value}`);
  progress.note(`  ${made.join(', ')}; commit ${facts.commit}; results in ${run.dir}`);
  let outcomes: Outcome[] = [];
  try {
    if (rest.length > 0) {
      const { target, description, specs, paths } = work;
      await runSpecs({ run, target, description, specs, chosen: rest, before: had.size, parallel: facts.parallel, paths, progress, signal: host.signal });
    }
  } finally {
    for (const outcome of await readJournal(run.dir)) had.set(outcome.name, outcome);
    const names = new Set(run.names);
    outcomes = [...had.values()].filter((outcome) => names.has(outcome.name)).sort((a, b) => (a.name < b.name ? -1 : 1));
    await writeFile(`${run.dir}/junit.xml`, junit(`${asked.kind} ${asked.side}`, outcomes));
  }
  const count = (result: string): number => outcomes.filter((outcome) => outcome.result === result).length;
  return {
    suite: asked.suite,
    side: asked.side,
    run: facts.id,
    dir: run.dir,
    versions: facts.versions,
    chosen: chosen.length,
    passed: count('passed'),
    failed: count('failed'),
    skipped: count('skipped'),
    notRun: chosen.length - outcomes.length,
    seconds: Math.round((performance.now() - started) / 100) / 10,
    results: outcomes,
  };
}
