/**
 * `nodelet bench cni`: ADD and DEL of one pod by our plugin and by the reference chain (ptp with host-local, then
 * portmap), interleaved in one run, in network namespaces of their own. Exit 1 when ours is slower at the median.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, homedir, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { wasSignalled } from '../base/abort.ts';
import { silentLog } from '../base/log.ts';
import { createSysClient } from '../base/sys/client.ts';
import { removeRemains, untilUnwanted } from './bench-remains.ts';

const ROOT = new URL('..', import.meta.url).pathname;
const READY_MS = 20_000;
const CALL_MS = 60_000;
const LIFE_MS = 100;
/** What it makes on the machine. */
const REMAINS = { netns: 'nbc-', folder: 'nodelet-bench-cni-' } as const;
const REFERENCE = ['ptp', 'host-local', 'portmap'];

const { values } = parseArgs({
  options: { count: { type: 'string', default: '100' }, json: { type: 'boolean', default: false }, plugins: { type: 'string' } },
});
const count = Number(values.count);
if (!Number.isInteger(count) || count < 1) fail(`--count ${values.count} is not a number of rounds`);
const folders =
  values.plugins !== undefined ? [values.plugins] : [join(homedir(), '.cache/nodelet/assets/current/cni'), '/opt/cni/bin', '/usr/lib/cni', '/usr/libexec/cni'];
const reference = folders.find((folder) => REFERENCE.every((name) => existsSync(join(folder, name))));
if (process.getuid?.() !== 0) fail('this needs root');
if (reference === undefined)
  fail(`the reference plugins are in none of ${folders.join(', ')}: build them with nodelet assets build cni, or name a folder with --plugins`);
for (const file of ['dist/sys', 'dist/cni/nodelet', 'dist/nodelet.mjs'])
  if (!existsSync(join(ROOT, file))) fail(`${file} is not built: sh sys/build.sh dist/sys; sh sys/build.sh --front dist/cni/nodelet`);

function fail(text: string): never {
  process.stderr.write(`bench cni: ${text}\n`);
  process.exit(2);
}

type Conf = Record<string, unknown>;

interface Times {
  readonly add: number[];
  readonly del: number[];
}

using stop = untilUnwanted();
const dir = mkdtempSync(join(tmpdir(), `${REMAINS.folder}${process.pid}-`));
const node = `${REMAINS.netns}${process.pid}-node`;
const pod = `${REMAINS.netns}${process.pid}-pod`;
const ip = (...args: string[]): string => execFileSync('ip', args, { encoding: 'utf8' });
await using sys = createSysClient({ path: join(ROOT, 'dist/sys'), log: silentLog });

async function plugin(path: string, command: 'ADD' | 'DEL', container: string, conf: Conf): Promise<unknown> {
  const env = {
    PATH: '/usr/sbin:/usr/bin:/sbin:/bin',
    CNI_COMMAND: command,
    CNI_CONTAINERID: container,
    CNI_NETNS: `/run/netns/${pod}`,
    CNI_IFNAME: 'eth0',
    CNI_PATH: reference!,
    NODELET_CNI_SOCKET: `${dir}/cni.sock`,
  };
  const result = await sys.run({ argv: [path], env, stdin: JSON.stringify(conf), netns: `/run/netns/${node}`, timeoutMs: CALL_MS }, stop.signal);
  const out = Buffer.from(result.stdout).toString();
  if (result.code !== 0) throw new Error(`${path} ${command} ended with ${result.code}: ${out}${Buffer.from(result.stderr).toString()}`);
  return out === '' ? null : JSON.parse(out);
}

/** A pod lives for a while: what the kernel puts off after an ADD would be waited for by the DEL, whosever it is. */
const lives = (): Promise<void> => delay(LIFE_MS, undefined, { signal: stop.signal });

async function timed(into: number[], work: () => Promise<void>): Promise<void> {
  const begunAt = performance.now();
  await work();
  into.push(performance.now() - begunAt);
}

const common = { cniVersion: '1.0.0', name: 'bench' };
const routes = [{ dst: '0.0.0.0/0' }];
const ranges = [[{ subnet: '10.244.7.0/24' }]];
const ptp: Conf = { ...common, type: 'ptp', mtu: 1500, ipMasq: false, ipam: { type: 'host-local', dataDir: `${dir}/host-local`, ranges, routes } };
const portmap: Conf = { ...common, type: 'portmap', snat: true };
const ours: Conf = { ...common, type: 'nodelet', ipam: { dataDir: `${dir}/data`, ranges: [[{ subnet: '10.244.8.0/24' }]], routes } };

/** What libcni does for a list of two plugins. */
async function byReference(times: Times, container: string, runtimeConfig: Conf): Promise<void> {
  let result: unknown;
  await timed(times.add, async () => {
    const first = await plugin(`${reference}/ptp`, 'ADD', container, ptp);
    result = await plugin(`${reference}/portmap`, 'ADD', container, { ...portmap, runtimeConfig, prevResult: first });
  });
  await lives();
  await timed(times.del, async () => {
    await plugin(`${reference}/portmap`, 'DEL', container, { ...portmap, runtimeConfig, prevResult: result });
    await plugin(`${reference}/ptp`, 'DEL', container, { ...ptp, prevResult: result });
  });
}

