import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';

const tries = 2;
const pauseMs = 1000;

/** Tells the service manager that all is well as long as it is; what stays silent is started again. Runs until `signal` is aborted. */
export async function keepWatchdog(
  deps: { clock: Clock; log: Log; sys: Pick<Sys, 'notify'>; periodMs: number | null; unhealthy: () => string | null },
  signal: AbortSignal,
): Promise<void> {
  const { clock, log, sys, periodMs, unhealthy } = deps;
  try {
    if (periodMs !== null) log.info('Starting systemd watchdog with interval', { interval: `${periodMs / 1000}s` });
    // A part of the agent may not end by itself.
    if (periodMs === null) return await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    for (;;) {
      // It is well for a whole period from the start on, and has listed no pods yet.
      await clock.sleep(periodMs, signal);
      const trouble = unhealthy();
      if (trouble === null) await tell();
      else log.error('Do not notify watchdog this iteration as the kubelet is reportedly not healthy', { err: trouble });
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }

  async function tell(): Promise<void> {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await sys.notify('WATCHDOG=1');
      } catch (error) {
        if (attempt === tries) return log.error('Failed to notify watchdog', { err: messageOf(error) });
        await clock.sleep(pauseMs, signal);
      }
    }
  }
}
