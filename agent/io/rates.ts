/** A rate is taken over at least this long. */
const rateMs = 5_000;

/** Cores in use now, from two readings of the time used, for runtimes that do not tell. */
export class Rates {
  readonly #samples = new Map<string, { atMs: number; nanos: number; rate: number | null; seen: boolean }>();

  /** `sinceMs`: when the counting began, whose mean is told while there is one reading alone. */
  nanoCores(key: string, atMs: number, nanos: number | null, sinceMs?: number): number | null {
    if (nanos === null) return null;
    const before = this.#samples.get(key);
    if (before === undefined || nanos < before.nanos) {
      const rate = sinceMs === undefined || sinceMs >= atMs ? null : Math.round((nanos / (atMs - sinceMs)) * 1_000);
      this.#samples.set(key, { atMs, nanos, rate, seen: true });
      return rate;
    }
    before.seen = true;
    const tookMs = atMs - before.atMs;
    if (tookMs < rateMs) return before.rate;
    const rate = Math.round(((nanos - before.nanos) / tookMs) * 1_000);
    this.#samples.set(key, { atMs, nanos, rate, seen: true });
    return rate;
  }

  /** Forgets what was not in the reading that has just ended. */
  prune(): void {
    for (const [key, sample] of this.#samples) {
      if (!sample.seen) this.#samples.delete(key);
      else sample.seen = false;
    }
  }
}
