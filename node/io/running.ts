import { readFile } from 'node:fs/promises';
import type { SetPlan } from '../core/plan.ts';
import { hostPids, memoryOf, processOf, type HostProcess } from './processes.ts';

/** One service of a hub or node, as its PID 1 wrote it down. */
export interface ServiceState {
  readonly name: string;
  /** As the host counts; null while it is down. */
  readonly pid: number | null;
  readonly restarts: number;
  readonly memoryBytes: number | null;
}

/** PID 1 of a hub or node, if it lives: the PID file names a process together with its start time. */
export async function firstProcess(dir: string): Promise<HostProcess | null> {
  const text = await readFile(`${dir}/init.pid`, 'utf8').catch(() => null);
  const [pid, ticks] = (text ?? '').trim().split(' ');
  if (pid === undefined || !/^\d+$/.test(pid)) return null;
  const found = await processOf(Number(pid));
  return found !== null && (ticks === undefined || found.startTicks === ticks) ? found : null;
}

/** The services below a PID 1, with the host's PIDs and their memory. */
export async function servicesOf(dir: string, first: HostProcess): Promise<ServiceState[]> {
  const text = await readFile(`${dir}/init.state`, 'utf8').catch(() => '');
  const pids = await hostPids(first.pid);
  const rows = text.split('\n').filter((line) => line.trim() !== '');
  return Promise.all(
    rows.map(async (row) => {
      const [name = '', inner = '0', restarts = '0'] = row.split(' ');
      const pid = pids.get(Number(inner)) ?? null;
      return { name, pid, restarts: Number(restarts), memoryBytes: pid === null ? null : await memoryOf(pid) };
    }),
  );
}

const LAST_LINES = 4;

/** The last lines that programs which died or do not run have logged: what a person needs when a start fails. */
export async function lastWords(plan: SetPlan): Promise<string[]> {
  const said: string[] = [];
  for (const place of [{ name: 'hub', dir: plan.hub.dir }, ...plan.nodes]) {
    const first = await firstProcess(place.dir);
    const services = first === null ? [] : await servicesOf(place.dir, first);
    if (first === null) said.push(`${place.name} does not run`);
    for (const service of services.filter((one) => one.restarts > 0 || one.pid === null)) {
      const log = await readFile(`${place.dir}/log/${service.name}.log`, 'utf8').catch(() => '');
      said.push(
        `${place.name} ${service.name} (started again ${service.restarts} times):`,
        ...log
          .trimEnd()
          .split('\n')
          .slice(-LAST_LINES)
          .map((line) => `  ${line}`),
      );
    }
  }
  return said;
}
