import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';

const PAUSE_MS = 300;

/** Looks again and again until `look` says yes; OpError `deadline` when it does not in time, or the signal's reason. */
export async function until(
  what: string,
  options: { timeoutMs: number; signal: AbortSignal; pauseMs?: number; advice?: string },
  look: () => Promise<boolean>,
): Promise<void> {
  const { timeoutMs, signal, pauseMs = PAUSE_MS, advice = '' } = options;
  const end = performance.now() + timeoutMs;
  while (!(await look())) {
    if (performance.now() > end) throw new OpError('deadline', `waiting until ${what}`, 'it is not in time', { advice });
    await delay(pauseMs, undefined, { signal });
  }
}
