/** `nodelet compare`: the same pods on an upstream node and on ours, interleaved, in one run. */
import { execFile } from 'node:child_process';
import { stat, writeFile } from 'node:fs/promises';
import { cpus } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { createKubeApi } from '../../base/kubeapi/client.ts';
import { readKubeConfig } from '../../base/kubeapi/config.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import type { Node } from '../../proto/kube/types.ts';
import { claimCluster } from '../cluster/own.ts';
import { requireWritable, runProgram, type Program } from '../../scripts/command.ts';
import { countWrites } from './audit.ts';
import { measureIdle, measureRound, type Subject } from './measure.ts';
import { pageOf } from './page.ts';
import { freshNamespace, removeNamespace } from '../namespaces.ts';
import { Watcher } from './pods.ts';
import { textOf, rowsOf, type Comparison, type Idle, type Sample, type Side, type Writes } from './report.ts';
import { IMAGES, NAMESPACE, type Flavour } from './workload.ts';

const run = promisify(execFile);
const nodelet = new URL('../../nodelet', import.meta.url).pathname;

interface Options {
  readonly name: string;
  readonly sizes: string;
  readonly rounds: string;
  readonly flavours: string;
  readonly idle: string;
  readonly timeout: string;
  readonly containerd: string;
  readonly writes: boolean;
  readonly page?: string;
  readonly out?: string;
  readonly json: boolean;
}

interface Plan {
  readonly sizes: readonly number[];
  readonly rounds: readonly number[];
  readonly flavours: readonly Flavour[];
  readonly idleMs: number;
  readonly timeoutMs: number;
}

interface SetStatus {
  readonly kubeconfig: string;
  readonly nodes: readonly { readonly name: string; readonly pid: number | null }[];
  readonly processes: readonly { readonly place: string; readonly name: string; readonly pid: number | null }[];
}

function numbers(flag: string, text: string): number[] {
  const parts = text.split(',').map(Number);
  if (parts.length === 0 || parts.some((part) => !Number.isInteger(part) || part < 1 || part > 1_000))
    throw new OpError('invalid', `reading ${flag}`, `"${text}" is not a list of whole numbers from 1 to 1000`);
  return parts;
}

function planOf(options: Options): Plan {
  const sizes = numbers('--sizes', options.sizes);
  const given = numbers('--rounds', options.rounds);
  const flavours = options.flavours.split(',');
  if (flavours.some((flavour) => flavour !== 'plain' && flavour !== 'probed'))
    throw new OpError('invalid', 'reading --flavours', `"${options.flavours}" is not a list of plain and probed`);
  const [idle, timeout] = [Number(options.idle), Number(options.timeout)];
  if (!(idle >= 0)) throw new OpError('invalid', 'reading --idle', `"${options.idle}" is not a number of seconds`);
  if (!(timeout > 0)) throw new OpError('invalid', 'reading --timeout', `"${options.timeout}" is not a number of seconds`);
  return {
    sizes,
    rounds: sizes.map((_, at) => given[at] ?? given.at(-1) ?? 1),
    flavours: flavours as Flavour[],
    idleMs: idle * 1000,
    timeoutMs: timeout * 1000,
  };
}

async function command(args: readonly string[], signal: AbortSignal): Promise<string> {
  try {
    return (await run(nodelet, [...args], { maxBuffer: 2 ** 26, signal })).stdout;
  } catch (error) {
    const words = (error as { stderr?: string }).stderr?.trim().split('\n').slice(-6).join('\n  ') ?? String(error);
    throw new OpError('failed', `running nodelet ${args.slice(0, 2).join(' ')}`, words, { cause: error });
  }
}

