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

/** What Node's timers count up to; a longer one would go off at once. */
const maxTimerMs = 2 ** 31 - 1;

export const realClock: Clock = {
  nowMs: () => Date.now(),
  monoMs: () => performance.now(),
  async sleep(ms, signal) {
    try {
      for (let leftMs = ms; ; leftMs -= maxTimerMs) {
        await delay(Math.min(leftMs, maxTimerMs), undefined, signal === undefined ? {} : { signal });
        if (!(leftMs > maxTimerMs)) return;
      }
    } catch (cause) {
      throw new OpError('aborted', 'sleep', 'stopped by the caller', { cause });
    }
  },
  after(ms, callback) {
    let timer: NodeJS.Timeout;
    const wait = (leftMs: number): void => {
      timer = leftMs > maxTimerMs ? setTimeout(() => wait(leftMs - maxTimerMs), maxTimerMs) : setTimeout(callback, leftMs);
    };
    wait(ms);
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
