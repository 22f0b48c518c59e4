import { execa, type ResultPromise } from 'execa';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { askTap } from '../../cri/io/feed.ts';
import { createCriClient, type CriClient } from '../../cri/mod.ts';

export interface BenchRow {
  readonly call: string;
  readonly way: string;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Against `direct` of the same run. */
  readonly addedP50Ms: number;
  readonly addedP99Ms: number;
}

export interface BenchResult {
  readonly rows: readonly BenchRow[];
  readonly answerBytes: number;
  /** Seconds of CPU and resident memory of each way's process at the end. */
  readonly processes: Readonly<Record<string, { cpuSeconds: number; rssMiB: number }>>;
  readonly loadAverage: string;
}

function at(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

/** Seconds of CPU and resident memory of a process; its children's too: socat makes one for each connection, the tap one that passes bytes on. */
async function costs(pid: number | undefined): Promise<{ cpuSeconds: number; rssMiB: number }> {
  const sum = { cpuSeconds: 0, rssMiB: 0 };
  if (pid === undefined) return sum;
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const [stat, status] = await Promise.all([
      readFile(`/proc/${entry}/stat`, 'utf8').catch(() => ''),
      readFile(`/proc/${entry}/status`, 'utf8').catch(() => ''),
    ]);
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    if (entry !== String(pid) && fields[1] !== String(pid)) continue;
    sum.cpuSeconds += (Number(fields[11]) + Number(fields[12])) / 100;
    sum.rssMiB += Math.round(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024);
  }
  return sum;
}

/** Never made here, so that connections go through the proxy that acts and nothing is done to them. */
const IDLE_RULE = 'CheckpointPod error unavailable';

/**
 * Time of Version and of ListContainers with 110 containers: straight, through socat where it is, through the tap, through
 * the tap that records, and through the tap while a fault rule is armed; the ways take turns call by call, their order changes.
 */
export async function benchTap(calls: number, bundle: string, signal: AbortSignal): Promise<BenchResult> {
  const sys = join(dirname(bundle), 'sys');
  if (!existsSync(sys)) throw new OpError('not-found', 'measuring the tap', `there is no ${sys}`, { advice: `sh sys/build.sh ${sys}` });
  const folder = await mkdtemp(join(tmpdir(), 'tap-bench-'));
  const running: Record<string, ResultPromise> = {};
  const clients: Record<string, CriClient> = {};
  const start = async (name: string, argv: readonly string[], socket: string): Promise<void> => {
    running[name] = execa(argv[0] ?? '', argv.slice(1), { reject: false, stdio: 'ignore', env: { NODELET_SYS: sys } });
    for (let tries = 0; !existsSync(socket); tries++) {
      if (tries > 600 || signal.aborted) throw new OpError('deadline', `start ${name}`, 'it does not listen');
      await delay(50);
    }
    await delay(200);
  };
  const socket = (name: string): string => join(folder, `${name}.sock`);
  const runtime = socket('runtime');
  try {
    await start('runtime', [process.execPath, new URL('tap-bench-runtime.ts', import.meta.url).pathname, runtime], runtime);
    const tap = [process.execPath, '--max-semi-space-size=2', '--disable-warning=ExperimentalWarning', bundle, 'cri', 'tap', '--upstream', runtime, '--quiet'];
    await start('tap', [...tap, '--listen', socket('tap')], socket('tap'));
    await start('tap, recording', [...tap, '--listen', socket('recording'), '--record', join(folder, 'calls.crirec')], socket('recording'));
    await start('tap, acting', [...tap, '--listen', socket('acting')], `${socket('acting')}.tap`);
    await askTap(`${socket('acting')}.tap`, { do: 'fault', rules: [IDLE_RULE] }, signal);
    const ways: Record<string, string> = { direct: runtime, tap: socket('tap'), 'tap, recording': socket('recording'), 'tap, acting': socket('acting') };
    const hasSocat = (await execa('socat', ['-V'], { reject: false, stdio: 'ignore' })).exitCode === 0;
    if (hasSocat) {
      await start('socat', ['socat', `UNIX-LISTEN:${socket('socat')},fork`, `UNIX-CONNECT:${runtime}`], socket('socat'));
      ways['socat'] = socket('socat');
    }
    for (const [name, path] of Object.entries(ways)) clients[name] = createCriClient(connectRuntime(path));
    const kinds: Record<string, (client: CriClient) => Promise<unknown>> = {
      Version: (client) => client.runtime.version({}),
      'ListContainers of 110': (client) => client.runtime.listContainers({}),
    };
    const rows: BenchRow[] = [];
    for (const [call, run] of Object.entries(kinds)) {
      const times: Record<string, number[]> = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
      const order = Object.entries(clients);
      for (const [, client] of order) for (let warm = 0; warm < 30; warm++) await run(client);
      for (let done = 0; done < calls && !signal.aborted; done++) {
        for (const [name, client] of order) {
          const startedMs = performance.now();
          await run(client);
          times[name]?.push(performance.now() - startedMs);
        }
        order.push(...order.splice(0, 1));
      }
      const sorted = Object.fromEntries(Object.entries(times).map(([name, list]) => [name, list.sort((a, b) => a - b)]));
      const base = sorted['direct'] ?? [];
      for (const [way, list] of Object.entries(sorted)) {
        const [p50Ms, p99Ms] = [at(list, 0.5), at(list, 0.99)];
        rows.push({ call, way, p50Ms, p99Ms, addedP50Ms: p50Ms - at(base, 0.5), addedP99Ms: p99Ms - at(base, 0.99) });
      }
    }
    const processes: Record<string, { cpuSeconds: number; rssMiB: number }> = {};
    for (const [name, child] of Object.entries(running)) processes[name] = await costs(child.pid);
    const answerBytes = JSON.stringify(await clients['direct']?.runtime.listContainers({})).length;
    return { rows, answerBytes, processes, loadAverage: (await readFile('/proc/loadavg', 'utf8')).split(' ')[0] ?? '' };
  } finally {
    for (const client of Object.values(clients)) await client[Symbol.asyncDispose]();
    for (const child of Object.values(running)) child.kill('SIGTERM');
    await Promise.all(Object.values(running).map((child) => Promise.race([child, delay(5_000)])));
    for (const child of Object.values(running)) child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  }
}
