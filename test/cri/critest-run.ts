import { readFile, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import type { Progress } from '../../node/io/progress.ts';
import type { BareNode } from '../conformance/bare.ts';
import { critestArgv } from '../conformance/critest.ts';
import { runGinkgo } from '../conformance/ginkgo.ts';
import { readReport, type Outcome } from '../conformance/ginkgo-report.ts';
import { focusArguments, runsAlone, type Spec } from '../conformance/suites.ts';

export type Results = ReadonlyMap<string, Outcome>;

export interface CritestOptions {
  readonly critest: string;
  readonly ginkgo: string;
  readonly node: BareNode;
  /** All specs of the binary. */
  readonly specs: readonly Spec[];
  readonly description: string;
  readonly flags: readonly string[];
  /** Where logs go. */
  readonly work: string;
  readonly host: Host;
  readonly progress: Progress;
}

/** critest on a node, against whichever socket. */
export class Critest {
  readonly #options: CritestOptions;
  #runs = 0;

  constructor(options: CritestOptions) {
    this.#options = options;
  }

  /** Runs the specs, those that want to be alone afterwards; how each ended. Throws when the suite itself does not start. */
  async run(title: string, socket: string, chosen: readonly Spec[], parallel: number): Promise<Results> {
    const outcomes = new Map<string, Outcome>();
    await this.#options.progress.step(title, async () => {
      const together = chosen.filter((spec) => !runsAlone(spec));
      const alone = chosen.filter(runsAlone);
      if (together.length > 0) await this.#pass(socket, together, Math.min(parallel, together.length), outcomes);
      if (alone.length > 0) await this.#pass(socket, alone, 1, outcomes);
    });
    return outcomes;
  }

  async #pass(socket: string, specs: readonly Spec[], procs: number, outcomes: Map<string, Outcome>): Promise<void> {
    const { critest, ginkgo, node, description, flags, work, host } = this.#options;
    const names = specs.map(({ name }) => name);
    const run = ++this.#runs;
    const file = `${work}/${flags.length === 0 ? 'spdy' : 'websocket'}-${run}`;
    const words = ['--no-color', '-v', '--timeout=2h', ...focusArguments(description, names)];
    let failure = '';
    const code = await runGinkgo({
      argv: node.inside(critestArgv(critest, socket, procs, `${file}.json`, words, flags)),
      cwd: work,
      env: { ...(host.env as Record<string, string>), PATH: `${dirname(ginkgo)}:${host.env['PATH'] ?? ''}` },
      log: `${file}.log.gz`,
      specs: this.#options.specs,
      onEvent: (event) => {
        if (event.kind === 'spec') outcomes.set(event.outcome.name, event.outcome);
        else if (event.kind === 'suite' && event.failed && event.node.includes('Before')) failure = event.reason || 'its BeforeSuite failed';
      },
      signal: host.signal,
    });
    if (host.signal.aborted) throw new OpError('aborted', 'running critest', 'stopped');
    if (failure !== '') throw new OpError('failed', 'starting critest', failure, { advice: `all its output is in ${file}.log.gz` });
    const late = await readFile(`${file}.json`, 'utf8').catch(() => null);
    if (late !== null)
      for (const outcome of readReport(late)) if (names.includes(outcome.name) && !outcomes.has(outcome.name)) outcomes.set(outcome.name, outcome);
    await rm(`${file}.json`, { force: true });
    const missing = names.filter((name) => !outcomes.has(name));
    if (missing.length === names.length)
      throw new OpError('failed', 'running critest', `it ended with ${code}, and no spec has a result`, { advice: `all its output is in ${file}.log.gz` });
  }
}
