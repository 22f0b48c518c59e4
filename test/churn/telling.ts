import type { Clock } from '../../base/clock.ts';

export interface Progress {
  readonly seconds: number;
  readonly pods: number;
  readonly seen: { readonly events: number; readonly listings: number };
  readonly deeds: Readonly<Record<string, number>>;
  readonly violations: number;
}

/** How far a run is, in a line. */
export function progressText({ seconds, pods, seen, deeds, violations }: Progress): string {
  const total = Object.values(deeds).reduce((sum, count) => sum + count, 0);
  const kills = Object.entries(deeds).filter(([deed]) => deed.startsWith('kill -9 '));
  const killed = kills.map(([deed, count]) => `, ${count} ${deed}`).join('');
  return `${seconds} s: ${pods} pods, ${total} deeds${killed}; seen ${seen.events} changes, ${seen.listings} listings, ${violations} violations`;
}

/** Tells something again and again until disposed, first after the first pause. */
export function tellEvery(clock: Clock, periodMs: number, tell: () => void): Disposable {
  const again = (): Disposable =>
    clock.after(periodMs, () => {
      tell();
      next = again();
    });
  let next = again();
  return { [Symbol.dispose]: () => next[Symbol.dispose]() };
}
