/** Steps of a doubling: values are told to 2 %. */
const STEPS = 32;
/** The smallest value that is told from zero, in milliseconds. */
const FLOOR_MS = 0.001;

/** Durations as counts of steps: of any number of them in memory of a few kilobytes, told to 2 %. */
export class Histogram {
  readonly #counts = new Map<number, number>();
  count = 0;
  sumMs = 0;
  maxMs = 0;

  add(ms: number): void {
    const step = ms <= FLOOR_MS ? 0 : Math.ceil(Math.log2(ms / FLOOR_MS) * STEPS);
    this.#counts.set(step, (this.#counts.get(step) ?? 0) + 1);
    this.count += 1;
    this.sumMs += ms;
    this.maxMs = Math.max(this.maxMs, ms);
  }

  merge(other: Histogram): void {
    for (const [step, count] of other.#counts) this.#counts.set(step, (this.#counts.get(step) ?? 0) + count);
    this.count += other.count;
    this.sumMs += other.sumMs;
    this.maxMs = Math.max(this.maxMs, other.maxMs);
  }

  /** The value that `part` of all (0.5, 0.99) do not exceed, in milliseconds; 0 of none. */
  quantile(part: number): number {
    const wanted = Math.max(1, Math.ceil(part * this.count));
    let seen = 0;
    for (const step of [...this.#counts.keys()].sort((a, b) => a - b)) {
      seen += this.#counts.get(step) ?? 0;
      // The middle of the step, and never more than there was.
      if (seen >= wanted) return Math.min(this.maxMs, step === 0 ? FLOOR_MS : FLOOR_MS * 2 ** ((step - 0.5) / STEPS));
    }
    return 0;
  }
}
