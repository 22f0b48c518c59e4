import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** What a test can leave behind. */
export interface Footprint {
  /** Living descendants of this process, as "comm". */
  children: string[];
  /** Mount points with their kind. */
  mounts: string[];
  /** Names in /run/netns. */
  netns: string[];
  /** Kinds of timers, sockets and requests that keep the event loop alive. */
  handles: string[];
}

function linesOf(path: string): string[] {
  try {
    return readFileSync(path, 'utf8')
      .split('\n')
      .filter((line) => line !== '');
  } catch {
    return [];
  }
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

/** All living processes below `pid`; zombies count only while their parent is ours to reap them. */
function descendants(pid: number | string): string[] {
  const children = namesIn(`/proc/${pid}/task`).flatMap((task) => linesOf(`/proc/${pid}/task/${task}/children`).join(' ').split(' '));
  return children
    .filter((child) => child !== '')
    .flatMap((child) => {
      const comm = linesOf(`/proc/${child}/comm`)[0];
      return comm === undefined ? [] : [comm, ...descendants(child)];
    });
}

export function takeFootprint(): Footprint {
  return {
    children: descendants(process.pid),
    mounts: linesOf('/proc/self/mountinfo').map((line) => {
      const fields = line.split(' ');
      return `${fields[4]} ${fields[fields.indexOf('-') + 1]}`;
    }),
    netns: namesIn('/run/netns'),
    handles: process.getActiveResourcesInfo(),
  };
}

/** What is in `after` more often than in `before`. */
function added(before: readonly string[], after: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const item of before) counts.set(item, (counts.get(item) ?? 0) + 1);
  return after.filter((item) => {
    const left = (counts.get(item) ?? 0) - 1;
    counts.set(item, left);
    return left < 0;
  });
}

export interface LeakOptions {
  /** How long what ends by itself may take. */
  withinMs?: number;
  /**
   * A text that every mount point and network namespace of this test has in its name. Tests run beside others, whose
   * mounts come and go; without it all of the machine's count.
   */
  owns?: string;
}

/** What there is more of than before; empty lists when nothing was left. */
export function leftSince(before: Footprint, options: LeakOptions = {}): Footprint {
  const now = takeFootprint();
  const owned = (names: string[]): string[] => names.filter((name) => name.includes(options.owns ?? ''));
  return {
    children: added(before.children, now.children),
    mounts: owned(added(before.mounts, now.mounts)),
    netns: owned(added(before.netns, now.netns)),
    handles: added(before.handles, now.handles),
  };
}

export const nothing: Footprint = { children: [], mounts: [], netns: [], handles: [] };

/** Waits until all that was there only for the test is gone; fails with the list of what stays. */
export async function assertNothingLeft(before: Footprint, options: LeakOptions = {}): Promise<void> {
  const untilMs = performance.now() + (options.withinMs ?? 2000);
  for (;;) {
    // Looked at while no timer of our own runs.
    const left = leftSince(before, options);
    if (Object.values(left).every((list: string[]) => list.length === 0)) return;
    if (performance.now() >= untilMs) assert.deepEqual(left, nothing, 'the test left something behind');
    await delay(10);
  }
}

/** `await using leaks = watchLeaks();` at the top of a test: fails it at its end when anything was left. */
export function watchLeaks(options: LeakOptions = {}): AsyncDisposable {
  const before = takeFootprint();
  return { [Symbol.asyncDispose]: () => assertNothingLeft(before, options) };
}
