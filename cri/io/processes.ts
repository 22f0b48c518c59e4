import { readdir, readFile, readlink } from 'node:fs/promises';

/** A process for good: its PID and the clock ticks at its start. */
export interface ProcessName {
  readonly pid: number;
  readonly startTicks: string;
}

const text = (path: string): Promise<string> => readFile(path, 'utf8').catch(() => '');

/** Fields of /proc/PID/stat from the third on, and the name before them; null when it is gone or a zombie. */
async function statOf(pid: number): Promise<{ comm: string; fields: readonly string[] } | null> {
  const stat = await text(`/proc/${pid}/stat`);
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return stat === '' || fields[0] === 'Z' || fields[0] === 'X' ? null : { comm: stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')')), fields };
}

/** The process of that PID, or null. */
export async function processOf(pid: number): Promise<ProcessName | null> {
  const startTicks = (await statOf(pid))?.fields[19];
  return startTicks === undefined ? null : { pid, startTicks };
}

export async function isAlive(one: ProcessName): Promise<boolean> {
  return (await processOf(one.pid))?.startTicks === one.startTicks;
}

/** The command line as it stands there: a program may have written another over it. */
export async function commandLine(pid: number): Promise<string[]> {
  return (await text(`/proc/${pid}/cmdline`)).split('\0').filter((word, at) => at === 0 || word !== '');
}

export async function cgroupOf(pid: number): Promise<string> {
  return text(`/proc/${pid}/cgroup`);
}

/** Names a namespace; empty when it cannot be read. */
export async function namespaceOf(pid: number | 'self', kind: 'mnt' | 'pid'): Promise<string> {
  return readlink(`/proc/${pid}/ns/${kind}`).catch(() => '');
}

/** Its PID as it sees itself, inside the innermost of its PID namespaces. */
export async function innerPid(pid: number): Promise<number> {
  const found = /^NSpid:\s*(.*)$/m.exec(await text(`/proc/${pid}/status`))?.[1];
  return Number(found?.trim().split(/\s+/).at(-1) ?? pid);
}

/** Its ancestors, the nearest first, with their names; as far as they are visible. */
export async function ancestorsOf(pid: number): Promise<{ pid: number; comm: string }[]> {
  const found: { pid: number; comm: string }[] = [];
  for (let stat = await statOf(pid); ;) {
    const parent = Number(stat?.fields[1] ?? 0);
    if (parent <= 0) return found;
    stat = await statOf(parent);
    if (stat !== null) found.push({ pid: parent, comm: stat.comm });
  }
}

/** All processes that can be seen. */
export async function allProcesses(): Promise<number[]> {
  return (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map(Number);
}
