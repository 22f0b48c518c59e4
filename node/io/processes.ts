import { readdir, readFile, readlink } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';

/** A process as the host sees it. */
export interface HostProcess {
  readonly pid: number;
  /** Clock ticks since boot; with the PID it names a process for good. */
  readonly startTicks: string;
}

async function startTicks(pid: number): Promise<string | null> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => null);
  if (stat === null) return null;
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' || fields[0] === 'X' ? null : (fields[19] ?? null);
}

/** The process of that PID, or null when there is none (a zombie counts as none). */
export async function processOf(pid: number): Promise<HostProcess | null> {
  const ticks = await startTicks(pid);
  return ticks === null ? null : { pid, startTicks: ticks };
}

export async function isAlive(process: HostProcess): Promise<boolean> {
  return (await startTicks(process.pid)) === process.startTicks;
}

/** Kills a process and waits until the kernel has taken it and (for a PID 1) its namespace down. */
export async function killAndWait(target: HostProcess, timeoutMs: number): Promise<boolean> {
  if (!(await isAlive(target))) return true;
  try {
    process.kill(target.pid, 'SIGKILL');
  } catch {
    // It ended between the look and the signal.
  }
  for (let waited = 0; waited < timeoutMs; waited += 10) {
    if (!(await isAlive(target))) return true;
    await delay(10);
  }
  return !(await isAlive(target));
}

/** PIDs inside the PID namespace of `pid1` → PIDs of the host. */
export async function hostPids(pid1: number): Promise<Map<number, number>> {
  const found = new Map<number, number>();
  const namespace = await readlink(`/proc/${pid1}/ns/pid`).catch(() => null);
  if (namespace === null) return found;
  const entries = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  await Promise.all(
    entries.map(async (name) => {
      if ((await readlink(`/proc/${name}/ns/pid`).catch(() => '')) !== namespace) return;
      const status = await readFile(`/proc/${name}/status`, 'utf8').catch(() => '');
      const inner = /^NSpid:\s*(.*)$/m.exec(status)?.[1]?.trim().split(/\s+/).at(-1);
      if (inner !== undefined) found.set(Number(inner), Number(name));
    }),
  );
  return found;
}

/** Memory of a process in bytes: its share of what it maps (Pss), or null when it is gone. */
export async function memoryOf(pid: number): Promise<number | null> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch(() => null);
  const kib = /^Pss:\s+(\d+)/m.exec(rollup ?? '')?.[1];
  return kib === undefined ? null : Number(kib) * 1024;
}
