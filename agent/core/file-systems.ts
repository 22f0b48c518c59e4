import { parseMountinfo } from './mountinfo.ts';

/** A file system that the node's storage metrics tell of. */
export interface TrackedMount {
  /** What its series are called by: the device, or the mount point where there is none. */
  readonly name: string;
  readonly target: string;
  /** `8:1`. */
  readonly device: string;
}

/** What the kernel counts of a block device (Documentation/admin-guide/iostats.rst); times in milliseconds. */
export interface DiskCounts {
  readonly reads: number;
  readonly readsMerged: number;
  readonly sectorsRead: number;
  readonly readMs: number;
  readonly writes: number;
  readonly writesMerged: number;
  readonly sectorsWritten: number;
  readonly writeMs: number;
  readonly inProgress: number;
  readonly busyMs: number;
  readonly weightedMs: number;
}

const DISK = /^(ext\d|xfs|squashfs|f2fs|jfs|btrfs|zfs)$/;
const NO_COUNTS: DiskCounts = {
  reads: 0,
  readsMerged: 0,
  sectorsRead: 0,
  readMs: 0,
  writes: 0,
  writesMerged: 0,
  sectorsWritten: 0,
  writeMs: 0,
  inProgress: 0,
  busyMs: 0,
  weightedMs: 0,
};

/**
 * The node's own file systems in /proc/self/mountinfo: each disk once, each tmpfs by its mount point, the overlay that is
 * the root. What lies below one of `without` (the kubelet's volumes, the runtime's containers) is none of the node's.
 */
export function trackedMounts(mountinfo: string, without: readonly string[]): TrackedMount[] {
  const found = new Map<string, TrackedMount>();
  for (const { target, fstype, source, device } of parseMountinfo(mountinfo)) {
    if (without.some((dir) => target.startsWith(`${dir}/`))) continue;
    const name = DISK.test(fstype)
      ? source
      : fstype === 'tmpfs'
        ? target
        : fstype === 'overlay' && target === '/'
          ? `${source}_${device.replace(':', '-')}`
          : '';
    if (name === '' || (fstype !== 'tmpfs' && found.has(name))) continue;
    found.set(name, { name, target, device });
  }
  return [...found.values()];
}

/** By `major:minor`: what /proc/diskstats counts, and under which name. */
export function diskCounts(diskstats: string): ReadonlyMap<string, { readonly name: string; readonly counts: DiskCounts }> {
  return new Map(
    diskstats.split('\n').flatMap((line) => {
      const [major, minor, name, ...fields] = line.trim().split(/\s+/);
      if (name === undefined) return [];
      const [
        reads = 0,
        readsMerged = 0,
        sectorsRead = 0,
        readMs = 0,
        writes = 0,
        writesMerged = 0,
        sectorsWritten = 0,
        writeMs = 0,
        inProgress = 0,
        busyMs = 0,
        weightedMs = 0,
      ] = fields.map(Number);
      const counts = { reads, readsMerged, sectorsRead, readMs, writes, writesMerged, sectorsWritten, writeMs, inProgress, busyMs, weightedMs };
      return [[`${major}:${minor}`, { name, counts }] as const];
    }),
  );
}

/** Of a device that is no disk: nothing was ever read or written. */
export const countsOf = (disks: ReturnType<typeof diskCounts>, device: string): DiskCounts => disks.get(device)?.counts ?? NO_COUNTS;
