import { readdir, readFile } from 'node:fs/promises';

const TICKS_PER_SECOND = 100;

/** What processes cost. Memory counts shared pages by share (Pss). */
export interface Cost {
  readonly cpuSeconds: number;
  readonly anonMiB: number;
  readonly fileMiB: number;
}

/** A process and everything below it, by /proc. */
export async function family(pid: number): Promise<number[]> {
  const found: number[] = [];
  const waiting = [pid];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    found.push(next);
    const tasks = await readdir(`/proc/${next}/task`).catch(() => [] as string[]);
    const children = await Promise.all(tasks.map((task) => readFile(`/proc/${next}/task/${task}/children`, 'utf8').catch(() => '')));
    waiting.push(...children.join(' ').split(' ').filter(Boolean).map(Number));
  }
  return found;
}

/** The cost of these processes so far. A process that ended meanwhile counts nothing. */
export async function costOf(pids: readonly number[]): Promise<Cost> {
  const sum = { cpuSeconds: 0, anonMiB: 0, fileMiB: 0 };
  for (const pid of pids) {
    const [stat = '', rollup = ''] = await Promise.all(['stat', 'smaps_rollup'].map((name) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '')));
    sum.cpuSeconds += cpuSecondsOf(stat);
    const mib = (key: string): number => Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(rollup)?.[1] ?? 0) / 1024;
    sum.anonMiB += mib('Pss_Anon');
    sum.fileMiB += mib('Pss_File') + mib('Pss_Shmem');
  }
  return sum;
}

/** User and system time of a process and of its children that have ended (proc_pid_stat(5), fields 14 to 17). */
export function cpuSecondsOf(stat: string): number {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.slice(11, 15).reduce((total, ticks) => total + Number(ticks || 0), 0) / TICKS_PER_SECOND;
}

/** How late the event loop of a daemon of ours was since the last scrape, in milliseconds; null where the metrics have no such thing. */
export function loopDelayMs(page: string, quantile: string): number | null {
  const found = new RegExp(`^nodelet_event_loop_delay_recent_seconds\\{quantile="${quantile.replaceAll('.', '\\.')}"\\} (\\S+)$`, 'm').exec(page)?.[1];
  return found === undefined ? null : Number(found) * 1000;
}