/** A cluster of one upstream node and one of ours, gone afterwards. */
async function clusterUp(program: Program, options: Options, extra: readonly string[]): Promise<SetStatus & AsyncDisposable> {
  const { signal } = program.host;
  await program.progress.step(`cluster ${options.name}: one node of upstream’s, one of ours`, () =>
    command(
      ['cluster', 'up', '--name', options.name, '--nodes', '2', '--agent', 'upstream,ours', '--containerd', options.containerd, ...extra, '--json'],
      signal,
    ),
  );
  // Its pods would take room of the 110 that a node has, and time of one side alone.
  await command(['kubectl', '--name', options.name, '-n', 'kube-system', 'delete', 'deployment', 'coredns', '--cascade=foreground', '--timeout=60s'], signal);
  const status = JSON.parse(await command(['status', '--json', '--name', options.name], signal)) as SetStatus;
  return {
    ...status,
    [Symbol.asyncDispose]: async () => {
      await program.progress.step('cluster down', () => command(['cluster', 'down', '--name', options.name], new AbortController().signal));
    },
  };
}

function subjectsOf(status: SetStatus): Subject[] {
  const pid = (place: string, names: readonly string[]): number => {
    const found = status.processes.find((process) => process.place === place && names.includes(process.name))?.pid;
    if (found === undefined || found === null) throw new OpError('unavailable', `looking at ${place}`, `no ${names.join(' or ')} runs there`);
    return found;
  };
  const subject = (side: Side, at: number, agent: string): Subject => {
    const node = status.nodes[at]?.name ?? '';
    return { side, node, agentPid: pid(node, [agent]), containerdPid: pid(node, ['containerd']), initPid: pid(node, ['init']) };
  };
  return [subject('upstream', 0, 'kubelet'), subject('ours', 1, 'agent')];
}

async function versionsOf(api: KubeApi): Promise<Record<string, string>> {
  const nodes = (await api.list<Node>({ group: '', version: 'v1', resource: 'nodes' })).items;
  const info = nodes[0]?.status?.nodeInfo;
  const commit = (
    await run('git', ['-C', new URL('.', import.meta.url).pathname, 'rev-parse', '--short', 'HEAD']).catch(() => ({ stdout: 'unknown' }))
  ).stdout.trim();
  return {
    kubelet: info?.kubeletVersion ?? '?',
    ours: commit,
    runtime: info?.containerRuntimeVersion ?? '?',
    kernel: info?.kernelVersion ?? '?',
  };
}

