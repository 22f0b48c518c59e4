import { setImmediate as turn } from 'node:timers/promises';
import { assert } from './assert.ts';
import type { Clock } from './clock.ts';
import { OpError } from './errors.ts';

/** How many turns of the event loop must pass without anybody touching the clock before all counts as idle. */
const IDLE_TURNS = 8;
const MAX_TURNS = 100_000;
const MAX_TIMERS_PER_ADVANCE = 1_000_000;

/** A clock for tests. It moves only when told to, and only while everything else is idle. */
export interface FakeClock extends Clock {
  /** Lets everything that is ready run; time stands still. */
  settle(): Promise<void>;
  /** Moves time forward by `ms`: runs due timers one at a time and settles before and after each. */
  advance(ms: number): Promise<void>;
  /** Advances from timer to timer until `condition` holds; asserts that it does within `maxMs`. */
  advanceUntil(condition: () => boolean, maxMs: number): Promise<void>;
  /** Changes the wall clock alone, as an administrator or NTP does. */
  jumpWall(ms: number): void;
  /** How many timers are armed. */
  readonly armed: number;
}

interface Timer {
  readonly dueMs: number;
  readonly order: number;
  readonly callback: () => void;
}

/** @param startMs wall clock at the start, milliseconds since 1970 */
export function createFakeClock(startMs: number = Date.UTC(2026, 0, 1)): FakeClock {
  let monoMs = 0;
  let wallOffsetMs = startMs;
  let order = 0;
  let touched = 0;
  const timers = new Set<Timer>();

  const arm = (ms: number, callback: () => void): Timer => {
    const timer: Timer = { dueMs: monoMs + Math.max(0, ms), order: order++, callback };
    timers.add(timer);
    touched++;
    return timer;
  };
  const disarm = (timer: Timer): void => {
    if (timers.delete(timer)) touched++;
  };
  const nextTimer = (): Timer | undefined => {
    let first: Timer | undefined;
    for (const timer of timers) {
      if (first === undefined || timer.dueMs < first.dueMs || (timer.dueMs === first.dueMs && timer.order < first.order)) first = timer;
    }
    return first;
  };
  const settle = async (): Promise<void> => {
    let seen = touched;
    let idle = 0;
    for (let turns = 0; idle < IDLE_TURNS; turns++) {
      assert(turns < MAX_TURNS, 'fake clock: the program never becomes idle');
      await turn();
      idle = seen === touched ? idle + 1 : 0;
      seen = touched;
    }
  };
  /** Runs the first timer due at or before `targetMs`; false when there is none. */
  const fireNext = async (targetMs: number): Promise<boolean> => {
    const timer = nextTimer();
    if (timer === undefined || timer.dueMs > targetMs) return false;
    timers.delete(timer);
    monoMs = Math.max(monoMs, timer.dueMs);
    timer.callback();
    await settle();
    return true;
  };

  return {
    nowMs: () => Math.round(wallOffsetMs + monoMs),
    monoMs: () => monoMs,
    sleep(ms, signal) {
      return new Promise((resolve, reject) => {
        const stopped = (): void => {
          disarm(timer);
          reject(new OpError('aborted', 'sleep', 'stopped by the caller', { cause: signal?.reason }));
        };
        const timer = arm(ms, () => {
          signal?.removeEventListener('abort', stopped);
          resolve();
        });
        if (signal?.aborted === true) stopped();
        else signal?.addEventListener('abort', stopped, { once: true });
      });
    },
    after(ms, callback) {
      const timer = arm(ms, callback);
      return { [Symbol.dispose]: () => disarm(timer) };
    },
    settle,
    async advance(ms) {
      const targetMs = monoMs + ms;
      await settle();
      for (let fired = 0; await fireNext(targetMs); fired++) {
        assert(fired < MAX_TIMERS_PER_ADVANCE, 'fake clock: timers re-arm themselves without end');
      }
      monoMs = targetMs;
      await settle();
    },
    async advanceUntil(condition, maxMs) {
      const limitMs = monoMs + maxMs;
      await settle();
      while (!condition()) {
        if (!(await fireNext(limitMs))) {
          assert(false, `fake clock: the condition does not hold within ${maxMs} ms`);
        }
      }
    },
    jumpWall(ms) {
      wallOffsetMs += ms;
    },
    get armed() {
      return timers.size;
    },
  };
}
