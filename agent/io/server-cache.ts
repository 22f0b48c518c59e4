import type { Clock } from '../../base/clock.ts';

/** Answers that hold for a while; at most `size` of them, the oldest go first. Equal questions under way share one answer. */
export class BoundedCache<V> {
  readonly #clock: Clock;
  readonly #size: number;
  readonly #entries = new Map<string, { value: V; untilMs: number }>();
  readonly #pending = new Map<string, Promise<V>>();

  constructor(clock: Clock, size: number) {
    this.#clock = clock;
    this.#size = size;
  }

  async get(key: string, ask: () => Promise<{ value: V; ttlMs: number }>): Promise<V> {
    const known = this.#entries.get(key);
    if (known !== undefined && known.untilMs > this.#clock.monoMs()) return known.value;
    const pending = this.#pending.get(key);
    if (pending !== undefined) return pending;
    const asked = this.#ask(key, ask);
    this.#pending.set(key, asked);
    try {
      return await asked;
    } finally {
      this.#pending.delete(key);
    }
  }

  async #ask(key: string, ask: () => Promise<{ value: V; ttlMs: number }>): Promise<V> {
    const { value, ttlMs } = await ask();
    this.#entries.delete(key);
    if (ttlMs <= 0) return value;
    this.#entries.set(key, { value, untilMs: this.#clock.monoMs() + ttlMs });
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= this.#size) break;
      this.#entries.delete(oldest);
    }
    return value;
  }
}
