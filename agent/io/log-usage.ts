import { stat } from 'node:fs/promises';
import type { Sys } from '../../base/sys/types.ts';

/**
 * Bytes and inodes of the files in a directory of logs, without the directory itself: so upstream counts them.
 * @throws OpError `not-found`, `timeout` and what else `Sys.diskUsage` throws.
 */
export async function logUsage(
  sys: Pick<Sys, 'diskUsage'>,
  directory: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<{ bytes: number; inodes: number }> {
  const all = await sys.diskUsage(directory, { timeoutMs }, signal);
  const own = await stat(directory).catch(() => null);
  return own === null ? all : { bytes: Math.max(0, all.bytes - own.blocks * 512), inodes: Math.max(0, all.inodes - 1) };
}
