import { BugError } from '../base/assert.ts';

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
