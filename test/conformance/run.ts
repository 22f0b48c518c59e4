import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Progress } from '../../node/io/progress.ts';
import { collectFailure } from './collect.ts';
import type { Cluster } from './cluster.ts';
import { runGinkgo } from './ginkgo.ts';
import type { LiveEvent } from './ginkgo-output.ts';
import { junit, readReport, type Outcome } from './ginkgo-report.ts';
import { readJournal, record, type Run } from './journal.ts';
import { keep, type Paths } from './store.ts';
import { focusArguments, runsAlone, type Spec } from './suites.ts';

/** Longer than any run: Ginkgo's own limit is an hour. */
const TIMEOUT = '96h';
/** After how many results those on disk become part of what is kept. */
const KEEP_EVERY = 25;

export interface Programs {
  readonly ginkgo: string;
  readonly e2e: string;
  readonly kubectl: string;
}

export interface Ran {
  readonly run: Run;
  readonly programs: Programs;
  readonly cluster: Cluster;
  readonly description: string;
  /** All specs of the binary: names as its output has them. */
  readonly specs: readonly Spec[];
  /** Those to run. */
  readonly chosen: readonly Spec[];
  /** How many of the run that this one goes on with have results. */
  readonly before: number;
  readonly parallel: number;
  /** Where results are kept; null: nowhere but in the run's folder. */
  readonly paths: Paths | null;
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

const clock = (ms: number): string => new Date(ms).toISOString().slice(11, 19);

/** Counts, prints and writes down what finishes. */
class Tally {
  readonly outcomes = new Map<string, Outcome>();
  private readonly started = performance.now();
  private readonly ran: Ran;
  private failed = 0;
  private writing: Promise<void> = Promise.resolve();
  private writeError: unknown = null;

  constructor(ran: Ran) {
    this.ran = ran;
  }

  add(outcome: Outcome): void {
    if (this.outcomes.has(outcome.name)) return;
    this.outcomes.set(outcome.name, outcome);
    if (outcome.result === 'failed') this.failed += 1;
    const { run, chosen, before, progress } = this.ran;
    const count = `[${before + this.outcomes.size}/${before + chosen.length}]`;
    progress.note(
      `${clock(performance.now() - this.started)} ${count} ${outcome.result.padEnd(7)} ${outcome.seconds.toFixed(1).padStart(6)} s  ${outcome.name}${outcome.reason === '' ? '' : `\n           ${outcome.reason}`}`,
    );
    this.chain(() => record(run.dir, outcome));
    if (this.outcomes.size % KEEP_EVERY === 0) {
      progress.note(`${clock(performance.now() - this.started)} ${count} ${this.failed} failed so far`);
      this.chain(() => this.keep());
    }
  }

  private chain(work: () => Promise<unknown>): void {
    this.writing = this.writing.then(work).then(
      () => undefined,
      (error: unknown) => {
        this.writeError ??= error;
      },
    );
  }

  private async keep(): Promise<void> {
    const { paths, run } = this.ran;
    if (paths !== null) await keep(paths, run.asked.kind, run.asked.side, run.facts, [...this.outcomes.values()]);
  }

