import { setTimeout as delay } from 'node:timers/promises';
import type { Clock } from './clock.ts';
import { OpError } from './errors.ts';

/** Resolves when `signal` is aborted, at once when it is already. */
export function untilAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** How much later than the programs that were being run a signal to all of them may be heard. */
const HEARD_MS = 100;

/** Whether it was a signal that made something fail: of a terminal's Ctrl-C what runs beside can die before it is heard here. */
export async function wasSignalled(signal: AbortSignal): Promise<boolean> {
  if (!signal.aborted) await delay(HEARD_MS, undefined, { signal }).catch(() => undefined);
  return signal.aborted;
}

/** Waits for `work`, but not beyond the signal: throws OpError `aborted` then, about what is being done. */
export async function orAborted<T>(work: Promise<T>, signal: AbortSignal, doing: string): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(new OpError('aborted', doing, 'stopped by the caller'));
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

/** Waits for `work`, but no longer than `ms` and not beyond the signal, whose reason is thrown; false when the time was up first. */
export async function atMost(clock: Clock, work: PromiseLike<unknown>, ms: number, signal?: AbortSignal): Promise<boolean> {
  const { promise: isOver, resolve, reject } = Promise.withResolvers<boolean>();
  const stop = (): void => reject(signal?.reason as Error);
  if (signal?.aborted === true) stop();
  signal?.addEventListener('abort', stop, { once: true });
  using _timer = clock.after(ms, () => resolve(false));
  try {
    return await Promise.race([work.then(() => true), isOver]);
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** Something that waits for a while and can be woken before. */
export class Nap {
  #wake: (() => void) | null = null;

  wake(): void {
    this.#wake?.();
  }

  /** Until it is woken, `ms` (null: never) are over, or the signal is aborted. */
  async take(clock: Clock, ms: number | null, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        timer?.[Symbol.dispose]();
        signal.removeEventListener('abort', wake);
        this.#wake = null;
        resolve();
      };
      const timer = ms === null ? null : clock.after(ms, wake);
      this.#wake = wake;
      signal.addEventListener('abort', wake, { once: true });
    });
  }
}
