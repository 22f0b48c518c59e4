import { uptime } from 'node:os';
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { hasCode } from '../../base/errors.ts';
import { connectRuntime, createCriClient, type CriClient } from '../../cri/mod.ts';
import { addressesBelow } from './addresses.ts';
import type { Listing } from './auditor.ts';
import type { Figures, Footprint } from './footprint.ts';
import type { LeftShim } from './shims.ts';
import { NAMESPACE } from './workload.ts';

export interface NodeOptions {
  readonly name: string;
  /** The node's process 1, on this machine. */
  readonly initPid: number;
  /** The node's cgroup, from its root: `/nodelet/set/node`. */
  readonly cgroup: string;
}

/** The insides of a node, seen from the machine: its runtime, and what it holds for pods. */
export class ChurnNode implements AsyncDisposable {
  readonly name: string;
  readonly cri: CriClient;
  readonly #options: NodeOptions;
  /** Of containers that have ended: whether they had begun. */
  readonly #ran = new Map<string, boolean>();

  constructor(options: NodeOptions) {
    this.name = options.name;
    this.#options = options;
    this.cri = createCriClient(connectRuntime(this.path('/run/containerd/containerd.sock')));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cri[Symbol.asyncDispose]();
  }

  path(inNode: string): string {
    return `/proc/${this.#options.initPid}/root${inNode}`;
  }

  /** What the runtime has of our namespace; null while it does not answer. */
  async listing(): Promise<Listing | null> {
    const fromMs = Date.now();
    try {
      const call = { timeoutMs: 10_000 };
      const [containers, sandboxes] = await Promise.all([this.cri.runtime.listContainers({}, call), this.cri.runtime.listPodSandbox({}, call)]);
      const toMs = Date.now();
      const own = containers.containers.filter(({ labels }) => labels['io.kubernetes.pod.namespace'] === NAMESPACE);
      for (const { id, state } of own) if (state === 'CONTAINER_EXITED' && !this.#ran.has(id)) this.#ran.set(id, await this.#hasRun(id));
      return {
        fromMs,
        toMs,
        containers: own.map((each) => ({
          id: each.id,
          uid: each.labels['io.kubernetes.pod.uid'] ?? '',
          name: each.metadata?.name ?? '',
          attempt: each.metadata?.attempt ?? 0,
          running: each.state === 'CONTAINER_RUNNING',
          ran: each.state === 'CONTAINER_RUNNING' || each.state === 'CONTAINER_UNKNOWN' || this.#ran.get(each.id) === true,
          createdAtMs: Number(BigInt(each.createdAt) / 1_000_000n),
        })),
        sandboxes: sandboxes.items
          .filter(({ metadata }) => metadata?.namespace === NAMESPACE)
          .map((each) => ({ id: each.id, uid: each.metadata?.uid ?? '', ready: each.state === 'SANDBOX_READY' })),
      };
    } catch {
      return null;
    }
  }

  /** Whether a container that has ended had begun; one that went meanwhile is taken for one that had. */
  async #hasRun(containerId: string): Promise<boolean> {
    const answer = await this.cri.runtime.containerStatus({ containerId }, { timeoutMs: 10_000 }).catch((error: unknown) => {
      if (!hasCode(error, 'not-found')) throw error;
      return null;
    });
    return answer?.status == null || Number(answer.status.startedAt) > 0;
  }

  /** All that stands on the node for pods. Throws while the runtime does not answer. */
  async footprint(): Promise<Footprint> {
    const call = { timeoutMs: 10_000 };
    const [containers, sandboxes] = await Promise.all([this.cri.runtime.listContainers({}, call), this.cri.runtime.listPodSandbox({}, call)]);
    const below = (path: string): string[] => names(this.path(path)).map((name) => `${path}/${name}`);
    const { initPid } = this.#options;
    return {
      containers: containers.containers.map(({ id, metadata }) => `${metadata?.name ?? ''} ${id}`),
      sandboxes: sandboxes.items.map(({ id, metadata }) => `${metadata?.name ?? ''} ${id}`),
      mounts: readFileSync(`/proc/${initPid}/mountinfo`, 'utf8')
        .split('\n')
        .map((line) => line.split(' ')[4] ?? ''),
      'network namespaces': below('/run/netns'),
      addresses: addressesBelow((inNode) => this.path(inNode)),
      'log directories': below('/var/log/pods'),
      'container logs': below('/var/log/containers'),
      'pod directories': below('/var/lib/kubelet/pods'),
      links: linksOf(initPid),
      cgroups: this.#cgroups(),
      processes: processesBelow(initPid),
    };
  }

