import type { Clock } from '../../base/clock.ts';
import { createLine } from './line.ts';
import type { Line } from './line.ts';

/**
 * What the runtime is asked to do at once, in the order in which pods came. Asked for all pods together it ends with
 * all of them at the last moment; so the first half is through in half the time, and the last no later.
 */
export interface PodLines {
  /** Sandboxes and containers that are made. */
  readonly starts: Line;
  /** Sandboxes that are taken down; after those, what is left of pods that nobody sees any more. */
  readonly ends: Line;
}

/** A sandbox or container that takes longer is stuck, or everything is slow: then others go on beside it. */
const lentAfterMs = 3000;

/** How many at once keep every CPU busy while some of them wait for a disk. */
export function linesOf(cpus: number): number {
  return Math.max(4, 2 * cpus);
}

export function createPodLines(clock: Clock, limit: number): PodLines {
  return {
    starts: createLine({ clock, what: 'start', limit, lentAfterMs }),
    ends: createLine({ clock, what: 'end', limit, lentAfterMs }),
  };
}
