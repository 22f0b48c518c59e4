import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../base/errors.ts';

export interface Patience {
  /** Between two looks; 100 when left out. */
  readonly everyMs?: number;
  /** Ends waiting with what `look` threw, or with the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * Waits for a value: calls `look` until it gives something other than null; what it throws counts as null, and is told
 * when the time is up: OpError `deadline`.
 */
export async function eventually<T>(what: string, timeoutMs: number, look: () => Promise<T | null>, { everyMs = 100, signal }: Patience = {}): Promise<T> {
  const deadlineMs = performance.now() + timeoutMs;
  let last: unknown = null;
  for (;;) {
    try {
      const value = await look();
      if (value !== null) return value;
      last = null;
    } catch (error) {
      if (signal?.aborted === true) throw error;
      last = error;
    }
    const why = last instanceof Error ? `: ${last.message}` : '';
    if (performance.now() > deadlineMs) throw new OpError('deadline', `waiting for ${what}`, `not within ${timeoutMs / 1000} s${why}`, { cause: last });
    await delay(everyMs, undefined, signal === undefined ? {} : { signal });
  }
}