  /** Shims that run, by the names that the footprint has for them. */
  shims(): Map<string, LeftShim> {
    return new Map(shimsBelow(this.#options.initPid));
  }

  /** Every container and sandbox that the runtime lists. Throws while it does not answer. */
  async listedIds(): Promise<Set<string>> {
    const call = { timeoutMs: 10_000 };
    const [containers, sandboxes] = await Promise.all([this.cri.runtime.listContainers({}, call), this.cri.runtime.listPodSandbox({}, call)]);
    return new Set([...containers.containers, ...sandboxes.items].map(({ id }) => id));
  }

  /** Pods' cgroups in every hierarchy. */
  #cgroups(): string[] {
    const base = '/sys/fs/cgroup';
    const mounts = names(base).includes('cgroup.controllers') ? [base] : [...new Set(names(base).map((name) => `${base}/${name}`))];
    return mounts.flatMap((mount) =>
      ['', '/burstable', '/besteffort'].flatMap((qos) => {
        const path = `${mount}${this.#options.cgroup}/kubepods${qos}`;
        return names(path)
          .filter((name) => name.startsWith('pod'))
          .map((name) => `${path}/${name}`);
      }),
    );
  }
}

/** Of a process: memory that is its own, open files, threads. */
export function processFigures(pid: number): Figures {
  const status = text(`/proc/${pid}/status`);
  return {
    rssBytes: Number(/^RssAnon:\s+(\d+)/m.exec(status)?.[1] ?? 0) * 1024,
    threads: Number(/^Threads:\s+(\d+)/m.exec(status)?.[1] ?? 0),
    descriptors: names(`/proc/${pid}/fd`).length,
  };
}

function childrenOf(pid: number): number[] {
  return text(`/proc/${pid}/task/${pid}/children`)
    .split(' ')
    .filter((child) => child !== '')
    .map(Number);
}

const commOf = (pid: number): string => text(`/proc/${pid}/comm`).trim();
const isZombie = (pid: number): boolean => /^State:\s+Z/m.test(text(`/proc/${pid}/status`));
const isShim = (comm: string): boolean => comm.includes('shim');

/** Processes of a shim or of a container: command names without the pid, so that they compare; of shims whose they are. */
function processesBelow(pid: number): string[] {
  return childrenOf(pid).flatMap((child) => {
    const comm = commOf(child);
    const own = /shim|pause|^sh$|sleep/.test(comm) && !isZombie(child) ? [isShim(comm) ? shimName(child) : comm] : [];
    return [...own, ...processesBelow(child)];
  });
}

const shimName = (pid: number): string => `${commOf(pid)} of ${shimOf(pid).id}`;

function shimsBelow(pid: number): [string, LeftShim][] {
  return childrenOf(pid).flatMap((child) => [
    ...(isShim(commOf(child)) && !isZombie(child) ? [[shimName(child), shimOf(child)] satisfies [string, LeftShim]] : []),
    ...shimsBelow(child),
  ]);
}

/** Whose a shim is, since when, and what is left of it. */
function shimOf(pid: number): LeftShim {
  const words = text(`/proc/${pid}/cmdline`).split('\0');
  // The fields after the command name; the 20th is when it began, in hundredths since the machine's start.
  const ticks = Number(text(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ')[19]);
  return {
    id: words[words.indexOf('-id') + 1] ?? '',
    startedAtMs: Date.now() - uptime() * 1000 + ticks * 10,
    hasDirectory: names(`/proc/${pid}/cwd`).length > 0,
    processes: childrenOf(pid)
      .filter((child) => !isZombie(child))
      .map(commOf),
  };
}

/** Pods' links at the node's end: those of the reference plugins, and ours. */
function linksOf(pid: number): string[] {
  return text(`/proc/${pid}/net/dev`)
    .split('\n')
    .map((line) => line.split(':')[0]?.trim() ?? '')
    .filter((name) => /^veth|^nl[0-9a-f]{13}$/.test(name));
}

function names(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function text(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** The process of a container, to be killed behind everybody's back: the first whose cgroup names its id. */
export function pidOfContainer(id: string): number | null {
  for (const pid of names('/proc')) {
    if (!/^\d+$/.test(pid) || !text(`/proc/${pid}/cgroup`).includes(id)) continue;
    try {
      readlinkSync(`/proc/${pid}/exe`);
      return Number(pid);
    } catch {
      continue;
    }
  }
  return null;
}