  /** Waits until everything is on disk; throws when something could not be written. */
  async flush(): Promise<void> {
    this.chain(() => this.keep());
    await this.writing;
    if (this.writeError !== null) throw this.writeError;
  }
}

/** Runs the chosen specs: those that need the cluster alone afterwards, one by one. Returns what ended with a result. */
export async function runSpecs(ran: Ran): Promise<Outcome[]> {
  const tally = new Tally(ran);
  const together = ran.chosen.filter((spec) => !runsAlone(spec));
  const alone = ran.chosen.filter(runsAlone);
  try {
    if (together.length > 0) await pass(ran, tally, 'together', together, Math.min(ran.parallel, together.length));
    if (alone.length > 0) await pass(ran, tally, 'alone', alone, 1);
  } finally {
    await tally.flush();
  }
  return [...tally.outcomes.values()];
}

async function pass(ran: Ran, tally: Tally, title: string, specs: readonly Spec[], procs: number): Promise<void> {
  const { run, programs, cluster, description, progress } = ran;
  progress.note(`${specs.length} specs, ${title === 'alone' ? 'one by one' : `${procs} at once`}`);
  const failures = `${run.dir}/failures`;
  await mkdir(failures, { recursive: true });
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, ran.signal]);
  const collecting = new Set<Promise<void>>();
  const started = { suite: null as string | null, lost: false };
  // Failures are looked at one after the other: they come in crowds, and the cluster has others' work to do.
  let queue: Promise<void> = Promise.resolve();
  const fail = (outcome: Outcome, output: string): void => {
    const one = queue.then(async () => {
      if (started.lost || ran.signal.aborted) return;
      if (!(await cluster.isReady())) {
        // What fails now says nothing about a node.
        started.lost = true;
        stop.abort();
        return;
      }
      tally.add(outcome);
      await collectFailure(cluster, failures, outcome, output).catch((error: unknown) =>
        progress.note(`  could not collect what is known of it: ${messageOf(error)}`),
      );
    });
    queue = one;
    collecting.add(one);
    void one.finally(() => collecting.delete(one));
  };
  const onEvent = (event: LiveEvent): void => {
    if (event.kind === 'spec') {
      if (event.outcome.result === 'failed') fail(event.outcome, event.output);
      else tally.add(event.outcome);
    } else if (event.kind === 'suite' && event.failed && event.node.includes('Before')) started.suite = event.reason;
    else if (event.kind === 'specs' && event.count !== specs.length)
      progress.note(`  ${description} will run ${event.count} specs, not ${specs.length}: names are not unique, or the list is of another binary`);
    else if (event.kind === 'other') progress.note(`  no result: ${event.state.toLowerCase()} ${event.name}`);
  };
  const report = `${run.dir}/report-${title}-${run.facts.id.slice(0, 16)}.json`;
  const code = await runGinkgo({
    argv: [
      programs.ginkgo,
      `--procs=${procs}`,
      '--no-color',
      '-v',
      `--timeout=${TIMEOUT}`,
      `--json-report=${report.slice(run.dir.length + 1)}`,
      `--output-dir=${run.dir}`,
      ...focusArguments(
        description,
        specs.map((spec) => spec.name),
      ),
      programs.e2e,
      '--',
      `--kubeconfig=${cluster.kubeconfig}`,
      '--provider=skeleton',
      `--num-nodes=${cluster.nodes.length}`,
      `--kubectl-path=${programs.kubectl}`,
      '--delete-namespace-on-failure=false',
      '--disable-log-dump',
      '--system-pods-startup-timeout=5m',
      `--e2e-output-dir=${run.dir}`,
    ],
    cwd: run.dir,
    env: { ...environment(), KUBECONFIG: cluster.kubeconfig, PATH: `${dirname(programs.kubectl)}:${process.env['PATH'] ?? ''}` },
    log: `${run.dir}/ginkgo-${title}.log.gz`,
    specs: ran.specs,
    onEvent,
    signal,
  });
  await queue;
  if (started.lost)
    throw new OpError('unavailable', 'running specs', 'the API server does not answer any more', { advice: 'look at the cluster, and go on with --resume' });
  if (ran.signal.aborted) throw new OpError('aborted', 'running specs', 'stopped', { advice: 'go on with --resume' });
  if (started.suite !== null)
    throw new OpError('failed', 'starting the suite', started.suite || 'its BeforeSuite failed', {
      advice: `all its output is in ${run.dir}/ginkgo-${title}.log.gz`,
    });
  await fromReport(ran, tally, report, specs);
  const missing = specs.filter((spec) => !tally.outcomes.has(spec.name));
  if (missing.length > 0)
    throw new OpError('failed', 'running specs', `Ginkgo ended with ${code}, and ${missing.length} specs have no result, such as ${missing[0]?.name}`, {
      advice: `all its output is in ${run.dir}/ginkgo-${title}.log.gz; go on with --resume`,
    });
}

/** Results that the output did not give, from the report that Ginkgo writes at its end. */
async function fromReport(ran: Ran, tally: Tally, path: string, specs: readonly Spec[]): Promise<void> {
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null) return;
  const names = new Set(specs.map((spec) => spec.name));
  const late = readReport(text).filter((outcome) => names.has(outcome.name) && !tally.outcomes.has(outcome.name));
  if (late.length > 0) ran.progress.note(`  ${late.length} results were in the report only`);
  for (const outcome of late) tally.add(outcome);
}

const environment = (): Record<string, string> =>
  Object.fromEntries(Object.entries(process.env).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])));

/** All results of a run and of those that it goes on with, as JUnit beside its journal. */
export async function writeJunit(run: Run, dirs: readonly string[]): Promise<Outcome[]> {
  const all = new Map<string, Outcome>();
  for (const dir of [...dirs, run.dir]) for (const outcome of await readJournal(dir)) all.set(outcome.name, outcome);
  const outcomes = [...all.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  await writeFile(`${run.dir}/junit.xml`, junit(`${run.asked.kind} ${run.asked.side}`, outcomes));
  return outcomes;
}
