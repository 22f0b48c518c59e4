/** A bucket of tokens that fills at so many a second up to a bound: a call takes one, or is refused. */
export class RateLimit {
  readonly #perSecond: number;
  readonly #burst: number;
  #tokens: number;
  #lastMs: number | null = null;

  constructor(perSecond: number, burst: number) {
    this.#perSecond = perSecond;
    this.#burst = burst;
    this.#tokens = burst;
  }

  /** `monoMs` never goes back. */
  allow(monoMs: number): boolean {
    const since = monoMs - (this.#lastMs ?? monoMs);
    this.#lastMs = monoMs;
    this.#tokens = Math.min(this.#burst, this.#tokens + (since / 1000) * this.#perSecond);
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }
}
