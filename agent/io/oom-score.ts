import { readFile, writeFile } from 'node:fs/promises';
import type { Log } from '../../base/log.ts';

/**
 * Gives this process its oom_score_adj. Where the kernel refuses (lowering takes CAP_SYS_RESOURCE) it stays as it is, with one
 * warning, and the answer is the least that can be had here; null: there is no such bound.
 */
export async function setOomScore(score: number, log: Log, path = '/proc/self/oom_score_adj'): Promise<number | null> {
  try {
    await writeFile(path, String(score));
    return null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'EACCES' && code !== 'EPERM') throw error;
    const least = Number(await readFile(path, 'utf8'));
    log.warn('The kernel refuses to lower oom_score_adj; it stays as it is, and containers get no less', { oomScoreAdj: score, least });
    return least;
  }
}
