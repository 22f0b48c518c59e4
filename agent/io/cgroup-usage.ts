import { stat } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { GroupFacts, ProcessFacts } from '../core/cadvisor-groups.ts';
import { cgroupUsage, cgroupUsageFiles, swapFiles, swapOf, type CgroupUsage } from '../core/cgroup-usage.ts';
import { cgroupPath, kubepods, qosName, rootName } from '../core/cgroups.ts';
import { diskCounts } from '../core/file-systems.ts';
import { linksOf, type LinkFacts } from '../core/net-dev.ts';
import type { SystemContainerFacts } from '../core/stats.ts';
import type { PodCgroups } from './cgroups.ts';
import { looksMax, openFiles } from './open-files.ts';

export interface CgroupReaderOptions {
  readonly clock: Clock;
  readonly sys: Pick<Sys, 'readFiles'>;
  readonly cgroups: Pick<PodCgroups, 'layout' | 'driver' | 'directoriesOf'>;
  readonly cgroupRoot: string;
  /** Cgroups that the configuration names, each with what it is called; '' is not named. */
  readonly system: { readonly kubelet: string; readonly runtime: string; readonly misc: string };
}

/** A pod that runs, its sandbox, and the ids of its containers that run. */
export interface ReadPod {
  readonly pod: Pod;
  readonly sandbox: string;
  readonly containers: readonly string[];
}

/** Bytes of swap in use, and how many more there may be; null is unbounded. */
export type SwapFacts = NonNullable<ReturnType<typeof swapOf>>;

/** More processes of one container than these are not looked into. */
const processesMax = 64;

/** Reads what cgroups and /proc tell of pods and their containers. */
export class CgroupReader {
  readonly #options: CgroupReaderOptions;
  readonly #startedAtMs: number;

  constructor(options: CgroupReaderOptions) {
    this.#options = options;
    this.#startedAtMs = options.clock.nowMs();
  }

