import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { cgroupPath, kubepods, rootName } from '../core/cgroups.ts';
import type { CgroupLayout } from '../core/cgroups.ts';
import type { ContainerUse, DiskUse, PodUse } from '../core/evict-rank.ts';
import { localVolumes } from '../core/evict-rank.ts';
import { deviceOf, diskObservations, memoryObservations, numberIn, pidObservations, workingSet } from '../core/evict-signals.ts';
import type { DiskLayout, EvictionSignal, Observation, Observations, StarvedResource } from '../core/evict-thresholds.ts';
import { PID_FILES } from '../core/settings.ts';
import { podPaths } from '../core/volumes-paths.ts';
import type { PodCgroups } from './cgroups.ts';
import type { Cri } from './cri.ts';
import { logUsage } from './log-usage.ts';

export interface MeasureOptions {
  readonly sys: Pick<Sys, 'readFiles' | 'statfs' | 'diskUsage'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly cri: { readonly runtime: Pick<Cri['runtime'], 'listContainerStats'>; readonly images: Pick<Cri['images'], 'imageFsInfo'> };
  readonly cgroups: Pick<PodCgroups, 'layout' | 'driver' | 'directoriesOf'>;
  readonly cgroupRoot: string;
  readonly rootDir: string;
  readonly podLogsDir: string;
}

/** Where images and containers lie; null until the runtime has said so. */
interface Disks {
  readonly layout: DiskLayout;
  readonly images: string;
  readonly containers: string;
}

const statfsTimeoutMs = 10_000;
const walkTimeoutMs = 30_000;

/** Reads what eviction goes by. A disk that hangs has no signal, and nobody is evicted for it. */
export class EvictionMeasure {
  readonly #options: MeasureOptions;
  #disks: Disks | null = null;

  constructor(options: MeasureOptions) {
    this.#options = options;
  }

  /** How disks are laid out; null until the runtime has named them. Does not change while the agent runs. */
  async layout(signal: AbortSignal): Promise<DiskLayout | null> {
    this.#disks ??= await this.#findDisks(signal);
    return this.#disks?.layout ?? null;
  }

  /** Files of the kernel alone: cheap enough for every second. */
  async quick(): Promise<Map<EvictionSignal, Observation>> {
    const { sys, cgroups, cgroupRoot } = this.#options;
    const { version } = cgroups.layout;
    const mount = memoryMount(cgroups.layout);
    const pods = `${mount}${cgroupPath(cgroups.driver, kubepods(rootName(cgroupRoot)))}`;
    const names = memoryFiles(version);
    const files = await sys.readFiles([
      '/proc/meminfo',
      `${mount}/${names.usage}`,
      `${mount}/memory.stat`,
      `${pods}/${names.limit}`,
      `${pods}/${names.usage}`,
      `${pods}/memory.stat`,
      '/proc/loadavg',
      ...PID_FILES,
    ]);
    const [meminfo = '', usage = '', stat = '', podsLimit = '', podsUsage = '', podsStat = '', loadavg = '', ...limits] = files.map(textOf);
    return new Map([...memoryObservations(version, { meminfo, usage, stat, podsLimit, podsUsage, podsStat }), ...pidObservations(loadavg, limits)]);
  }

  /** All signals. */
  async all(signal: AbortSignal): Promise<Observations> {
    await this.layout(signal);
    const disks = this.#disks;
    const [quick, node, images, containers] = await Promise.all([
      this.quick(),
      this.#disk('nodefs', this.#options.rootDir),
      this.#disk('imagefs', disks?.images),
      this.#disk('containerfs', disks?.containers),
    ]);
    return new Map([...quick, ...node, ...images, ...containers]);
  }

  /** What each pod uses of what is short, by UID. Only what ranking and words need is read. */
  async pods(pods: readonly Pod[], resource: StarvedResource, signal: AbortSignal): Promise<ReadonlyMap<string, PodUse>> {
    const stats = await this.#containerStats(signal);
    const groups = await this.#groups(pods);
    const out = new Map<string, PodUse>();
    for (const pod of pods) {
      const uid = pod.metadata.uid ?? '';
      const own = stats.get(uid);
      if (own === undefined) continue;
      const isDisk = resource === 'ephemeral-storage' || resource === 'inodes';
      const containers = isDisk ? await this.#withLogs(pod, own, signal) : own;
      const volumes = isDisk ? await this.#volumes(pod, signal) : new Map<string, DiskUse>();
      out.set(uid, { memoryBytes: null, processes: 0n, ...groups.get(uid), containers, volumes });
    }
    return out;
  }

