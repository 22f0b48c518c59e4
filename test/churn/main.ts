/** `nodelet churn`: pods made, ended and hurt at random, with an auditor that watches and a look at what is left. */
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { Option } from 'commander';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { createKubeApi } from '../../base/kubeapi/client.ts';
import { readKubeConfig } from '../../base/kubeapi/config.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import { runProgram, type Program } from '../../scripts/command.ts';
import { holdCluster } from '../cluster/own.ts';
import { churn, type Report } from './run.ts';
import { IMAGE } from './workload.ts';

const run = promisify(execFile);
const nodelet = new URL('../../nodelet', import.meta.url).pathname;
const OWN = 'churn';

interface Options {
  readonly name?: string;
  readonly minutes: string;
  readonly seed?: string;
  readonly pods: string;
  readonly slow: string;
  readonly kills: boolean;
  readonly containerd?: string;
  readonly agent?: string;
  readonly out?: string;
  readonly json: boolean;
}

interface SetStatus {
  readonly kubeconfig: string;
  readonly nodes: readonly { readonly name: string; readonly pid: number | null; readonly cgroup: string }[];
  readonly processes: readonly { readonly place: string; readonly name: string; readonly pid: number | null }[];
}

function numberOf(flag: string, text: string, most: number): number {
  const value = Number(text);
  if (!(value > 0) || value > most) throw new OpError('invalid', `reading ${flag}`, `"${text}" is not a number above 0 and up to ${most}`);
  return value;
}

async function command(args: readonly string[], signal?: AbortSignal): Promise<string> {
  try {
    return (await run(nodelet, [...args], { maxBuffer: 2 ** 26, ...(signal === undefined ? {} : { signal }) })).stdout;
  } catch (error) {
    const words = (error as { stderr?: string }).stderr?.trim().split('\n').slice(-6).join('\n  ') ?? String(error);
    throw new OpError('failed', `running nodelet ${args.slice(0, 2).join(' ')}`, words, { cause: error });
  }
}

/** The set that was named, or one of its own: of ours whole, or with `agent` a cluster of a real control plane. */
async function useSet({ host, progress }: Program, { name, containerd, agent }: Options): Promise<AsyncDisposable & { readonly name: string }> {
  await using scope = new AsyncDisposableStack();
  scope.use(await holdCluster(name ?? OWN));
  if (name === undefined) {
    scope.defer(async () => void (await progress.step('set down', () => command(['down', '--name', OWN]))));
    const up = agent === undefined ? ['up'] : ['cluster', 'up', '--agent', agent, '--images', 'basic'];
    await progress.step('a set of one node', () =>
      command([...up, '--name', OWN, ...(containerd === undefined ? [] : ['--containerd', containerd])], host.signal),
    );
  }
  const kept = scope.move();
  return { name: name ?? OWN, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

async function act(program: Program, options: Options): Promise<number> {
  const { signal } = program.host;
  const seed = options.seed === undefined ? realRng.int(1 << 30) : Number(options.seed);
  if (!Number.isSafeInteger(seed)) throw new OpError('invalid', 'reading --seed', `"${options.seed ?? ''}" is not a whole number`);
  const plan = {
    seed,
    minutes: numberOf('--minutes', options.minutes, 24 * 60),
    pods: Math.ceil(numberOf('--pods', options.pods, 100)),
    kills: options.kills,
    slow: numberOf('--slow', options.slow, 100),
  };
  await using set = await useSet(program, options);
  await command(['image', 'make', IMAGE, '--from', 'busybox'], signal);
  const status = async (): Promise<SetStatus> => JSON.parse(await command(['status', '--json', '--name', set.name], signal)) as SetStatus;
  const found = await status();
  const node = found.nodes[0];
  if (node === undefined || node.pid === null) throw new OpError('unavailable', `looking at the set "${set.name}"`, 'no node of it runs');
  const config = await readKubeConfig(found.kubeconfig);
  await using api = createKubeApi({ config, log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-churn' });
  program.progress.note(`  seed ${seed}: the same pods and deeds again with --seed ${seed}`);
  const report = await churn({
    ...plan,
    api,
    signal,
    node: { name: node.name, initPid: node.pid, cgroup: node.cgroup },
    step: (words, work) => program.progress.step(words, work),
    // A terminal shows which step runs.
    tell: (line) => void (program.host.isTerminal || program.progress.note(`  ${line}`)),
    async pidOf(names) {
      const row = (await status()).processes.find((process) => process.place === node.name && names.includes(process.name));
      return row?.pid ?? null;
    },
    metrics: () => command(['kubectl', '--name', set.name, 'get', '--raw', `/api/v1/nodes/${node.name}/proxy/metrics`], signal),
  });
  if (options.out !== undefined) await writeFile(options.out, `${JSON.stringify(report, null, 2)}\n`);
  program.answer(options.json, report, textOf(report));
  return report.violations.length + Object.keys(report.left).length + report.grown.length + report.stuck.length === 0 ? 0 : 1;
}

function textOf(report: Report): string[] {
  const { deeds, seen, violations, left, leftByRuntime, grown, stuck } = report;
  const list = (title: string, lines: readonly string[]): string[] =>
    lines.length === 0 ? [`${title}: none`] : [`${title}:`, ...lines.map((line) => `  ${line}`)];
  return [
    `seed ${report.seed}, ${report.seconds} s: ${Object.entries(deeds)
      .map(([deed, count]) => `${deed} ${count}`)
      .join(', ')}`,
    `seen: ${seen.events} changes of pods, ${seen.listings} listings with ${seen.containers} containers`,
    ...list(
      'violations',
      violations.map(({ pod, rule, what, atMs }) => `${new Date(atMs).toISOString()} ${pod}: ${rule}: ${what}`),
    ),
    ...list('pods that did not go', stuck),
    ...list(
      'left behind',
      Object.entries(left).flatMap(([kind, names]) => [`${kind} (${names.length}):`, ...names.slice(0, 10).map((name) => `  ${name}`)]),
    ),
    ...list(`left by the runtime itself (${leftByRuntime.length})`, leftByRuntime),
    ...list('grown', grown),
    ...Object.entries(report.figures).map(
      ([what, figures]) =>
        `${what}: ${Object.entries(figures)
          .map(([name, value]) => `${name} ${value}`)
          .join(', ')}`,
    ),
  ];
}

await runProgram('churn', 'pods made, ended and hurt at random, agent and runtime killed, and a look at what is left', (program) => {
  program
    .add<Options>(
      'run',
      'churn for a while, then say what was seen that may not be, and what was left (exit status 1 when there is any)',
      ['nodelet churn --minutes 20', 'nodelet churn --minutes 2 --seed 7 --pods 8', 'nodelet churn --name my-set --no-kills', 'nodelet churn --agent upstream'],
      (options) => act(program, options),
      { isDefault: true },
    )
    .option('--name <set>', 'a set or cluster that runs; its first node is used (a set of its own otherwise)')
    .option('--minutes <n>', 'how long pods come and go', '5')
    .option('--seed <n>', 'draws the same pods and deeds again')
    .option('--pods <n>', 'about so many at once', '15')
    .option('--containerd <path>', 'the runtime of a set of its own, as for nodelet up (with --agent: as for nodelet cluster up)')
    .addOption(new Option('--agent <whose>', 'a cluster of its own with a real control plane and this kubelet, ours or a rival').choices(['ours', 'upstream']))
    .option('--slow <times>', 'how much slower the runtime may be than on a machine of its own', '1')
    .option('--no-kills', 'leave agent and runtime alive')
    .option('--out <file>', 'write the report as JSON');
});
