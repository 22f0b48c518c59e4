import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from './errors.ts';

/** Time as the program sees it. Real in `main.ts`, fake in tests; nothing else reads a clock. */
export interface Clock {
  /** Wall clock, milliseconds since 1970. May jump. */
  nowMs(): number;
  /** Monotonic milliseconds from an arbitrary start; for durations and deadlines. */
  monoMs(): number;
  /** Resolves after `ms`; rejects with OpError `aborted` as soon as `signal` is aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `callback` once after `ms` unless disposed first. */
  after(ms: number, callback: () => void): Disposable;
}

export const realClock: Clock = {
  nowMs: () => Date.now(),
  monoMs: () => performance.now(),
  async sleep(ms, signal) {
    try {
      await delay(ms, undefined, signal === undefined ? {} : { signal });
    } catch (cause) {
      throw new OpError('aborted', 'sleep', 'stopped by the caller', { cause });
    }
  },
  after(ms, callback) {
    const timer = setTimeout(callback, ms);
    return { [Symbol.dispose]: () => clearTimeout(timer) };
  },
};

/** RFC 3339 with seconds, as metav1.Time prints. */
export function rfc3339(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 19)}Z`;
}

/** RFC 3339 with microseconds, as metav1.MicroTime prints. */
export function rfc3339Micro(ms: number): string {
  return `${new Date(ms).toISOString().slice(0, 23)}000Z`;
}
