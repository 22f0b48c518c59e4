import { timeText } from '../../base/time.ts';

export interface RotationPlan {
  /** Half-made files, and logs whose compressed form is there. */
  readonly unlink: readonly string[];
  /** To be compressed, each to its name with `.gz`. */
  readonly compress: readonly string[];
  /** What the current log is renamed to. */
  readonly rotated: string;
}

/**
 * One rotation of the log `base` among the names of its directory: of `maxFiles` one is the new log, one the log that
 * is rotated now (kept uncompressed: a follower may still read it), the others are compressed.
 */
export function planRotation(names: readonly string[], base: string, maxFiles: number, nowMs: number): RotationPlan {
  const all = names.filter((name) => name.startsWith(`${base}.`));
  const isLive = (name: string): boolean => !name.endsWith('.tmp') && (name.endsWith('.gz') || !all.includes(`${name}.gz`));
  // The stamps in the names sort as the times do.
  const live = all.filter(isLive).sort();
  const excess = Math.max(live.length - Math.max(maxFiles - 2, 0), 0);
  return {
    unlink: [...all.filter((name) => !isLive(name)), ...live.slice(0, excess)],
    compress: live.slice(excess).filter((name) => !name.endsWith('.gz')),
    rotated: `${base}.${rotationStamp(nowMs)}`,
  };
}

/** `20260131-235959`, in UTC. */
export function rotationStamp(nowMs: number): string {
  return timeText(nowMs).replaceAll(/[-:Z]/g, '').replace('T', '-');
}

/** A log's own name and those it was rotated to: all that goes with its container. */
export function logsOf(names: readonly string[], base: string): string[] {
  return names.filter((name) => name === base || name.startsWith(`${base}.`));
}

/** `a/b/0.log` → directory and name; null for a path that is not below `root`. */
export function splitLogPath(root: string, path: string): { dir: string; name: string } | null {
  if (!path.startsWith(`${root}/`)) return null;
  const parts = path
    .slice(root.length + 1)
    .split('/')
    .filter((part) => part !== '');
  const name = parts.pop();
  if (name === undefined || [...parts, name].includes('..')) return null;
  return { dir: parts.join('/'), name };
}
