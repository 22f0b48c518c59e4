import { readdir, readlink, stat } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { GroupFacts, LinkFacts, ProcessFacts } from '../core/cadvisor-groups.ts';
import { cgroupUsage, cgroupUsageFiles, type CgroupUsage } from '../core/cgroup-usage.ts';
import { cgroupPath, kubepods, rootName } from '../core/cgroups.ts';
import type { SystemContainerFacts } from '../core/stats.ts';
import type { PodCgroups } from './cgroups.ts';

export interface CgroupReaderOptions {
  readonly clock: Clock;
  readonly sys: Pick<Sys, 'readFiles'>;
  readonly cgroups: Pick<PodCgroups, 'layout' | 'driver' | 'directoriesOf'>;
  readonly cgroupRoot: string;
  /** Cgroups that the configuration names, each with what it is called; '' is not named. */
  readonly system: { readonly kubelet: string; readonly runtime: string; readonly misc: string };
}

/** A pod that runs, and the ids of its containers that do. */
export interface ReadPod {
  readonly pod: Pod;
  readonly containers: readonly string[];
}

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

  /** By UID of a pod and by id of a container; what is gone is left out. `processes`: their open files and network too. */
  async read(pods: readonly ReadPod[], processes: boolean): Promise<ReadonlyMap<string, GroupFacts>> {
    const { cgroups, clock } = this.#options;
    const wanted = pods.flatMap(({ pod, containers }) => {
      const directories = cgroups.directoriesOf(pod);
      return [
        { key: pod.metadata.uid ?? '', pod, isContainer: false, directories },
        ...containers.map((id) => ({ key: id, pod, isContainer: true, directories: directories.map((each) => `${each}/${this.#nameOf(id)}`) })),
      ];
    });
    const usages = await this.#usages(wanted.map(({ directories }) => directories));
    const devices = await this.#devices();
    const atMs = clock.nowMs();
    const mount = cgroups.layout.hierarchies[0]?.mount ?? '';
    const out = new Map<string, GroupFacts>();
    for (const [at, { key, pod, isContainer, directories }] of wanted.entries()) {
      const usage = usages[at] ?? null;
      if (usage === null) continue;
      const own = processes && isContainer;
      out.set(key, {
        path: (directories[0] ?? '').slice(mount.length),
        atMs,
        usage,
        processes: own ? await this.#processes(usage.pids) : null,
        network: own && pod.spec.hostNetwork !== true ? await this.#links(usage.pids) : [],
        devices,
      });
    }
    return out;
  }

  /** The cgroup of all pods, the agent's own, and those that the configuration names. */
  async system(): Promise<SystemContainerFacts[]> {
    const { cgroups, cgroupRoot, clock, system } = this.#options;
    const pods = cgroupPath(cgroups.driver, kubepods(rootName(cgroupRoot)));
    const named = Object.entries({ kubelet: system.kubelet || (await this.#own()), runtime: system.runtime, misc: system.misc, pods }).filter(
      ([, path]) => path !== '',
    );
    const directories = named.map(([, path]) => cgroups.layout.hierarchies.map(({ mount }) => `${mount}${path}`));
    const usages = await this.#usages(directories);
    const atMs = clock.nowMs();
    const out: SystemContainerFacts[] = [];
    for (const [at, [name]] of named.entries()) {
      const usage = usages[at] ?? null;
      if (usage === null) continue;
      const made = await stat(directories[at]?.[0] ?? '').catch(() => null);
      out.push({ name, startedAtMs: name === 'kubelet' ? this.#startedAtMs : (made?.mtimeMs ?? this.#startedAtMs), ...systemUsage(usage, atMs) });
    }
    return out;
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
    const lines = Buffer.from(bytes ?? [])
      .toString()
      .split('\n');
    return new Map(
      lines.flatMap((line) => {
        const [, major, minor, name] = /^\s*(\d+)\s+(\d+)\s+(\S+)/.exec(line) ?? [];
        return name === undefined ? [] : [[`${major}:${minor}`, `/dev/${name}`] as const];
      }),
    );
  }

  async #processes(pids: readonly number[]): Promise<ProcessFacts | null> {
    const [first] = pids;
    if (first === undefined) return null;
    const [limits] = await this.#options.sys.readFiles([`/proc/${first}/limits`]);
    const soft = /^Max open files\s+(\S+)/m.exec(Buffer.from(limits ?? []).toString())?.[1] ?? '';
    let [files, sockets] = [0, 0];
    for (const pid of pids.slice(0, processesMax)) {
      const names = await readdir(`/proc/${pid}/fd`).catch(() => [] as string[]);
      files += names.length;
      const targets = await Promise.all(names.map((name) => readlink(`/proc/${pid}/fd/${name}`).catch(() => '')));
      sockets += targets.filter((target) => target.startsWith('socket:')).length;
    }
    return { files, sockets, openFilesLimit: /^\d+$/.test(soft) ? Number(soft) : null };
  }

  async #links(pids: readonly number[]): Promise<LinkFacts[]> {
    const [first] = pids;
    if (first === undefined) return [];
    const [bytes] = await this.#options.sys.readFiles([`/proc/${first}/net/dev`]);
    const lines = Buffer.from(bytes ?? [])
      .toString()
      .split('\n')
      .slice(2);
    return lines.flatMap((line) => {
      const [, name = '', rest = ''] = /^\s*([^:]+):\s*(.*)$/.exec(line) ?? [];
      const [, rxPackets = 0, , rxDropped = 0, , , , , , txPackets = 0, , txDropped = 0] = rest.split(/\s+/).map(Number);
      return name === '' || name === 'lo' ? [] : [{ name, rxPackets, rxDropped, txPackets, txDropped }];
    });
  }
}

function systemUsage(usage: CgroupUsage, atMs: number): Omit<SystemContainerFacts, 'name' | 'startedAtMs'> {
  const { memoryLimit } = usage.spec;
  return {
    atMs,
    cpuNanoSeconds: usage.userNanos === null ? null : usage.userNanos + (usage.systemNanos ?? 0),
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
    pressure: usage.pressure,
  };
}
