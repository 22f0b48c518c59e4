import { messageOf } from '../../base/errors.ts';

/** One step of the walkthroughs, or of the upkeep: what was seen, and what was not as it must be. */
export interface Step {
  readonly id: string;
  readonly what: string;
  readonly saw: readonly string[];
  readonly problems: readonly string[];
  readonly seconds: number;
}

/** What a step tells while it is walked. */
export interface Saw {
  note(text: string): void;
  /** Notes what must be so; else it is the step's problem. */
  check(isSo: boolean, text: string): void;
}

/** Steps in order, each told when it is over. One that throws has a problem, and the next is walked all the same. */
export class Steps {
  readonly done: Step[] = [];
  readonly #onStep: (step: Step) => void;

  constructor(onStep: (step: Step) => void) {
    this.#onStep = onStep;
  }

  /** What `walk` returns; null when it threw. */
  async step<T>(id: string, what: string, walk: (saw: Saw) => Promise<T>): Promise<T | null> {
    const saw: string[] = [];
    const problems: string[] = [];
    const begunMs = performance.now();
    let value: T | null = null;
    try {
      value = await walk({
        note: (text) => void saw.push(text),
        check: (isSo, text) => void (isSo ? saw : problems).push(text),
      });
    } catch (error) {
      problems.push(messageOf(error));
    }
    this.#tell({ id, what, saw, problems, seconds: (performance.now() - begunMs) / 1000 });
    return value;
  }

  /** Says of steps that follow from one that failed that nobody came there. */
  unreached(ids: readonly string[], why: string): void {
    for (const id of ids) if (!this.done.some((step) => step.id === id)) this.#tell({ id, what: 'not reached', saw: [], problems: [why], seconds: 0 });
  }

  #tell(step: Step): void {
    this.done.push(step);
    this.#onStep(step);
  }
}

/** A step as lines for a person. */
export function stepLines({ id, what, saw, problems, seconds }: Step): string[] {
  return [
    `${problems.length === 0 ? 'good' : 'BAD '} ${id.padEnd(5)} ${what} (${seconds.toFixed(1)} s)`,
    ...saw.map((text) => `           ${text}`),
    ...problems.map((text) => `       NOT ${text}`),
  ];
}