  /** By UID of a pod and by id of a sandbox or container; what is gone is left out. `processes`: their open files and network too. */
  async read(pods: readonly ReadPod[], processes: boolean): Promise<ReadonlyMap<string, GroupFacts>> {
    const wanted = pods.flatMap((each) => this.#wanted(each));
    const usages = await this.#usages(wanted.map(({ directories }) => directories));
    const devices = await this.#devices();
    const atMs = this.#options.clock.nowMs();
    const out = new Map<string, GroupFacts>();
    for (const [at, { key, kind, directories }] of wanted.entries()) {
      const usage = usages[at] ?? null;
      if (usage === null) continue;
      out.set(key, {
        path: this.#pathOf(directories),
        atMs,
        usage,
        processes: processes ? await this.#processes(usage.pids, kind === 'pod' ? null : (usage.pids[0] ?? null)) : null,
        network: processes && kind === 'sandbox' ? await this.#links(usage.pids) : [],
        devices,
      });
    }
    return out;
  }

  /** Swap by UID of a pod and by id of a container, without reading more than that. */
  async swap(pods: readonly ReadPod[]): Promise<ReadonlyMap<string, SwapFacts>> {
    const { cgroups, sys } = this.#options;
    const { version, hierarchies } = cgroups.layout;
    const memory = Math.max(
      0,
      hierarchies.findIndex(({ controllers }) => controllers.includes('memory')),
    );
    const wanted = pods.flatMap((each) => this.#wanted(each));
    const files = wanted.flatMap(({ directories }) => swapFiles(version).map((name) => `${directories[memory] ?? ''}/${name}`));
    const texts = (await sys.readFiles(files)).map((bytes) => Buffer.from(bytes ?? []).toString());
    return new Map(
      wanted.flatMap(({ key }, at) => {
        const swap = swapOf(version, texts[at * 2] ?? '', texts[at * 2 + 1] ?? '');
        return swap === null ? [] : [[key, swap] as const];
      }),
    );
  }

  /** The root, the cgroups above pods, and those that the configuration names; what is not there is left out. */
  async above(): Promise<{ readonly facts: GroupFacts; readonly madeAtMs: number }[]> {
    const { cgroups, cgroupRoot, clock, sys } = this.#options;
    const root = rootName(cgroupRoot);
    const classes = [kubepods(root), qosName(root, 'Burstable'), qosName(root, 'BestEffort')].map((name) => cgroupPath(cgroups.driver, name));
    const named = (await this.#named()).map(([, path]) => path);
    const paths = [...new Set(['/', ...classes, ...named])];
    const directories = paths.map((path) => this.#directoriesAt(path));
    const usages = await this.#usages(directories);
    const devices = await this.#devices();
    const atMs = clock.nowMs();
    const out: { facts: GroupFacts; madeAtMs: number }[] = [];
    for (const [at, path] of paths.entries()) {
      const usage = usages[at] ?? null;
      if (usage === null) continue;
      const isRoot = path === '/';
      const network = isRoot ? linksOf(Buffer.from((await sys.readFiles(['/proc/net/dev']))[0] ?? []).toString()) : [];
      const processes = await this.#processes(usage.pids, isRoot ? 1 : null);
      out.push({ facts: { path, atMs, usage, processes, network, devices }, madeAtMs: await this.#madeAtMs(directories[at] ?? []) });
    }
    return out;
  }

  /** What the root cgroup tells of the whole node; null where it tells nothing. */
  async root(): Promise<CgroupUsage | null> {
    const [usage] = await this.#usages([this.#directoriesAt('/')]);
    return usage ?? null;
  }

  /** The cgroup of all pods, the agent's own, and those that the configuration names. */
  async system(): Promise<SystemContainerFacts[]> {
    const { cgroups, cgroupRoot, clock } = this.#options;
    const named = [...(await this.#named()), ['pods', cgroupPath(cgroups.driver, kubepods(rootName(cgroupRoot)))] as const];
    const directories = named.map(([, path]) => this.#directoriesAt(path));
    const usages = await this.#usages(directories);
    const atMs = clock.nowMs();
    const out: SystemContainerFacts[] = [];
    for (const [at, [name]] of named.entries()) {
      const usage = usages[at] ?? null;
      if (usage === null) continue;
      const startedAtMs = name === 'kubelet' ? this.#startedAtMs : await this.#madeAtMs(directories[at] ?? []);
      out.push({ name, startedAtMs, ...systemUsage(usage, atMs) });
    }
    return out;
  }

  /** `kubelet`, `runtime` and `misc`, each with the cgroup it stands in, where it has one. */
  async #named(): Promise<(readonly [name: string, path: string])[]> {
    const { system } = this.#options;
    const all = { kubelet: system.kubelet || (await this.#own()), runtime: system.runtime, misc: system.misc };
    return Object.entries(all).filter(([, path]) => path !== '');
  }

  #wanted({ pod, sandbox, containers }: ReadPod): { key: string; kind: 'pod' | 'sandbox' | 'container'; directories: string[] }[] {
    const directories = this.#options.cgroups.directoriesOf(pod);
    const below = (id: string): string[] => directories.map((each) => `${each}/${this.#nameOf(id)}`);
    return [
      { key: pod.metadata.uid ?? '', kind: 'pod', directories },
      { key: sandbox, kind: 'sandbox', directories: below(sandbox) },
      ...containers.map((id) => ({ key: id, kind: 'container' as const, directories: below(id) })),
    ];
  }

  #directoriesAt(path: string): string[] {
    return this.#options.cgroups.layout.hierarchies.map(({ mount }) => (path === '/' ? mount : `${mount}${path}`));
  }

  #pathOf(directories: readonly string[]): string {
    return (directories[0] ?? '').slice(this.#options.cgroups.layout.hierarchies[0]?.mount.length ?? 0);
  }

  /** The oldest of its directories and of a file that nobody writes: a directory is changed by what is made in it, and either may be known to the kernel only since it was looked at. */
  async #madeAtMs(directories: readonly string[]): Promise<number> {
    const file = this.#options.cgroups.layout.version === 1 ? 'cgroup.clone_children' : 'cgroup.events';
    const seen = await Promise.all(directories.flatMap((each) => [each, `${each}/${file}`]).map((path) => stat(path).catch(() => null)));
    return Math.min(...seen.flatMap((one) => (one === null ? [] : [one.mtimeMs])), this.#options.clock.nowMs());
  }

  /** As the runtime calls a container's cgroup below its pod's. */
  #nameOf(id: string): string {
    return this.#options.cgroups.driver === 'systemd' ? `cri-containerd-${id}.scope` : id;
  }

  async #usages(directories: readonly (readonly string[])[]): Promise<(CgroupUsage | null)[]> {
    const { sys, cgroups } = this.#options;
    const { version, hierarchies } = cgroups.layout;
    const files = directories.map((each) => cgroupUsageFiles(version, hierarchies, each));
    const texts = (await sys.readFiles(files.flat())).map((bytes) => (bytes === null ? '' : Buffer.from(bytes).toString()));
    const count = files[0]?.length ?? 0;
    return files.map((_, at) => cgroupUsage(version, texts.slice(at * count, (at + 1) * count)));
  }

  async #own(): Promise<string> {
    const [bytes] = await this.#options.sys.readFiles(['/proc/self/cgroup']);
    const lines = Buffer.from(bytes ?? [])
      .toString()
      .split('\n');
    const line = lines.find((each) => /^\d+:[^:]*\bmemory\b[^:]*:/.test(each)) ?? lines.find((each) => each.startsWith('0::'));
    return line?.split(':').slice(2).join(':') ?? '';
  }

  /** Names of block devices by their numbers. */
  async #devices(): Promise<ReadonlyMap<string, string>> {
    const [bytes] = await this.#options.sys.readFiles(['/proc/diskstats'], { maxBytesEach: 1 << 20 });
    return new Map([...diskCounts(Buffer.from(bytes ?? []).toString())].map(([device, { name }]) => [device, `/dev/${name}`]));
  }

  /** `standsFor`: the process whose limits are told; null: none is. */
  async #processes(pids: readonly number[], standsFor: number | null): Promise<ProcessFacts> {
    let [files, sockets] = [0, 0];
    for (const pid of pids.slice(0, processesMax)) {
      const open = await openFiles(pid, Math.max(0, looksMax - files));
      files += open.files;
      sockets += open.sockets;
    }
    return { files, sockets, openFilesLimit: standsFor === null ? null : await this.#openFilesLimit(standsFor) };
  }

  async #openFilesLimit(pid: number): Promise<number | null> {
    const [limits] = await this.#options.sys.readFiles([`/proc/${pid}/limits`]);
    const soft = /^Max open files\s+(\S+)/m.exec(Buffer.from(limits ?? []).toString())?.[1] ?? '';
    return /^\d+$/.test(soft) ? Number(soft) : soft === 'unlimited' ? -1 : null;
  }

  async #links(pids: readonly number[]): Promise<LinkFacts[]> {
    const [first] = pids;
    if (first === undefined) return [];
    const [bytes] = await this.#options.sys.readFiles([`/proc/${first}/net/dev`]);
    return linksOf(Buffer.from(bytes ?? []).toString());
  }
}

function systemUsage(usage: CgroupUsage, atMs: number): Omit<SystemContainerFacts, 'name' | 'startedAtMs'> {
  const { memoryLimit } = usage.spec;
  return {
    atMs,
    cpuNanoSeconds: usage.cpuNanos,
    cpuNanoCores: null,
    memory: {
      workingSetBytes: usage.workingSet,
      availableBytes: memoryLimit === 0 || usage.workingSet === null ? null : Math.max(0, memoryLimit - usage.workingSet),
      usageBytes: usage.usage,
      rssBytes: usage.rss,
      pageFaults: usage.faults.all.minor,
      majorPageFaults: usage.faults.all.major,
    },
    swapBytes: usage.swap,
    swapAvailableBytes: usage.spec.swapMax === null ? null : Math.max(0, usage.spec.swapMax - (usage.swap ?? 0)),
    pressure: usage.pressure,
  };
}
