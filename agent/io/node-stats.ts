import { mostPids, PID_FILES } from '../core/settings.ts';
import type { CgroupUsage } from '../core/cgroup-usage.ts';
import { linksOf } from '../core/net-dev.ts';
import type { FileSystemFacts, NodeStatsFacts } from '../core/stats.ts';
import type { FilesystemUsage, UInt64Value } from '../../proto/cri/types.ts';
import type { Rates } from './rates.ts';
import type { StatsOptions } from './stats.ts';

/** A number as CRI carries it; null is "not told". */
export function uint(value: UInt64Value | null): number | null {
  return value === null ? null : Number(value.value);
}

const procFiles = ['/proc/stat', '/proc/meminfo', '/proc/net/dev', '/proc/net/route', '/proc/loadavg', '/proc/vmstat', ...PID_FILES] as const;

/** What the whole node uses: its root cgroup's counts where it has them, else the machine's. */
export async function readNode(options: StatsOptions, rates: Rates): Promise<NodeStatsFacts> {
  const { clock, machine } = options;
  const [files, fs, imageFs, root] = await Promise.all([
    options.sys.readFiles(procFiles),
    readFileSystem(options),
    readImageFs(options),
    options.groups?.root() ?? null,
  ]);
  const [stat = '', meminfo = '', dev = '', route = '', loadavg = '', vmstat = '', ...pidLimits] = files.map((bytes) =>
    bytes === null ? '' : Buffer.from(bytes).toString(),
  );
  const atMs = clock.nowMs();
  const kib = (field: string): number | null => {
    const match = new RegExp(`^${field.replaceAll(/[()]/g, '\\$&')}:\\s+(\\d+)`, 'm').exec(meminfo);
    return match === null ? null : Number(match[1]) * 1024;
  };
  const [total, free, inactive] = [kib('MemTotal') ?? machine.memoryBytes, kib('MemFree') ?? 0, kib('Inactive(file)') ?? 0];
  const nanos = root?.cpuNanos ?? cpuNanos(stat);
  const [swapTotal, swapFree] = [kib('SwapTotal') ?? 0, kib('SwapFree') ?? 0];
  const startedAtMs = Number(/^btime (\d+)/m.exec(stat)?.[1] ?? 0) * 1000;
  return {
    nodeName: options.nodeName,
    startedAtMs,
    atMs,
    cpuNanoSeconds: nanos,
    cpuNanoCores: rates.nanoCores('node', atMs, nanos, startedAtMs),
    memory: memoryOf(root, { total, used: total - free, inactive, rss: kib('AnonPages'), vmstat }),
    swapBytes: swapTotal - swapFree,
    swapAvailableBytes: swapFree,
    interfaces: linksOf(dev),
    defaultInterface:
      route
        .split('\n')
        .slice(1)
        .map((line) => line.split('\t'))
        .find((fields) => fields[1] === '00000000')?.[0] ?? '',
    fs,
    imageFs,
    maxPids: mostPids(pidLimits),
    processes: Number(/\d+\/(\d+)/.exec(loadavg)?.[1] ?? 0) || null,
    cpus: machine.cpus,
    memoryBytes: machine.memoryBytes,
  };
}

function countIn(text: string, name: string): number | null {
  const match = new RegExp(`^${name} (\\d+)`, 'm').exec(text);
  return match === null ? null : Number(match[1]);
}

/** Time of all processors that was not idle; the kernel counts in hundredths of a second. */
function cpuNanos(stat: string): number | null {
  const fields = /^cpu +(.*)$/m.exec(stat)?.[1]?.split(' ').map(Number);
  if (fields === undefined) return null;
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = fields;
  return (user + nice + system + irq + softirq + steal) * 10_000_000;
}

/** The machine's own root cgroup has no `memory.current` with version 2: there /proc/meminfo tells instead, as upstream does it. */
function memoryOf(
  root: CgroupUsage | null,
  machine: { total: number; used: number; inactive: number; rss: number | null; vmstat: string },
): NodeStatsFacts['memory'] {
  const usageBytes = root?.usage ?? machine.used;
  const workingSetBytes = Math.max(0, usageBytes - (root?.inactiveFile ?? machine.inactive));
  return {
    workingSetBytes,
    availableBytes: machine.total - workingSetBytes,
    usageBytes,
    rssBytes: root?.rss ?? machine.rss,
    pageFaults: root?.faults.own.minor ?? countIn(machine.vmstat, 'pgfault'),
    majorPageFaults: root?.faults.own.major ?? countIn(machine.vmstat, 'pgmajfault'),
  };
}

const unknownFs = (atMs: number): FileSystemFacts => ({
  atMs,
  capacityBytes: null,
  availableBytes: null,
  usedBytes: null,
  inodes: null,
  inodesFree: null,
  inodesUsed: null,
});

/** How full the file system at a path is; nothing is known of one that does not answer in time. */
export async function fileSystemAt({ sys, clock, timeoutMs }: StatsOptions, path: string): Promise<FileSystemFacts> {
  const atMs = clock.nowMs();
  try {
    const { totalBytes, freeBytes, availableBytes, inodes, inodesFree } = await sys.statfs(path, { timeoutMs });
    return { atMs, capacityBytes: totalBytes, availableBytes, usedBytes: totalBytes - freeBytes, inodes, inodesFree, inodesUsed: inodes - inodesFree };
  } catch {
    return unknownFs(atMs);
  }
}

function readFileSystem(options: StatsOptions): Promise<FileSystemFacts> {
  return fileSystemAt(options, options.rootDir);
}

/** The runtime knows what its images use; the file system below says how large it is. */
async function readImageFs(options: StatsOptions): Promise<FileSystemFacts | null> {
  let image: FilesystemUsage | undefined;
  try {
    [image] = (await options.images.imageFsInfo({}, { timeoutMs: options.timeoutMs })).imageFilesystems;
  } catch {
    return null;
  }
  const mountpoint = image?.fsId?.mountpoint;
  if (mountpoint === undefined || mountpoint === '') return null;
  const below = await fileSystemAt(options, mountpoint);
  return { ...below, usedBytes: uint(image?.usedBytes ?? null) ?? below.usedBytes, inodesUsed: uint(image?.inodesUsed ?? null) ?? below.inodesUsed };
}
