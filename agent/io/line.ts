import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';

export interface Line {
  /**
   * Waits for a turn; dispose it when the work is done. Of those who wait the one with the smallest place goes first,
   * of equal ones the first who came. Throws OpError `aborted` when `signal` is aborted before the turn came.
   */
  take(place: number, signal: AbortSignal): Promise<Disposable>;
  readonly held: number;
  readonly waiting: number;
}

export interface LineOptions {
  readonly clock: Clock;
  /** For the words of an error: `pull an image`. */
  readonly what: string;
  /** Holders at once; 0 is no limit. */
  readonly limit: number;
  /** Who holds a turn for so long is no longer counted: what is stuck holds up nobody. Absent: it is counted to its end. */
  readonly lentAfterMs?: number;
}

interface Waiter {
  readonly place: number;
  readonly go: () => void;
}

/** A bound on what runs at once, with a line of those who wait. */
export function createLine(options: LineOptions): Line {
  const { clock, what, limit, lentAfterMs } = options;
  let held = 0;
  const line: Waiter[] = [];

  const given = (): Disposable => {
    held += 1;
    let counted = true;
    const giveBack = (): void => {
      if (!counted) return;
      counted = false;
      held -= 1;
      line.shift()?.go();
    };
    const lent = lentAfterMs === undefined || limit === 0 ? null : clock.after(lentAfterMs, giveBack);
    return {
      [Symbol.dispose]() {
        lent?.[Symbol.dispose]();
        giveBack();
      },
    };
  };

  return {
    get held() {
      return held;
    },
    get waiting() {
      return line.length;
    },
    async take(place, signal) {
      if (limit === 0 || held < limit) return given();
      const aborted = (): OpError => new OpError('aborted', `wait for the turn to ${what}`, 'stopped by the caller');
      if (signal.aborted) throw aborted();
      return new Promise((resolve, reject) => {
        const stop = (): void => {
          line.splice(line.indexOf(waiter), 1);
          reject(aborted());
        };
        // The turn passes from hand to hand in the same moment: nobody who asks now comes between.
        const waiter: Waiter = {
          place,
          go() {
            signal.removeEventListener('abort', stop);
            resolve(given());
          },
        };
        const after = line.findIndex((other) => other.place > place);
        line.splice(after < 0 ? line.length : after, 0, waiter);
        signal.addEventListener('abort', stop, { once: true });
      });
    },
  };
}