  async #findDisks(signal: AbortSignal): Promise<Disks | null> {
    const { sys, cri, rootDir, log } = this.#options;
    try {
      const info = await cri.images.imageFsInfo({}, { timeoutMs: statfsTimeoutMs, signal });
      const images = info.imageFilesystems[0]?.fsId?.mountpoint ?? '';
      const containers = info.containerFilesystems[0]?.fsId?.mountpoint ?? images;
      if (images === '') return null;
      const [bytes] = await sys.readFiles(['/proc/self/mountinfo'], { maxBytesEach: 16 << 20 });
      const mountinfo = textOf(bytes ?? null);
      const [node, image, container] = [rootDir, images, containers].map((path) => deviceOf(mountinfo, path));
      const layout: DiskLayout = image === node ? 'one' : container === image ? 'dedicated' : 'split';
      log.info('Eviction: where images and containers lie', { images, containers, layout });
      return { layout, images, containers };
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      log.warn('Eviction manager: failed to get HasDedicatedImageFs', { err: messageOf(error) });
      return null;
    }
  }

  async #disk(name: 'nodefs' | 'imagefs' | 'containerfs', path: string | undefined): Promise<Map<EvictionSignal, Observation>> {
    if (path === undefined) return new Map();
    try {
      return diskObservations(name, await this.#options.sys.statfs(path, { timeoutMs: statfsTimeoutMs }));
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      this.#options.log.warn('A file system could not be measured', { path, err: messageOf(error) });
      return new Map();
    }
  }

  async #containerStats(signal: AbortSignal): Promise<ReadonlyMap<string, ContainerUse[]>> {
    const out = new Map<string, ContainerUse[]>();
    try {
      const { stats } = await this.#options.cri.runtime.listContainerStats({}, { timeoutMs: 30_000, signal });
      for (const each of stats) {
        const uid = each.attributes?.labels['io.kubernetes.pod.uid'] ?? '';
        const memory = each.memory?.workingSetBytes?.value;
        const layer = each.writableLayer;
        const use: ContainerUse = {
          name: each.attributes?.metadata?.name ?? '',
          memoryBytes: memory === undefined ? null : BigInt(memory),
          rootfs:
            layer === null || layer === undefined ? null : { bytes: BigInt(layer.usedBytes?.value ?? '0'), inodes: BigInt(layer.inodesUsed?.value ?? '0') },
          logs: null,
        };
        out.set(uid, [...(out.get(uid) ?? []), use]);
      }
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      this.#options.log.warn('Eviction manager: failed to get summary stats', { err: messageOf(error) });
    }
    return out;
  }

  /** Memory and processes from the pods' cgroups, all in one round. */
  async #groups(pods: readonly Pod[]): Promise<ReadonlyMap<string, Pick<PodUse, 'memoryBytes' | 'processes'>>> {
    const { sys, cgroups } = this.#options;
    const { version, hierarchies } = cgroups.layout;
    const index = (controller: string): number =>
      Math.max(
        0,
        hierarchies.findIndex(({ controllers }) => controllers.includes(controller)),
      );
    const [memory, pids] = [index('memory'), index('pids')];
    const paths = pods.flatMap((pod) => {
      const dirs = cgroups.directoriesOf(pod);
      return [`${dirs[memory] ?? ''}/${memoryFiles(version).usage}`, `${dirs[memory] ?? ''}/memory.stat`, `${dirs[pids] ?? ''}/pids.current`];
    });
    const texts = (await sys.readFiles(paths)).map(textOf);
    return new Map(
      pods.map((pod, at) => {
        const usage = numberIn(texts[at * 3] ?? '');
        const memoryBytes = usage === null ? null : workingSet(version, usage, texts[at * 3 + 1] ?? '');
        return [pod.metadata.uid ?? '', { memoryBytes, processes: numberIn(texts[at * 3 + 2] ?? '') ?? 0n }];
      }),
    );
  }

  async #withLogs(pod: Pod, containers: readonly ContainerUse[], signal: AbortSignal): Promise<ContainerUse[]> {
    const { name = '', namespace = '', uid = '' } = pod.metadata;
    const out: ContainerUse[] = [];
    for (const container of containers) {
      const path = `${this.#options.podLogsDir}/${namespace}_${name}_${uid}/${container.name}`;
      const logs = await this.#measured(path, logUsage(this.#options.sys, path, walkTimeoutMs, signal));
      out.push({ ...container, logs });
    }
    return out;
  }

  async #volumes(pod: Pod, signal: AbortSignal): Promise<ReadonlyMap<string, DiskUse>> {
    const { pod: podDir } = podPaths(this.#options.rootDir, pod.metadata.uid ?? '');
    const out = new Map<string, DiskUse>();
    for (const name of localVolumes(pod)) {
      const plugin = pod.spec.volumes?.find((volume) => volume.name === name)?.emptyDir === undefined ? 'kubernetes.io~configmap' : 'kubernetes.io~empty-dir';
      const use = await this.#walk(`${podDir}/volumes/${plugin}/${name}`, signal);
      if (use !== null) out.set(name, use);
    }
    return out;
  }

  #walk(path: string, signal: AbortSignal): Promise<DiskUse | null> {
    return this.#measured(path, this.#options.sys.diskUsage(path, { timeoutMs: walkTimeoutMs }, signal));
  }

  async #measured(path: string, use: Promise<{ bytes: number; inodes: number }>): Promise<DiskUse | null> {
    try {
      const { bytes, inodes } = await use;
      return { bytes: BigInt(bytes), inodes: BigInt(inodes) };
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      if (!hasCode(error, 'not-found')) this.#options.log.warn('The size of a directory could not be measured', { path, err: messageOf(error) });
      return null;
    }
  }
}

function memoryMount(layout: CgroupLayout): string {
  return (layout.hierarchies.find(({ controllers }) => controllers.includes('memory')) ?? layout.hierarchies[0])?.mount ?? '';
}

function memoryFiles(version: 1 | 2): { usage: string; limit: string } {
  return version === 1 ? { usage: 'memory.usage_in_bytes', limit: 'memory.limit_in_bytes' } : { usage: 'memory.current', limit: 'memory.max' };
}

function textOf(bytes: Uint8Array | null): string {
  return bytes === null ? '' : Buffer.from(bytes).toString('utf8');
}