function connect(status: SetStatus): Promise<KubeApi> {
  return readKubeConfig(status.kubeconfig).then((config) =>
    createKubeApi({ config, log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-compare' }),
  );
}

async function makeImages(signal: AbortSignal): Promise<void> {
  const made = JSON.parse(await command(['image', 'list', '--json'], signal)) as { images: readonly { name: string }[] };
  for (const { name, recipe } of IMAGES)
    if (!made.images.some((image) => image.name.endsWith(name))) await command(['image', 'make', name, '--from', recipe], signal);
}

async function timed(program: Program, options: Options, plan: Plan): Promise<Comparison> {
  const { signal } = program.host;
  await using status = await clusterUp(program, options, []);
  const subjects = subjectsOf(status);
  await using api = await connect(status);
  const samples: Sample[] = [];
  const idle: Idle[] = [];
  await freshNamespace(api, NAMESPACE, signal);
  await using watcher = new Watcher(api);
  // Images are pulled and everything lazy is loaded before anything counts.
  await program.progress.step('warm-up', async () => {
    for (const subject of subjects)
      for (const flavour of plan.flavours) await measureRound(api, watcher, subject, { flavour, count: 1, idleMs: 0, timeoutMs: plan.timeoutMs }, signal);
  });
  if (plan.idleMs > 0) {
    await program.progress.step(`both nodes without pods for ${plan.idleMs / 1000} s`, async () => {
      const measured = await Promise.all(subjects.map((subject) => measureIdle(api, subject, null, 0, plan.idleMs, signal)));
      idle.push(...measured.map((each) => each.idle));
    });
  }
  let turn = 0;
  for (const [at, count] of plan.sizes.entries()) {
    for (const flavour of plan.flavours) {
      for (let round = 1; round <= (plan.rounds[at] ?? 1); round += 1) {
        const order = turn % 2 === 0 ? subjects : subjects.toReversed();
        turn += 1;
        await program.progress.step(`${count} ${flavour}, round ${round} of ${plan.rounds[at]}: ${order.map(({ side }) => side).join(', ')}`, async () => {
          for (const subject of order) {
            // A full node is worth watching only where it is full.
            const idleMs = count >= 100 ? plan.idleMs : 0;
            const measured = await measureRound(api, watcher, subject, { flavour, count, idleMs, timeoutMs: plan.timeoutMs }, signal);
            samples.push(measured.sample);
            if (measured.idle !== null) idle.push(measured.idle);
            await delay(1_000, undefined, { signal });
          }
        });
      }
    }
  }
  await removeNamespace(api, NAMESPACE, signal);
  return { date: new Date().toISOString(), versions: await versionsOf(api), cpus: cpus().length, samples, idle, writes: [] };
}

/** A second, short life with the audit log on, which costs the API server time and so is off while times are taken. */
async function audited(program: Program, options: Options, plan: Plan): Promise<Writes[]> {
  const { signal } = program.host;
  const pods = 10;
  await using status = await clusterUp(program, options, ['--audit']);
  const log = `${status.kubeconfig.slice(0, status.kubeconfig.lastIndexOf('/'))}/hub/log/audit.log`;
  await using api = await connect(status);
  await freshNamespace(api, NAMESPACE, signal);
  await using watcher = new Watcher(api);
  const writes: Writes[] = [];
  await program.progress.step(`API writes of ${pods} pods on each side`, async () => {
    for (const flavour of plan.flavours) {
      for (const subject of subjectsOf(status)) {
        const offset = (await stat(log)).size;
        await measureRound(api, watcher, subject, { flavour, count: pods, idleMs: 0, timeoutMs: plan.timeoutMs }, signal);
        await delay(2_000, undefined, { signal });
        const counts = await countWrites(log, offset, subject.node, NAMESPACE);
        writes.push({ side: subject.side, flavour, pods, perPod: Object.fromEntries(Object.entries(counts).map(([kind, count]) => [kind, count / pods])) });
      }
    }
  });
  await removeNamespace(api, NAMESPACE, signal);
  return writes;
}

await runProgram('compare', 'The same work on an upstream node and on ours, in one run', (program) => {
  program
    .add<Options>(
      'run',
      'pod start and stop, memory, CPU, loop delay, CRI calls and API writes, with ratios',
      ['sudo ./nodelet compare', 'sudo ./nodelet compare --sizes 1,30 --rounds 5,2 --page compare.html', 'sudo ./nodelet compare --json > compare.json'],
      async (options) => {
        const plan = planOf(options);
        if (process.geteuid?.() !== 0) throw new OpError('denied', 'starting', 'this needs root', { advice: 'run it with sudo' });
        for (const [flag, file] of [
          ['--page', options.page],
          ['--out', options.out],
        ] as const)
          await requireWritable(flag, file);
        await using _claimed = await claimCluster(program.host.env, options.name);
        await makeImages(program.host.signal);
        const times = await timed(program, options, plan);
        const comparison: Comparison = { ...times, writes: options.writes ? await audited(program, options, plan) : [] };
        if (options.page !== undefined) await writeFile(options.page, pageOf(comparison));
        if (options.out !== undefined) await writeFile(options.out, `${JSON.stringify(comparison, null, 2)}\n`);
        program.answer(options.json, { ...comparison, rows: rowsOf(comparison) }, textOf(comparison));
        return 0;
      },
      { isDefault: true },
    )
    .option('--name <name>', 'name of the cluster that is made and removed', 'compare')
    .option('--sizes <list>', 'how many pods at once', '1,30,110')
    .option('--rounds <list>', 'rounds of each size; the last counts for the rest', '9,3,1')
    .option('--flavours <list>', 'plain: pause alone; probed: a token volume and two HTTP probes', 'plain,probed')
    .option('--idle <seconds>', 'how long idle nodes are watched; 0: not at all', '30')
    .option('--timeout <seconds>', 'how long a round may take to be ready, and to be gone', '600')
    .option('--containerd <which>', 'distro, 2.3 or 2.4', '2.4')
    .option('--no-writes', 'leave out the second cluster, whose audit log counts API writes')
    .option('--page <file>', 'write a page with plots')
    .option('--out <file>', 'write everything that was measured as JSON');
});
