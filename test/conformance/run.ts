import { chmod, mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { messageOf, OpError } from '../../base/errors.ts';
import { runGinkgo } from './ginkgo.ts';
import type { LiveEvent } from './ginkgo-output.ts';
import { readReport, type Outcome } from './ginkgo-report.ts';
import { Tally, type Counted } from './tally.ts';
import { focusArguments, runsAlone, type Spec } from './suites.ts';

/** Longer than any run: Ginkgo's own limit is an hour. */
const TIMEOUT = '96h';

/** What specs run against, and how. */
export interface Target {
  argv(pass: Pass): [string, ...string[]];
  readonly env: Readonly<Record<string, string>>;
  /** Whether a failure can be laid at the node: what the specs need beside it is there. */
  isReady(): Promise<boolean>;
  /** Saves what is known of a failed spec below `failures`. */
  collect(failures: string, outcome: Outcome, output: string): Promise<unknown>;
}

/** One call of Ginkgo. */
export interface Pass {
  readonly procs: number;
  readonly dir: string;
  /** Name of the JSON report, in `dir`. */
  readonly report: string;
  /** Further arguments of Ginkgo's command, without the prefix that a test binary wants. */
  readonly ginkgo: readonly string[];
}

export interface Ran extends Omit<Counted, 'count'> {
  readonly target: Target;
  readonly description: string;
  /** All specs of the binary: names as its output has them. */
  readonly specs: readonly Spec[];
  /** Those to run. */
  readonly chosen: readonly Spec[];
  readonly parallel: number;
  readonly signal: AbortSignal;
}

/**
 * Runs the chosen specs: those that need the cluster alone afterwards, one by one; all of them so where nothing runs beside
 * them anyway, and the suite starts only once. Returns what ended with a result.
 */
export async function runSpecs(ran: Ran): Promise<Outcome[]> {
  const tally = new Tally({ ...ran, count: ran.chosen.length });
  const isAlone = (spec: Spec): boolean => ran.parallel === 1 || runsAlone(spec);
  const together = ran.chosen.filter((spec) => !isAlone(spec));
  const alone = ran.chosen.filter(isAlone);
  try {
    if (together.length > 0) await pass(ran, tally, 'together', together, Math.min(ran.parallel, together.length));
    if (alone.length > 0) await pass(ran, tally, 'alone', alone, 1);
  } finally {
    await tally.flush();
  }
  return [...tally.outcomes.values()];
}

async function pass(ran: Ran, tally: Tally, title: string, specs: readonly Spec[], procs: number): Promise<void> {
  const { run, target, description, progress } = ran;
  progress.note(`${specs.length} specs, ${title === 'alone' ? 'one by one' : `${procs} at once`}`);
  const failures = `${run.dir}/failures`;
  await mkdir(failures, { recursive: true });
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, ran.signal]);
  const started = { suite: null as string | null, lost: false };
  // Failures are looked at one after the other: they come in crowds, and the cluster has others' work to do.
  let queue: Promise<void> = Promise.resolve();
  const fail = (outcome: Outcome, output: string): void => {
    queue = queue.then(async () => {
      if (started.lost || ran.signal.aborted) return;
      if (!(await target.isReady())) {
        // What fails now says nothing about a node.
        started.lost = true;
        stop.abort();
        return;
      }
      tally.add(outcome);
      await target.collect(failures, outcome, output).catch((error: unknown) => progress.note(`  could not collect what is known of it: ${messageOf(error)}`));
    });
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
  const report = `report-${title}.json`;
  await using scratch = await scratchFolder();
  const code = await runGinkgo({
    argv: target.argv({
      procs,
      dir: run.dir,
      report,
      ginkgo: [
        '--no-color',
        '-v',
        `--timeout=${TIMEOUT}`,
        ...focusArguments(
          description,
          specs.map((spec) => spec.name),
        ),
      ],
    }),
    cwd: run.dir,
    env: { ...environment(), TMPDIR: scratch.path, ...target.env },
    log: `${run.dir}/ginkgo-${title}.log.gz`,
    specs: ran.specs,
    onEvent,
    signal,
  });
  await queue;
  if (started.lost)
    throw new OpError('unavailable', 'running specs', 'what they run against does not answer any more', {
      advice: 'look at the cluster, and go on with --resume',
    });
  if (ran.signal.aborted) throw new OpError('aborted', 'running specs', 'stopped', { advice: 'go on with --resume' });
  if (started.suite !== null)
    throw new OpError('failed', 'starting the suite', started.suite || 'its BeforeSuite failed', {
      advice: `all its output is in ${run.dir}/ginkgo-${title}.log.gz`,
    });
  await fromReport(ran, tally, `${run.dir}/${report}`, specs);
  const missing = specs.filter((spec) => !tally.outcomes.has(spec.name));
  if (missing.length > 0)
    throw new OpError('failed', 'running specs', `Ginkgo ended with ${code}, and ${missing.length} specs have no result, such as ${missing[0]?.name}`, {
      advice: `all its output is in ${run.dir}/ginkgo-${title}.log.gz; go on with --resume`,
    });
}

/** Where specs put their temporary files; many leave them. A path that sockets fit into. */
async function scratchFolder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(`${tmpdir()}/nodelet-specs-`);
  await chmod(path, 0o755);
  return {
    path,
    async [Symbol.asyncDispose]() {
      // What a spec has mounted there is somebody else's, and not gone through.
      const mounts = await readFile('/proc/self/mountinfo', 'utf8');
      if (!mounts.includes(path)) await rm(path, { recursive: true, force: true });
    },
  };
}

/** Results that the output did not give, from the report that Ginkgo writes at its end. */
async function fromReport(ran: Ran, tally: Tally, path: string, specs: readonly Spec[]): Promise<void> {
  const text = await readFile(path, 'utf8').catch(() => null);
  if (text === null) return;
  const names = new Set(specs.map((spec) => spec.name));
  const late = readReport(text).filter((outcome) => names.has(outcome.name) && !tally.outcomes.has(outcome.name));
  if (late.length > 0) ran.progress.note(`  ${late.length} results were in the report only`);
  for (const outcome of late) tally.add(outcome);
  await rm(path);
}

const environment = (): Record<string, string> =>
  Object.fromEntries(Object.entries(process.env).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])));
