import { BugError } from '../base/assert.ts';

/** A signal that ends with `outer`, or at the first defect; `rethrow` throws that one, when all has ended. */
export function untilDefect(outer: AbortSignal): { readonly signal: AbortSignal; readonly onBug: (error: unknown) => void; readonly rethrow: () => void } {
  const stop = new AbortController();
  let bug: unknown;
  return {
    signal: AbortSignal.any([outer, stop.signal]),
    onBug(error) {
      bug ??= error;
      stop.abort();
    },
    rethrow: () => {
      if (bug !== undefined) throw bug;
    },
  };
}

/** Waits for all parts; one that ends before the signal is a defect, whatever it says. */
export async function runParts(parts: readonly [string, Promise<void>][], signal: AbortSignal, onBug: (error: unknown) => void): Promise<void> {
  const watch = async ([name, work]: readonly [string, Promise<void>]): Promise<void> => {
    try {
      await work;
      if (!signal.aborted) onBug(new BugError(`the part "${name}" ended by itself`));
    } catch (error) {
      if (!signal.aborted) onBug(error);
    }
  };
  await Promise.all(parts.map(watch));
}
