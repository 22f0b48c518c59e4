import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { changedUids } from '../core/pleg.ts';
import type { Listing } from '../core/pleg.ts';
import { durationText } from '../../base/duration.ts';
import type { PodFacts } from '../core/types.ts';
import type { Pleg } from '../seams.ts';
import type { Cri } from './cri.ts';
import { listingOf } from './facts.ts';
import type { Lists } from './lister.ts';
import type { PlegMetrics } from './pleg-metrics.ts';

export interface PlegOptions {
  readonly cri: Cri;
  readonly clock: Clock;
  readonly log: Log;
  /** All that the runtime has. */
  readonly list: (signal: AbortSignal) => Promise<Lists>;
  /** Whether the end of something of this pod is what its worker is waiting for, and will see. */
  readonly isEnding: (uid: string) => boolean;
  /** UIDs of which something has changed since the last listing. */
  readonly onChange: (uids: readonly string[]) => void;
  readonly metrics?: Pick<PlegMetrics, 'connected' | 'heard'>;
  /** After each listing that succeeded. */
  readonly onRelist?: (tookMs: number) => void;
}

export interface RunningPleg extends Pleg {
  /** Lists every second until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
  /** What the last listing saw. */
  facts(): ReadonlyMap<string, PodFacts>;
  /** Whether a listing has ever succeeded. */
  listed(): boolean;
}

const periodMs = 1000;
/** After a listing that was asked for, however many ask for the next: this long, or twice as long as it took. */
const gapMs = 100;
const eventsRetryMs = 5000;
const thresholdMs = 180_000;

/** The pod lifecycle event generator: the whole runtime listed once a second, told apart from the listing before. */
export function createPleg(options: PlegOptions): RunningPleg {
  const { cri, clock, log, metrics } = options;
  let listing: Listing = new Map();
  let facts = new Map<string, PodFacts>();
  let lastMs: number | null = null;
  const startedMs = clock.monoMs();
  let wake: (() => void) | null = null;
  let soon = false;

  const relist = async (signal: AbortSignal): Promise<void> => {
    const beganMs = clock.monoMs();
    try {
      const { sandboxes, containers } = await options.list(signal);
      const seen = listingOf(sandboxes, containers);
      const changed = changedUids(listing, seen.listing);
      const first = lastMs === null;
      listing = seen.listing;
      facts = seen.facts;
      lastMs = clock.monoMs();
      options.onRelist?.(lastMs - beganMs);
      if (changed.length > 0 || first) options.onChange(changed);
    } catch (error) {
      if (!signal.aborted) log.error('GenericPLEG: Unable to retrieve pods', { err: messageOf(error) });
    }
  };

  const relistSoon = (): void => {
    soon = true;
    wake?.();
  };
  /** Ends that the runtime tells of are a reason to look sooner, and no more than that. */
  const followEnds = async (signal: AbortSignal): Promise<void> => {
    while (!signal.aborted) {
      try {
        const events = cri.runtime.getContainerEvents({}, { signal });
        metrics?.connected(false);
        for await (const event of events) {
          metrics?.heard(Math.max(0, clock.nowMs() - Number(BigInt(event.createdAt) / 1_000_000n)));
          if (event.containerEventType === 'CONTAINER_STOPPED_EVENT' && !options.isEnding(event.podSandboxStatus?.metadata?.uid ?? '')) relistSoon();
        }
      } catch (error) {
        if (signal.aborted) return;
        metrics?.connected(true);
        if (hasCode(error, 'unsupported')) return;
      }
      await clock.sleep(eventsRetryMs, signal).catch(() => undefined);
    }
  };

  return {
    async run(signal) {
      void followEnds(signal);
      let asked = false;
      while (!signal.aborted) {
        soon = false;
        const beganMs = clock.monoMs();
        await relist(signal);
        if (signal.aborted) break;
        const { promise, resolve } = Promise.withResolvers<void>();
        const endedMs = clock.monoMs();
        // The first who asks after one of the regular listings does not wait.
        const restMs = asked ? Math.min(periodMs, Math.max(gapMs, 2 * (endedMs - beganMs))) : 0;
        using timers = new DisposableStack();
        timers.use(clock.after(soon ? restMs : periodMs, resolve));
        wake = (): void => {
          wake = null;
          timers.use(clock.after(Math.max(0, endedMs + restMs - clock.monoMs()), resolve));
        };
        const stop = (): void => resolve();
        signal.addEventListener('abort', stop, { once: true });
        await promise;
        asked = soon;
        signal.removeEventListener('abort', stop);
        wake = null;
      }
    },
    relistSoon,
    unhealthy() {
      const elapsedMs = clock.monoMs() - (lastMs ?? startedMs);
      if (lastMs === null) return 'pleg has yet to be successful';
      return elapsedMs > thresholdMs ? `pleg was last seen active ${durationText(elapsedMs)} ago; threshold is ${durationText(thresholdMs)}` : null;
    },
    facts: () => facts,
    listed: () => lastMs !== null,
  };
}
