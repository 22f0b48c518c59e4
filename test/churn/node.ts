import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { connectRuntime, createCriClient, type CriClient } from '../../cri/mod.ts';
import { addressesBelow } from './addresses.ts';
import type { Listing } from './auditor.ts';
import type { Figures, Footprint } from './footprint.ts';
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
      return {
        fromMs,
        toMs: Date.now(),
        containers: containers.containers
          .filter(({ labels }) => labels['io.kubernetes.pod.namespace'] === NAMESPACE)
          .map((each) => ({
            id: each.id,
            uid: each.labels['io.kubernetes.pod.uid'] ?? '',
            name: each.metadata?.name ?? '',
            attempt: each.metadata?.attempt ?? 0,
            running: each.state === 'CONTAINER_RUNNING',
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

/** Processes of a shim or of a container: command names without the pid, so that they compare; of shims whose they are. */
function processesBelow(pid: number): string[] {
  return text(`/proc/${pid}/task/${pid}/children`)
    .split(' ')
    .filter((child) => child !== '')
    .flatMap((child) => {
      const state = /^State:\s+(\w)/m.exec(text(`/proc/${child}/status`))?.[1] ?? '';
      const comm = text(`/proc/${child}/comm`).trim();
      const own = /shim|pause|^sh$|sleep/.test(comm) && state !== 'Z' ? [comm.includes('shim') ? `${comm} of ${shimOf(child)}` : comm] : [];
      return [...own, ...processesBelow(Number(child))];
    });
}

/** Pods' links at the node's end: those of the reference plugins, and ours. */
/** The sandbox that a shim was started for, and whether its directory is gone: nobody finds it again then. */
function shimOf(pid: string): string {
  const words = text(`/proc/${pid}/cmdline`).split('\0');
  const id = words[words.indexOf('-id') + 1] ?? '';
  const isLost = names(`/proc/${pid}/cwd`).length === 0;
  return `${id}${isLost ? ', its directory gone' : ''}`;
}

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
