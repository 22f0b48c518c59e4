import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Option } from 'commander';
import { execa } from 'execa';
import { OpError } from '../../../base/errors.ts';
import { createContext, requireRoot } from '../../../node/commands/context.ts';
import { findAssets } from '../../assets/find.ts';
import type { Program } from '../../../scripts/command.ts';
import { claimCluster } from '../own.ts';
import { controlPlane } from './control-plane.ts';
import { Lab } from './lab.ts';
import { lossSteps } from './loss.ts';
import { IMAGES } from './manifests.ts';
import type { Result, Step, Walk } from './step.ts';
import { twoNodes } from './two-nodes.ts';

interface Options {
  readonly name: string;
  readonly agent: 'ours' | 'upstream';
  readonly part: readonly string[];
  readonly record?: true;
  readonly keep?: true;
  readonly step?: string;
  readonly assets?: string;
  readonly timeout: string;
  readonly json: boolean;
}

export const PARTS = ['2', '4a'] as const;
const expected = (agent: string): string => new URL(`expected/${agent}.json`, import.meta.url).pathname;

/** Steps in their order: the first pods of a fresh cluster come first, and the loss of all nodes last. */
export function stepsOf(parts: readonly string[]): Step[] {
  const two = parts.includes('2');
  return [...(two ? twoNodes : []), ...(parts.includes('4a') ? controlPlane : []), ...(two ? lossSteps() : [])];
}

/** `nodelet cluster walkthrough`. */
async function walkthrough(program: Program, options: Options): Promise<number> {
  requireRoot();
  const context = createContext(program.host, { name: options.name, json: options.json });
  const wanted = options.step?.split(',');
  const steps = stepsOf(options.part.length === 0 ? PARTS : options.part).filter(({ id }) => wanted === undefined || wanted.includes(id));
  if (steps.length === 0) throw new OpError('invalid', 'reading --step', `no step of these parts is called ${options.step}`);
  const assets = await findAssets({ env: program.host.env, dir: options.assets });
  await using _claimed = await claimCluster(program.host.env, options.name);
  const nodelet = async (args: readonly string[]): Promise<void> => {
    const { exitCode, stderr } = await execa(`${context.root}/nodelet`, args, {
      reject: false,
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: ['pipe', 'inherit'],
      cancelSignal: program.host.signal,
    });
    if (program.host.signal.aborted) throw new OpError('aborted', 'walking through', 'stopped by a signal');
    if (exitCode !== 0) throw new OpError('failed', `nodelet ${args.slice(0, 2).join(' ')}`, stderr.trim().split('\n').at(-1) ?? '');
  };
  const named = ['--name', options.name];
  for (const [image, recipe, ...more] of IMAGES) await nodelet(['image', 'make', ...named, image, '--from', recipe, ...more]);
  const other = options.agent === 'ours' ? 'upstream' : 'ours';
  try {
    await nodelet([
      ...['cluster', 'up', ...named, '--nodes', '3', '--agent', `${options.agent},${options.agent},${other}`],
      ...['--audit', '--images', 'basic', '--timeout', options.timeout, ...(options.assets === undefined ? [] : ['--assets', options.assets])],
    ]);
    const lab = await Lab.open(context, assets);
    const walk = await walkSteps(program, lab, steps);
    if (options.record === true) await record(walk);
    const failed = Object.values(walk.steps).filter(({ passed }) => !passed).length;
    program.answer(options.json, walk, linesOf(walk));
    return failed === 0 ? 0 : 1;
  } finally {
    if (options.keep !== true) await execa(`${context.root}/nodelet`, ['cluster', 'down', ...named], { reject: false, stdin: 'ignore', stdout: 'ignore' });
  }
}

async function walkSteps(program: Program, lab: Lab, steps: readonly Step[]): Promise<Walk> {
  const results: Record<string, Result> = {};
  for (const step of steps) {
    const { id, what } = step;
    try {
      const values = await program.progress.step(`${id} ${what}`, () => step.run(lab));
      results[id] = { what, passed: true, ...values };
    } catch (error) {
      if (program.host.signal.aborted) throw error;
      const problem = error instanceof Error ? error.message : String(error);
      program.progress.note(`     ${problem}`);
      results[id] = { what, passed: false, problem, exact: {} };
    }
  }
  const kubernetes = (await lab.get<{ serverVersion: { gitVersion: string } }>([]).catch(() => null))?.serverVersion.gitVersion;
  return {
    agent: lab.agent,
    kubernetes: kubernetes ?? (JSON.parse(await lab.k(['get', '--raw', '/version'])) as { gitVersion: string }).gitVersion,
    steps: results,
  };
}

/** Keeps what was seen; steps that were not walked keep what they had. */
async function record(walk: Walk): Promise<void> {
  const before = await readFile(expected(walk.agent), 'utf8').then(
    (text) => JSON.parse(text) as Walk,
    () => null,
  );
  const steps = { ...before?.steps, ...walk.steps };
  const order = stepsOf(PARTS).map(({ id }) => id);
  const sorted = Object.fromEntries(Object.entries(steps).sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)));
  await mkdir(dirname(expected(walk.agent)), { recursive: true });
  await writeFile(expected(walk.agent), `${JSON.stringify({ ...walk, steps: sorted }, null, 2)}\n`);
}

function linesOf(walk: Walk): string[] {
  return [
    `Kubernetes ${walk.kubernetes}, kubelets: ${walk.agent}`,
    ...Object.entries(walk.steps).map(
      ([id, { what, passed, problem, exact, seen }]) =>
        `${passed ? 'ok    ' : 'FAILED'} ${id.padEnd(4)} ${what}: ${passed ? JSON.stringify({ ...exact, ...seen }).slice(1, -1) : problem?.split('\n')[0]}`,
    ),
  ];
}

/** Adds `walkthrough` to the commands of `nodelet cluster`. */
export function walkthroughCommand(program: Program): void {
  program
    .add<Options>(
      'walkthrough',
      'two nodes, the loss of one, and a real control plane: what must come out, step by step',
      [
        'sudo ./nodelet cluster walkthrough --agent upstream',
        'sudo ./nodelet cluster walkthrough --agent ours --part 4a --json',
        'sudo ./nodelet cluster walkthrough --part 2 --step 2.1,2.5 --keep',
      ],
      (options) => walkthrough(program, options),
    )
    .option('--name <name>', 'which cluster; it is started, and ended afterwards', 'walkthrough')
    .addOption(new Option('--agent <kind>', 'whose kubelet and proxy the workers have').choices(['ours', 'upstream']).default('ours'))
    .addOption(new Option('--part <part...>', 'which part of the walk; both when left out').choices(PARTS).default([]))
    .option('--step <list>', 'these steps alone, with commas')
    .option('--record', 'keep what was seen as the expectation')
    .option('--keep', 'leave the cluster when done')
    .option('--assets <dir>', 'folder of components that goes before all others')
    .option('--timeout <seconds>', 'how long the cluster may take to start', '300');
}
