import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { rmdir } from 'node:fs/promises';
import { execa } from 'execa';
export { eventually } from './eventually.ts';
import { lockFile } from '../node/io/lock.ts';
import { inspectMachine, kubectlIsRecent } from '../node/io/machine.ts';

/** How long a test waits for another run, in another checkout, that has a set of the same name. */
const OTHER_RUN_MS = 15 * 60_000;

/** Why a set cannot be started here, or null. */
export async function setProblem(): Promise<string | null> {
  const machine = await inspectMachine({ path: process.env['PATH'] ?? '' });
  if (!machine.isRoot) return 'needs root';
  if (machine.cgroup === null) return 'needs cgroups with memory and cpu';
  if (machine.programs.containerd === undefined && machine.programs['apt-get'] === undefined) return 'needs containerd or apt-get';
  return null;
}

/** Why stock kubectl cannot be used here, or null. */
export async function kubectlProblem(): Promise<string | null> {
  const machine = await inspectMachine({ path: process.env['PATH'] ?? '' });
  return kubectlIsRecent(machine.kubectlVersion) ? null : `needs kubectl 1.30 or later on PATH (${machine.kubectlVersion ?? 'none found'})`;
}

export interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A set as a user has it: through the commands alone. */
export interface TestSet extends AsyncDisposable {
  readonly name: string;
  nodelet(args: readonly string[], options?: { input?: string; timeoutMs?: number; env?: Record<string, string> }): Promise<Answer>;
  /** Stock kubectl with the set's kubeconfig. */
  kubectl(args: readonly string[], options?: { input?: string; timeoutMs?: number }): Promise<Answer>;
  /** kubectl that must succeed; its trimmed output. */
  k(args: readonly string[], input?: string): Promise<string>;
  status(): Promise<SetStatus>;
}

export interface SetStatus {
  name: string;
  running: boolean;
  kubeconfig: string;
  server: string;
  nodes: { name: string; running: boolean; pid: number | null; ip: string; podCIDR: string; cgroup: string; directory: string }[];
  processes: { place: string; name: string; pid: number | null; restarts: number; memoryBytes: number | null }[];
}

/** The command with `--name` where it belongs: behind the command, or behind that of `image` and `cluster`. */
function named(words: readonly string[], name: string): string[] {
  const at = words[0] === 'image' || words[0] === 'cluster' ? 2 : 1;
  return [...words.slice(0, at), '--name', name, ...words.slice(at)];
}

const root = new URL('..', import.meta.url).pathname;

async function command(argv: readonly string[], options: { input?: string; timeoutMs?: number; env?: Record<string, string> } = {}): Promise<Answer> {
  const result = await execa(argv[0] ?? '', argv.slice(1), {
    reject: false,
    timeout: options.timeoutMs ?? 60_000,
    ...(options.input === undefined ? { stdin: 'ignore' as const } : { input: options.input }),
    env: options.env ?? {},
    stripFinalNewline: false,
  });
  return { code: result.exitCode ?? -1, out: result.stdout, err: result.stderr };
}

