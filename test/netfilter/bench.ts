/**
 * `nodelet bench netfilter`: our proxy and upstream's, each in a network namespace of its own beside an API server of
 * the same objects. They are measured in turn, never at once.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { wasSignalled } from '../../base/abort.ts';
import { realClock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { PROXY_FLAGS } from '../../node/core/services.ts';
import { findAssets } from '../assets/find.ts';
import { endpointsOf, objects, PROBE } from './bench-objects.ts';
import { median, medians, page, quantile, type Cell, type Figures, type Latency } from './bench-report.ts';
import { removeRemains, untilUnwanted } from '../../scripts/bench-remains.ts';
import { REMAINS, Subject, type Mode, type Programs, type Who } from './bench-subject.ts';
import { missing, sysPath } from './lab.ts';

const HELP = `nodelet bench netfilter: our proxy beside upstream's kube-proxy

  --services LIST    numbers of Services (default 1000,10000)
  --endpoints LIST   endpoints of each (default 2,10)
  --modes LIST       nftables, iptables (default both)
  --only WHO         ours or upstream
  --runs N           times that each is started and measured, medians count (default 3 up to 1,000 Services, else 1)
  --changes N        single changes measured in each run (default 9)
  --rounds N         rounds of first packets, 300 each (default 9; 0 leaves them out)
  --json             figures as JSON (before the other options: nodelet --json bench netfilter)

Examples:
  nodelet bench netfilter
  nodelet bench netfilter -- --services 1000 --endpoints 2 --modes nftables --only ours
Exit code 1 when an aim was missed.
`;

const HANDSHAKES = 300;
const BURST = 1000;

const { values } = parseArgs({
  options: {
    services: { type: 'string', default: '1000,10000' },
    endpoints: { type: 'string', default: '2,10' },
    modes: { type: 'string', default: 'nftables,iptables' },
    only: { type: 'string', default: '' },
    runs: { type: 'string', default: '' },
    changes: { type: 'string', default: '9' },
    rounds: { type: 'string', default: '9' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', short: 'h', default: false },
    name: { type: 'string' },
  },
});

const numbers = (text: string): number[] => text.split(',').map(Number);
const say = (text: string): void => void process.stderr.write(`  ${text}\n`);
using stop = untilUnwanted();

async function opened<T>(subjects: readonly Subject[], body: () => Promise<T>): Promise<T> {
  try {
    return await body();
  } finally {
    for (const subject of subjects) await subject[Symbol.asyncDispose]();
  }
}

/** Each program has run before on a node whose proxy starts: its file is in memory, and of ours what V8 compiled is kept. */
async function warmUp(who: readonly Who[], mode: Mode, create: (who: Who, mode: Mode, name: string) => Subject): Promise<void> {
  for (const one of who) {
    const subject = create(one, mode, `${one}-w`);
    await opened([subject], async () => {
      await subject.open(objects(50, 2));
      await subject.start();
      await subject.change([endpointsOf(1, 2, 1)]);
    });
  }
}

type Workload = Omit<Cell, 'ours' | 'upstream'>;

/** Whoever comes first pays for the namespaces that the kernel still takes down, so the order changes from run to run. */
async function measureCell(who: readonly Who[], cell: Workload, create: (who: Who, mode: Mode, name: string) => Subject): Promise<Cell> {
  const runs = values.runs === '' ? (cell.services > 1000 ? 1 : 3) : Number(values.runs);
  const done: Map<Who, Figures>[] = [];
  for (let run = 0; run < runs; run++) {
    done.push(await measureOnce(run % 2 === 0 ? who : who.toReversed(), cell, (one, mode, name) => create(one, mode, `${name}${run}`)));
  }
  const [ours, upstream] = (['ours', 'upstream'] as const).map((one) => medians(done.flatMap((figures) => figures.get(one) ?? [])));
  return { ...cell, ours: ours!, upstream: upstream! };
}

async function measureOnce(who: readonly Who[], cell: Workload, create: (who: Who, mode: Mode, name: string) => Subject): Promise<Map<Who, Figures>> {
  const subjects = who.map((one) => create(one, cell.mode as Mode, one));
  return await opened(subjects, async () => {
    const figures = new Map<Who, Partial<Figures>>();
    for (const subject of subjects) {
      await subject.open(objects(cell.services, cell.endpoints));
      const { readyMs, syncMs, lockMs } = await subject.start();
      figures.set(subject.who, { coldMs: readyMs, coldSyncMs: syncMs, lockMs });
      say(`${cell.mode} ${cell.services} × ${cell.endpoints}: ${subject.who} is ready after ${Math.round(readyMs)} ms, its sync took ${Math.round(syncMs)} ms`);
      await subject.quiet();
    }
    const changes = new Map<Who, { kernelMs: number; proxyMs: number }[]>(who.map((one) => [one, []]));
    for (let round = 1; round <= Number(values.changes); round++) {
      for (const subject of round % 2 === 0 ? subjects.toReversed() : subjects) {
        stop.signal.throwIfAborted();
        // What was written last is longer ago than a proxy waits between writes.
        await realClock.sleep(600, stop.signal);
        changes.get(subject.who)!.push(await subject.change([endpointsOf((round * 37) % cell.services, cell.endpoints, round)]));
      }
    }
    for (const subject of subjects) {
      const many = Array.from({ length: BURST }, (_, index) => endpointsOf(index % cell.services, cell.endpoints, 200));
      const burst = await subject.change(many, 1000);
      const cost = await subject.cost();
      const done = changes.get(subject.who)!;
      Object.assign(figures.get(subject.who)!, {
        changeKernelMs: median(done.map(({ kernelMs }) => kernelMs)),
        changeProxyMs: median(done.map(({ proxyMs }) => proxyMs)),
        burstSyncs: burst.syncs,
        burstMs: burst.kernelMs,
        ...cost,
      });
      say(
        `${subject.who}: change ${median(done.map(({ kernelMs }) => kernelMs)).toFixed(1)} ms, burst ${burst.syncs} syncs, ${burst.writes} generations, peak ${Math.round(cost.peakMiB)} MiB`,
      );
    }
    return figures as Map<Who, Figures>;
  });
}

