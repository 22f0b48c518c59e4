import { spawn } from 'node:child_process';
import { access } from 'node:fs/promises';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Context } from './context.ts';
import { installPackages } from '../io/packages.ts';
import { prepareMachine } from './prepare.ts';

/** Runs a program of the checkout, named by its path there; an unpacked release has none. Files on its command line are the caller's, seen from `cwd`. */
async function program(context: Context, name: string, args: readonly string[], cwd = process.cwd()): Promise<number> {
  const path = `${context.root}/${name}`;
  await access(path).catch((cause: unknown) => {
    throw new OpError('not-found', `looking for ${path}`, 'there are no sources here', { cause, advice: 'run this in a clone of the repository' });
  });
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', path, ...args], {
      stdio: 'inherit',
      cwd,
      env: { ...context.host.env, PATH: `${process.execPath.slice(0, process.execPath.lastIndexOf('/'))}:${context.path}` },
    });
    // It takes back what it began, and nobody else tells it when only this process is told to end.
    const end = (): void => void child.kill('SIGTERM');
    context.host.signal.addEventListener('abort', end, { once: true });
    child.on('error', reject);
    child.on('close', (code, signal) => {
      context.host.signal.removeEventListener('abort', end);
      resolve(code ?? (signal === 'SIGKILL' ? 137 : 143));
    });
  });
}

/** `nodelet test [SUITE…]`: brings what the tests need where it may, then runs them; without root those that need it skip. */
export async function test(context: Context, suites: readonly string[]): Promise<number> {
  if (process.geteuid?.() !== 0) context.progress.note('  not root: tests that need root are skipped');
  // The page of nodelet cri web is tested in it, and it is too large to be brought for anything else.
  await bringForTests(context, { chromium: suites.length === 0 || suites.includes('cri'), lacking: 'tests that need it are skipped' });
  return program(context, 'scripts/test.ts', suites, context.root);
}

/** As root brings the packages that real clusters are made with; where that fails it says so and goes on, for much works without. */
async function bringForTests(context: Context, options: { chromium: boolean; lacking: string }): Promise<void> {
  if (process.geteuid?.() !== 0) return;
  try {
    const machine = await prepareMachine(context, { containerd: undefined, forTests: true });
    if (options.chromium && machine.programs.chromium === undefined)
      await context.progress.step('packages installed: chromium', () => installPackages(['chromium']));
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
    context.progress.note(`  ${messageOf(error)}: ${options.lacking}`);
  }
}

const bringForNodes = (context: Context): Promise<void> => bringForTests(context, { chromium: false, lacking: 'what needs it will fail' });

/** What `bench` measures, each a program of `scripts/`. */
const BENCHES = ['loop', 'cni'] as const;

export async function bench(
  context: Context,
  what: string | undefined,
  more: readonly string[],
  options: { pods: string; seconds: string; count: string },
): Promise<number> {
  if (what === 'netfilter') {
    await bringForNodes(context);
    return program(context, 'test/netfilter/bench.ts', [...more, ...(context.options.json ? ['--json'] : [])], context.root);
  }
  const which = BENCHES.find((name) => name === (what ?? 'loop'));
  if (which === undefined)
    throw new OpError('invalid', 'choosing a benchmark', `there is no benchmark "${what}"`, {
      advice: `use: nodelet bench ${[...BENCHES, 'netfilter'].join(', nodelet bench ')}`,
    });
  await bringForNodes(context);
  const { name, json } = context.options;
  const args = which === 'loop' ? ['--name', name, '--pods', options.pods, '--seconds', options.seconds] : ['--count', options.count];
  return program(context, `scripts/bench-${which}.ts`, [...args, ...(json ? ['--json'] : [])], context.root);
}

/** Commands that are programs of `test/`, with command lines and `--help` of their own. */
export const PROVING: Readonly<Record<string, string>> = {
  assets: 'find or build the real components: etcd, kube-apiserver, kubelet, e2e.test, containerd, …',
  cluster: 'a real Kubernetes control plane with nodes of ours or of upstream’s',
  conformance: 'run Kubernetes’ own suites against a cluster, and keep the scoreboard',
  contract: 'record what upstream’s kubelet does for six pods, and compare ours with it',
  churn: 'pods made, ended and hurt at random, agent and runtime killed; an auditor, and what is left',
  compare: 'the same work on an upstream node and on ours, in one run',
  kind: 'swap the kubelet of a kind node for ours and put it back; a kind cluster with workers of ours',
  machine: 'boot a virtual machine with cgroup v2 and run suites in it',
};

/** Programs of `scripts/` that make releases and work on nodes from outside; as those of `test/`. */
export const OUTSIDE: Readonly<Record<string, string>> = {
  dev: 'bring each saved change of the sources into a kind node, with its pods kept',
  release: 'make one file that runs where nothing is installed',
};

/** Whether a command line of one of {@link PROVING} makes nodes, and so wants the packages that they are made with. */
export function makesNodes(name: string, args: readonly string[]): boolean {
  if (args.includes('--help') || args.includes('-h') || args[0] === 'help') return false;
  if (name === 'cluster') return args[0] === 'up' || args[0] === 'images';
  if (name === 'conformance') return args[0] === 'run';
  return name === 'churn' || name === 'compare' || name === 'contract';
}

export async function proving(context: Context, name: string, args: readonly string[]): Promise<number> {
  if (makesNodes(name, args)) await bringForNodes(context);
  return program(context, `${Object.hasOwn(OUTSIDE, name) ? 'scripts' : 'test'}/${name}/main.ts`, args);
}
