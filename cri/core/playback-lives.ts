import type { PlayedContainer } from './playback-world.ts';

/** How a container's process lived: by itself, and when it was told to stop. */
export interface PlayedLife {
  /** Null: it ran until it was told to stop, or as long as the recording lasted. */
  readonly exit: { readonly afterMs: number; readonly exitCode: number; readonly oomKilled: boolean } | null;
  /** What the stop signal did: `ignore` when only the kill ended it; null when it is not known. */
  readonly stop: 'ignore' | { readonly afterMs: number; readonly exitCode: number } | null;
}

const NS_PER_MS = 1_000_000n;
const KILLED = 137;
const TERMINATED = 143;

/** What the recording tells of a container's life. */
export function lifeOf(container: PlayedContainer): PlayedLife {
  const { startedAtNs, finishedAtNs, exitCode, reason, stopAskedMs, stopTookMs, stopGraceMs } = container;
  const finishedMs = Number(finishedAtNs / NS_PER_MS);
  const byItself = finishedAtNs > 0n && (stopAskedMs === null || finishedMs < stopAskedMs);
  if (byItself) {
    const afterMs = Math.max(0, Number(finishedAtNs - startedAtNs) / 1e6);
    return { exit: { afterMs, exitCode, oomKilled: reason === 'OOMKilled' }, stop: null };
  }
  if (stopAskedMs === null || (finishedAtNs === 0n && stopTookMs === null)) return { exit: null, stop: null };
  const afterMs = finishedAtNs > 0n ? Math.max(0, finishedMs - stopAskedMs) : (stopTookMs ?? 0);
  if (stopGraceMs > 0 && afterMs >= stopGraceMs * 0.95 && (finishedAtNs === 0n || exitCode === KILLED)) return { exit: null, stop: 'ignore' };
  return { exit: null, stop: { afterMs, exitCode: finishedAtNs > 0n ? exitCode : TERMINATED } };
}