async function measureLatency(who: Who, mode: Mode, create: (who: Who, mode: Mode, name: string) => Subject): Promise<Latency> {
  const sizes = [10, 10_000] as const;
  const subjects = sizes.map((size) => create(who, mode, `${who}${size}`));
  return await opened(subjects, async () => {
    for (const [index, subject] of subjects.entries()) {
      await subject.open(objects(sizes[index]!, 2));
      await subject.start();
      await subject.quiet();
      await subject.handshakes(PROBE.ip, PROBE.port, HANDSHAKES);
    }
    const rounds = subjects.map(() => [] as { p50Ms: number; p99Ms: number }[]);
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const index of round % 2 === 0 ? [0, 1] : [1, 0]) {
        stop.signal.throwIfAborted();
        const times = (await subjects[index]!.handshakes(PROBE.ip, PROBE.port, HANDSHAKES)).toSorted((a, b) => a - b);
        rounds[index]!.push({ p50Ms: quantile(times, 0.5), p99Ms: quantile(times, 0.99) });
      }
    }
    const of = (index: 0 | 1): Latency['few'] => ({
      services: sizes[index],
      p50Ms: median(rounds[index]!.map(({ p50Ms }) => p50Ms)),
      p99Ms: median(rounds[index]!.map(({ p99Ms }) => p99Ms)),
    });
    return { who, mode, few: of(0), many: of(1) };
  });
}

async function run(): Promise<number> {
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const absent = missing(['nsenter', ...(values.modes.includes('iptables') ? ['iptables-restore'] : [])]);
  if (absent !== null) {
    process.stderr.write(`nodelet bench netfilter: ${absent}\n`);
    return 2;
  }
  const upstream = (await findAssets({ env: process.env })).path('kube-proxy');
  if (upstream === null && values.only !== 'ours') say('upstream’s kube-proxy is not here (./nodelet assets): ours is measured alone');
  const who: Who[] = (['ours', 'upstream'] as const).filter((one) => (values.only === '' || values.only === one) && (one === 'ours' || upstream !== null));
  const program = process.env['NETFILTER_BENCH_PROGRAM'] ?? join(import.meta.dirname, '../../dist/netfilter.cjs');
  const programs: Programs = {
    ours: [
      process.execPath,
      ...(process.env['NETFILTER_BENCH_NODE'] ?? '').split(' ').filter(Boolean),
      ...PROXY_FLAGS,
      '--max-old-space-size=256',
      '--disable-warning=ExperimentalWarning',
      program,
      'netfilter',
    ],
    upstream: upstream ?? '',
  };
  const folder = await mkdtemp(join(tmpdir(), `${REMAINS.folder}${process.pid}-`));
  const sys = createSysClient({ path: sysPath, log: silentLog });
  const create = (one: Who, mode: Mode, name: string): Subject => new Subject(one, mode, { sys, folder, programs, name, signal: stop.signal });
  const cells: Cell[] = [];
  const latencies: Latency[] = [];
  try {
    await removeRemains(sys, REMAINS);
    for (const mode of values.modes.split(',') as Mode[]) {
      await warmUp(who, mode, create);
      for (const endpoints of numbers(values.endpoints)) {
        for (const services of numbers(values.services)) cells.push(await measureCell(who, { mode, services, endpoints }, create));
      }
      if (Number(values.rounds) > 0) for (const one of who) latencies.push(await measureLatency(one, mode, create));
    }
  } finally {
    await sys[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  }
  const { text, missed } = page(cells, latencies);
  process.stdout.write(values.json ? `${JSON.stringify({ cells, latencies, missed }, null, 2)}\n` : text);
  return missed === 0 ? 0 : 1;
}

try {
  process.exitCode = await run();
} catch (error) {
  process.stderr.write(`nodelet bench netfilter: ${messageOf(error)}\n`);
  process.exitCode = (await wasSignalled(stop.signal)) ? 143 : 2;
}
