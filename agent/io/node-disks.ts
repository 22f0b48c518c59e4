import type { CadvisorFacts } from '../core/cadvisor-text.ts';
import { countsOf, diskCounts, trackedMounts, type TrackedMount } from '../core/file-systems.ts';
import type { StatsOptions } from './stats.ts';

/** One that does not answer by then is left out. */
const timeoutMs = 2_000;
/** Where containerd's containers and their snapshots are mounted. */
const OF_CONTAINERS = ['/run/containerd', '/var/lib/containerd'];

/** How full the node's own file systems are, and what was read and written. Which there are is found once: what comes later is pods'. */
export class NodeDisks {
  readonly #options: StatsOptions;
  #mounts: readonly TrackedMount[] | null = null;

  constructor(options: StatsOptions) {
    this.#options = options;
  }

  async read(): Promise<CadvisorFacts['fileSystems']> {
    const { sys, clock, rootDir } = this.#options;
    const [mountinfo, diskstats] = (await sys.readFiles(['/proc/self/mountinfo', '/proc/diskstats'], { maxBytesEach: 16 << 20 })).map((bytes) =>
      Buffer.from(bytes ?? []).toString(),
    );
    this.#mounts ??= trackedMounts(mountinfo ?? '', [rootDir, ...OF_CONTAINERS]);
    const disks = diskCounts(diskstats ?? '');
    const read = async ({ name, target, device }: TrackedMount): Promise<CadvisorFacts['fileSystems']> => {
      const fs = await sys.statfs(target, { timeoutMs }).catch(() => null);
      if (fs === null) return [];
      const { totalBytes: capacityBytes, freeBytes, inodes, inodesFree } = fs;
      return [{ name, atMs: clock.nowMs(), capacityBytes, usedBytes: capacityBytes - freeBytes, inodes, inodesFree, counts: countsOf(disks, device) }];
    };
    return (await Promise.all(this.#mounts.map(read))).flat();
  }
}