async function byOurs(times: Times, container: string, runtimeConfig: Conf): Promise<void> {
  const path = join(ROOT, 'dist/cni/nodelet');
  await timed(times.add, async () => void (await plugin(path, 'ADD', container, { ...ours, runtimeConfig })));
  await lives();
  await timed(times.del, async () => void (await plugin(path, 'DEL', container, { ...ours, runtimeConfig })));
}

const quantile = (list: readonly number[], part: number): number =>
  [...list].sort((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * part))] ?? 0;

function tell(name: string, mine: Times, theirs: Times): { name: string; ok: boolean; ours: Record<string, number>; reference: Record<string, number> } {
  const numbers = (times: Times): Record<string, number> => ({
    addP50Ms: quantile(times.add, 0.5),
    addP99Ms: quantile(times.add, 0.99),
    delP50Ms: quantile(times.del, 0.5),
    delP99Ms: quantile(times.del, 0.99),
  });
  const a = numbers(mine);
  const b = numbers(theirs);
  return { name, ok: a['addP50Ms']! <= b['addP50Ms']! && a['delP50Ms']! <= b['delP50Ms']!, ours: a, reference: b };
}

await removeRemains(sys, REMAINS);
ip('netns', 'add', node);
ip('netns', 'add', pod);
ip('-n', node, 'link', 'set', 'lo', 'up');
writeFileSync(`${dir}/daemon.json`, JSON.stringify({ socket: `${dir}/cni.sock`, dataDir: `${dir}/data`, confFile: '', podCIDRs: ['10.244.8.0/24'] }));
const daemon = spawn(
  'nsenter',
  [
    `--net=/run/netns/${node}`,
    process.execPath,
    '--max-semi-space-size=2',
    '--disable-warning=ExperimentalWarning',
    join(ROOT, 'dist/nodelet.mjs'),
    'cni',
    'daemon',
    '--config',
    `${dir}/daemon.json`,
  ],
  {
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', NODELET_SYS: join(ROOT, 'dist/sys') },
    stdio: ['ignore', 'ignore', 'inherit'],
  },
);
let code = 0;
try {
  for (const deadline = performance.now() + READY_MS; !existsSync(`${dir}/cni.sock`); await delay(20, undefined, { signal: stop.signal }))
    if (performance.now() > deadline || daemon.exitCode !== null) throw new Error('the daemon did not start');
  const results: ReturnType<typeof tell>[] = [];
  const loadBefore = loadavg()[0]!;
  for (const [name, runtimeConfig] of [
    ['pod without ports', {}],
    ['pod with a host port', { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }] }],
  ] as const) {
    const mine: Times = { add: [], del: [] };
    const theirs: Times = { add: [], del: [] };
    for (let round = 0; round < count + 2; round++) {
      // The first rounds warm up; who goes first alternates.
      const [a, b] =
        round < 2
          ? [
              { add: [], del: [] },
              { add: [], del: [] },
            ]
          : [mine, theirs];
      const both = [() => byOurs(a, `ours-${round}`, runtimeConfig), () => byReference(b, `reference-${round}`, runtimeConfig)];
      for (const one of round % 2 === 0 ? both : both.reverse()) await one();
    }
    results.push(tell(name, mine, theirs));
  }
  code = results.every((one) => one.ok) ? 0 : 1;
  if (values.json) process.stdout.write(`${JSON.stringify({ rounds: count, cpus: cpus().length, load: loadBefore, reference, results }, null, 2)}\n`);
  else {
    const cell = (ms: number): string => ms.toFixed(1).padStart(8);
    process.stdout.write(
      `${count} rounds each, interleaved; ${cpus().length} CPUs, load ${loadBefore.toFixed(1)}; reference: ptp + host-local, portmap in ${reference}\n\n`,
    );
    process.stdout.write(`${'milliseconds'.padEnd(34)} ADD p50      p99  DEL p50      p99\n`);
    for (const one of results)
      for (const [who, numbers] of [
        ['nodelet', one.ours],
        ['reference', one.reference],
      ] as const)
        process.stdout.write(`${`${one.name}, ${who}`.padEnd(33)}${Object.values(numbers).map(cell).join(' ')}\n`);
    process.stdout.write(`\nours at most as slow at the median: ${results.every((one) => one.ok) ? 'yes' : 'NO'}\n`);
  }
} catch (error) {
  if (!(await wasSignalled(stop.signal))) throw error;
  code = 143;
} finally {
  if (daemon.exitCode === null && daemon.signalCode === null) {
    const exit = once(daemon, 'exit');
    daemon.kill('SIGTERM');
    await exit;
  }
  for (const name of [node, pod]) ip('netns', 'delete', name);
  rmSync(dir, { recursive: true, force: true });
}
process.exitCode = code;