/** Brings up a set of its own, by another command than `up` where one is given, and takes it down when disposed. */
export async function testSet(name: string, args: readonly string[] = [], start: readonly string[] = ['up']): Promise<TestSet> {
  const nodelet: TestSet['nodelet'] = (words, options) => command([`${root}nodelet`, ...named(words, name)], { timeoutMs: 180_000, ...options });
  const lock = await lockFile(`/run/nodelet-tests/${name}`, `testing with the set ${name}`, OTHER_RUN_MS);
  const unlock = async (): Promise<void> => {
    await lock[Symbol.asyncDispose]();
    await rmdir('/run/nodelet-tests').catch(() => undefined);
  };
  await nodelet(['down']);
  // A machine whose kernel has no nf_tables for IP still has the older tables.
  const proxy = start[0] === 'up' ? process.env['NODELET_TEST_PROXY'] : undefined;
  const up = await nodelet([...start, ...args, ...(proxy === undefined ? [] : ['--proxy', proxy])], { timeoutMs: 300_000 });
  if (up.code !== 0) {
    await nodelet(['down']);
    await unlock();
    throw new Error(`nodelet up --name ${name} ended with ${up.code}:\n${up.err}`);
  }
  const state = `${process.env['NODELET_STATE'] ?? '/var/lib/nodelet'}/${name}`;
  const kubectl: TestSet['kubectl'] = (words, options) => command(['kubectl', `--kubeconfig=${state}/admin.kubeconfig`, ...words], options);
  return {
    name,
    nodelet,
    kubectl,
    async k(words, input) {
      const answer = await kubectl(words, input === undefined ? {} : { input });
      if (answer.code !== 0) throw new Error(`kubectl ${words.join(' ')} ended with ${answer.code}: ${answer.err}`);
      return answer.out.trim();
    },
    async status() {
      const answer = await nodelet(['status', '--json']);
      return JSON.parse(answer.out) as SetStatus;
    },
    async [Symbol.asyncDispose]() {
      const down = await nodelet(['down']);
      await unlock();
      if (down.code !== 0) throw new Error(`nodelet down --name ${name} ended with ${down.code}: ${down.err}`);
    },
  };
}

/**
 * Namespaces other than ours that living processes of a set hold. What was killed and waits to be reaped by the
 * machine's first process holds nothing any more.
 */
function heldNamespaces(): string[] {
  const held = new Set<string>();
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const name = stat.slice(stat.indexOf('(') + 1, stat.lastIndexOf(')'));
      const state = stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3);
      if (state === 'Z' || state === 'X' || !/containerd|pause|sys|nodelet|kubelet/.test(name)) continue;
      for (const kind of ['net', 'mnt', 'pid', 'uts', 'ipc']) {
        if (readlinkSync(`/proc/${pid}/ns/${kind}`) !== readlinkSync(`/proc/self/ns/${kind}`)) held.add(`${kind} of ${name}`);
      }
    } catch {
      // It ended while it was looked at.
    }
  }
  return [...held].sort();
}

/** What of the machine a set could leave behind. */
export function machineState(): Record<string, string[]> {
  const lines = (program: string, args: readonly string[]): string[] => {
    try {
      return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
        .split('\n')
        .filter((line) => line !== '')
        .sort();
    } catch {
      return [];
    }
  };
  return {
    processes: lines('sh', [
      '-c',
      "ps -eo args --no-headers | grep -E 'containerd|nodelet|pause|sys (init|serve)|kube' | grep -vE 'grep|<defunct>|node --test|scripts/test|\\.test\\.ts'",
    ]),
    mounts: lines('sh', ['-c', "cut -d' ' -f2- /proc/self/mountinfo | sed -E 's/^[0-9]+ //' | awk '{print $3, $4}'"]),
    namespaces: heldNamespaces(),
    links: lines('ip', ['-o', 'link', 'show']).map((line) => line.split(':')[1]?.trim() ?? ''),
    routes: lines('ip', ['route', 'show', 'table', 'all']),
    rules: lines('nft', ['list', 'ruleset']),
    iptables: lines('iptables-save', []).filter((line) => !line.startsWith('#') && !/^:/.test(line)),
    cgroups: lines('sh', ['-c', 'find /sys/fs/cgroup -type d -name "*nodelet*" -o -type d -name "kubepods*"']),
    files: lines('sh', [
      '-c',
      'ls -d /var/lib/nodelet/* /var/lib/kubelet /var/lib/containerd /var/log/pods /run/containerd /etc/cni /run/netns/* /var/lib/cni /opt/cni 2>/dev/null',
    ]),
    sysctls: lines('sysctl', ['-n', 'net.ipv4.ip_forward', 'net.ipv4.conf.all.forwarding', 'net.ipv4.conf.all.rp_filter']),
  };
}
