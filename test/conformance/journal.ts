import { appendFile, mkdir, readdir, readFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { Outcome } from './ginkgo-report.ts';
import type { RunFacts } from './results.ts';
import type { Kind } from './store.ts';

/** What a run was asked for: `--resume` goes on only with a run that was asked for the same. */
export interface Asked {
  readonly kind: Kind;
  readonly side: string;
  readonly suite: string;
  readonly focus: readonly string[];
  readonly skip: readonly string[];
  readonly shard: string;
}

/** A run on disk: its description, and a line for each finished spec, written when it finishes. */
export interface Run {
  readonly dir: string;
  readonly asked: Asked;
  readonly facts: RunFacts;
  /** The runs that it goes on with, oldest first. */
  readonly earlier: readonly string[];
  readonly names: readonly string[];
}

/** A name for a run that begins now. */
export function newRunId(side: string): string {
  const stamp = new Date()
    .toISOString()
    .replaceAll(/[-:]/g, '')
    .replace(/\.\d+Z$/, 'Z');
  return `${stamp}-${side}-${process.pid.toString(36)}`;
}

export async function createRun(home: string, run: Omit<Run, 'dir'>): Promise<Run> {
  const dir = `${home}/${run.facts.id}`;
  await mkdir(dir, { recursive: true });
  const made = { dir, ...run };
  await saveRun(made);
  return made;
}

export async function saveRun(run: Run): Promise<void> {
  const { dir, ...rest } = run;
  await replaceFile(`${dir}/run.json`, `${JSON.stringify(rest, null, 1)}\n`, 0o644);
}

async function loadRun(dir: string): Promise<Run | null> {
  const text = await readFile(`${dir}/run.json`, 'utf8').catch(() => null);
  if (text === null) return null;
  try {
    return { dir, ...(JSON.parse(text) as Omit<Run, 'dir'>) };
  } catch (cause) {
    throw new OpError('invalid', `reading ${dir}/run.json`, 'it is damaged', { cause, advice: `remove ${dir}` });
  }
}

/** Whether two runs were asked for the same. */
const same = (a: Asked, b: Asked): boolean => {
  const words = ({ kind, side, suite, focus, skip, shard }: Asked): string => JSON.stringify([kind, side, suite, focus, skip, shard]);
  return words(a) === words(b);
};

/** All runs, oldest first. */
export async function listRuns(home: string): Promise<Run[]> {
  const ids = (await readdir(home).catch(() => [] as string[])).sort();
  const runs = await Promise.all(ids.map((id) => loadRun(`${home}/${id}`)));
  return runs.filter((run) => run !== null);
}

/** The last run that was asked for the same, or null. */
export async function lastRun(home: string, asked: Asked): Promise<Run | null> {
  return (await listRuns(home)).findLast((run) => same(run.asked, asked)) ?? null;
}

/** What has finished. A last line that a kill has cut short is no result: its spec runs again. */
export async function readJournal(dir: string): Promise<Outcome[]> {
  const text = await readFile(`${dir}/journal.jsonl`, 'utf8').catch(() => '');
  const outcomes = new Map<string, Outcome>();
  for (const line of text.split('\n')) {
    try {
      if (line !== '') {
        const outcome = JSON.parse(line) as Outcome;
        outcomes.set(outcome.name, outcome);
      }
    } catch {
      // Cut short.
    }
  }
  return [...outcomes.values()];
}

export const record = (dir: string, outcome: Outcome): Promise<void> => appendFile(`${dir}/journal.jsonl`, `\n${JSON.stringify(outcome)}`);
