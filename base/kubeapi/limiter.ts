import type { Clock } from '../clock.ts';

/** A token bucket, as client-go's flowcontrol: `burst` at once, then `qps` a second, in order of arrival. */
export class Limiter {
  readonly #qps: number;
  readonly #burst: number;
  readonly #clock: Clock;
  #tokens: number;
  #filledAtMs: number;

  constructor(qps: number, burst: number, clock: Clock) {
    this.#qps = qps;
    this.#burst = Math.max(1, burst);
    this.#clock = clock;
    this.#tokens = this.#burst;
    this.#filledAtMs = clock.monoMs();
  }

  /** Takes a turn that is there now; false: there is none. */
  tryTake(): boolean {
    this.#refill();
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  #refill(): void {
    const nowMs = this.#clock.monoMs();
    this.#tokens = Math.min(this.#burst, this.#tokens + ((nowMs - this.#filledAtMs) * this.#qps) / 1000);
    this.#filledAtMs = nowMs;
  }

  /** Waits for a turn. A caller who gives up does not get its turn back: the rate is a ceiling. */
  async take(signal?: AbortSignal): Promise<void> {
    this.#refill();
    this.#tokens -= 1;
    if (this.#tokens < 0) await this.#clock.sleep((-this.#tokens * 1000) / this.#qps, signal);
  }
}
