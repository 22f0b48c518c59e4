import type { Clock } from '../../../base/clock.ts';
import { messageOf } from '../../../base/errors.ts';
import type { Log } from '../../../base/log.ts';
import type { CsiDriverObjects } from './objects.ts';
import type { Drivers } from './drivers.ts';

export interface AllocatableOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly drivers: Pick<Drivers, 'list' | 'tellNode'>;
  readonly objects: Pick<CsiDriverObjects, 'peek'>;
}

/** No period is shorter than ten seconds. */
const lookMs = 1_000;

/**
 * Asks drivers anew how many volumes they can attach, as often as their CSIDriver says
 * (`nodeAllocatableUpdatePeriodSeconds`, KEP-4876), and tells the CSINode. Runs until `signal` is aborted.
 */
export async function followAllocatable({ clock, log, drivers, objects }: AllocatableOptions, signal: AbortSignal): Promise<void> {
  const sinceMs = new Map<string, number>();
  const asking = new Set<string>();
  while (!signal.aborted) {
    const names = new Set(drivers.list().map(({ name }) => name));
    for (const name of sinceMs.keys()) if (!names.has(name)) sinceMs.delete(name);
    for (const name of names) {
      const periodMs = (objects.peek(name)?.spec.nodeAllocatableUpdatePeriodSeconds ?? 0) * 1000;
      if (periodMs === 0) {
        sinceMs.delete(name);
        continue;
      }
      const nowMs = clock.monoMs();
      const since = sinceMs.get(name) ?? nowMs;
      sinceMs.set(name, since);
      if (nowMs - since < periodMs || asking.has(name)) continue;
      sinceMs.set(name, nowMs);
      asking.add(name);
      // A driver that hangs holds up no other.
      void drivers
        .tellNode(name, signal)
        .catch((error: unknown) => {
          if (!signal.aborted) log.error('Failed to update CSIDriver', { driver: name, err: messageOf(error) });
        })
        .finally(() => asking.delete(name));
    }
    await clock.sleep(lookMs, signal).catch(() => undefined);
  }
}
