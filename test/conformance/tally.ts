import type { Progress } from '../../node/io/progress.ts';
import type { Outcome } from './ginkgo-report.ts';
import { record, type Run } from './journal.ts';
import { keep, type Paths } from './store.ts';

/** After how many results those on disk become part of what is kept. */
const KEEP_EVERY = 25;

const clock = (ms: number): string => new Date(ms).toISOString().slice(11, 19);

/** What a tally needs of a run. */
export interface Counted {
  readonly run: Run;
  /** How many are to run. */
  readonly count: number;
  /** How many of the run that this one goes on with have results. */
  readonly before: number;
  /** Where results are kept; null: nowhere but in the run's folder. */
  readonly paths: Paths | null;
  readonly progress: Progress;
}

/** Counts, prints and writes down what finishes. */
export class Tally {
  readonly outcomes = new Map<string, Outcome>();
  private readonly started = performance.now();
  private readonly ran: Counted;
  private failed = 0;
  private writing: Promise<void> = Promise.resolve();
  private writeError: unknown = null;

  constructor(ran: Counted) {
    this.ran = ran;
  }

  add(outcome: Outcome): void {
    if (this.outcomes.has(outcome.name)) return;
    this.outcomes.set(outcome.name, outcome);
    if (outcome.result === 'failed') this.failed += 1;
    const { run, count: all, before, progress } = this.ran;
    const count = `[${before + this.outcomes.size}/${before + all}]`;
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
