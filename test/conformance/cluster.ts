import { access, readFile } from 'node:fs/promises';
import { release } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { exec, tryExec } from '../../base/exec.ts';
import { stateHome, type SavedSet } from '../../node/io/state.ts';
import { isSide } from './store.ts';
import type { Side } from './scoreboard.ts';

/** A set that specs run against. */
export interface Cluster {
  readonly name: string;
  readonly state: string;
  readonly kubeconfig: string;
  readonly side: Side;
  readonly nodes: readonly string[];
  /** What it is made of, by component. */
  readonly versions: Readonly<Record<string, string>>;
  kubectl(args: readonly string[], options?: { timeoutMs?: number }): Promise<string>;
  /** The same, empty when it fails. */
  tryKubectl(args: readonly string[], options?: { timeoutMs?: number }): Promise<string>;
  /** Whether the API server answers. */
  isReady(): Promise<boolean>;
}

interface NodeList {
  readonly items: readonly { readonly metadata: { readonly name: string }; readonly status: { readonly nodeInfo: Readonly<Record<string, string>> } }[];
}

export interface Opened {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly name: string;
  /** Which agent was asked for; null: whichever the set has. */
  readonly side: Side | null;
  readonly kubectl: string;
  readonly signal: AbortSignal;
}

const KUBECTL_MS = 30_000;
/** A busy machine's API server may be slow for a while. */
const READY_TRIES = 6;
const READY_PAUSE_MS = 10_000;

/** Looks at a set that runs, and asks it what it is made of. */
export async function openCluster({ env, name, side: asked, kubectl: program, signal }: Opened): Promise<Cluster> {
  const state = `${stateHome(env)}/${name}`;
  const kubeconfig = `${state}/admin.kubeconfig`;
  const text = await readFile(`${state}/set.json`, 'utf8').catch(() => null);
  if (text === null)
    throw new OpError('not-found', `looking for the cluster "${name}"`, 'there is none', { advice: `start it with: nodelet cluster up --name ${name}` });
  const { options, programs } = JSON.parse(text) as SavedSet;
  const agents = new Set(options.agents ?? ['ours']);
  const own = [...agents][0] ?? 'ours';
  const side = asked ?? own;
  if (agents.size > 1 || own !== side || !isSide(side)) {
    throw new OpError('invalid', `choosing the cluster "${name}"`, `its nodes run ${[...agents].join(' and ')}, and ${asked ?? 'one agent'} is to be judged`, {
      advice: 'name a cluster whose nodes all run that agent',
    });
  }
  const argv = (args: readonly string[]): [string, ...string[]] => [program, `--kubeconfig=${kubeconfig}`, ...args];
  const kubectl: Cluster['kubectl'] = async (args, { timeoutMs = KUBECTL_MS } = {}) =>
    (await exec(argv(args), { doing: `asking the cluster "${name}"`, timeoutMs, signal })).stdout;
  const tryKubectl: Cluster['tryKubectl'] = async (args, { timeoutMs = KUBECTL_MS } = {}) =>
    tryExec(argv(args), { timeoutMs })
      .then(({ code, stdout, stderr }) => (code === 0 ? stdout : stderr))
      .catch(() => '');
  const isReady = async (): Promise<boolean> => {
    for (let tries = 0; tries < READY_TRIES; tries += 1) {
      if (tries > 0) await delay(READY_PAUSE_MS);
      if ((await tryKubectl(['get', '--raw=/readyz', '--request-timeout=20s'])).trim() === 'ok') return true;
    }
    return false;
  };
  const { items } = JSON.parse(await kubectl(['get', 'nodes', '-o', 'json'])) as NodeList;
  const server = JSON.parse(await kubectl(['version', '-o', 'json'])) as { serverVersion?: { gitVersion?: string } };
  const info = items[0]?.status.nodeInfo ?? {};
  const runc = await tryExec([programs?.runc ?? 'runc', '--version'], { timeoutMs: KUBECTL_MS }).catch(() => null);
  const unified = await access('/sys/fs/cgroup/cgroup.controllers').then(
    () => true,
    () => false,
  );
  const versions = {
    kubernetes: server.serverVersion?.gitVersion ?? '',
    agent: side === 'ours' ? `ours ${info['kubeletVersion'] ?? ''}` : `upstream ${info['kubeletVersion'] ?? ''}`,
    proxy: [...new Set(options.proxies ?? [side === 'ours' ? 'nftables' : 'upstream-nftables'])].join(' '),
    containerd: (info['containerRuntimeVersion'] ?? '').replace('containerd://', ''),
    runc: /^runc version (\S+)/m.exec(runc?.stdout ?? '')?.[1] ?? '',
    kernel: info['kernelVersion'] ?? release(),
    cgroup: unified ? 'v2' : 'v1',
  };
  return { name, state, kubeconfig, side, nodes: items.map((node) => node.metadata.name), versions, kubectl, tryKubectl, isReady };
}

/** The commit that is checked out; marked where files differ from it. */
export async function commitOf(root: string): Promise<string> {
  const git = (args: readonly string[]): Promise<string> =>
    tryExec(['git', '-c', 'safe.directory=*', ...args], { cwd: root, timeoutMs: KUBECTL_MS })
      .then(({ stdout }) => stdout.trim())
      .catch(() => '');
  const commit = await git(['rev-parse', '--short=10', 'HEAD']);
  const changed = await git([
    'status',
    '--porcelain',
    '--untracked-files=no',
    '--',
    '.',
    ':!test/conformance/results',
    ':!test/conformance/scoreboard.json',
    ':!docs/conformance.md',
  ]);
  return `${commit || 'unknown'}${changed === '' ? '' : '+'}`;
}
