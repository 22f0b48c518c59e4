import { OpError } from '../../base/errors.ts';
import type { Place } from './place.ts';

const PAUSE_MS = 300;

/** Looks again and again until `look` says yes; OpError `deadline` when it does not in time, or the signal's reason. */
export async function until(
  { clock, engine: { signal } }: Pick<Place, 'clock' | 'engine'>,
  what: string,
  options: { timeoutMs: number; pauseMs?: number; advice?: string },
  look: () => Promise<boolean>,
): Promise<void> {
  const { timeoutMs, pauseMs = PAUSE_MS, advice = '' } = options;
  const end = clock.monoMs() + timeoutMs;
  while (!(await look())) {
    if (clock.monoMs() > end) throw new OpError('deadline', `waiting until ${what}`, 'it is not in time', { advice });
    await clock.sleep(pauseMs, signal);
  }
}
