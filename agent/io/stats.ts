import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { ContainerStats, CpuUsage, FilesystemUsage, MemoryUsage, NetworkUsage, PodSandboxStats, UInt64Value } from '../../proto/cri/types.ts';
import type { MachineFacts } from '../core/node-status.ts';
import { mostPids, PID_FILES } from '../core/settings.ts';
import { cadvisorMetrics } from '../core/cadvisor-text.ts';
import type { GroupFacts } from '../core/cadvisor-groups.ts';
import type { Pressure } from '../core/cgroup-usage.ts';
import { localVolumes } from '../core/evict-rank.ts';
import {
  resourceMetrics,
  podUsage,
  summaryOf,
  type ContainerStatsFacts,
  type FileSystemFacts,
  type InterfaceFacts,
  type NodeStatsFacts,
  type PodStatsFacts,
  type UsageFacts,
  type VolumeStatsFacts,
} from '../core/stats.ts';
import type { ContainerFacts, PodFacts } from '../core/types.ts';
import type { Pods } from '../seams.ts';
import type { CgroupReader, ReadPod } from './cgroup-usage.ts';
import type { Cri } from './cri.ts';

export interface StatsOptions {
  clock: Clock;
  log: Log;
  sys: Pick<Sys, 'readFiles' | 'statfs' | 'diskUsage'>;
  runtime: Pick<Cri['runtime'], 'listPodSandboxStats' | 'listContainerStats'>;
  images: Pick<Cri['images'], 'imageFsInfo'>;
  pods: Pods;
  nodeName: string;
  rootDir: string;
  machine: MachineFacts;
  timeoutMs: number;
  /** How full a pod's volumes are, as measured last; absent: it is not told. */
  volumes?: (uid: string) => readonly VolumeStatsFacts[];
  /** What cgroups tell beyond the runtime; absent: it is not told. */
  groups?: Pick<CgroupReader, 'read' | 'system'>;
  /** Where the logs of containers lie; absent: they are not measured. */
  podLogsDir?: string;
}

export interface Stats {
  summary(query: URLSearchParams, signal: AbortSignal): Promise<unknown>;
  resource(signal: AbortSignal): Promise<string>;
  cadvisor(signal: AbortSignal): Promise<string>;
}

/** One reading serves all who ask within this time: it costs the runtime far more than us. */
const reuseMs = 5_000;
/** A rate is taken over at least this long. */
const rateMs = 5_000;

interface Reading {
  node: NodeStatsFacts;
  pods: PodStatsFacts[];
  failed: boolean;
}

/** Usage of the node, its pods and containers, from the runtime and /proc. */
export function createStats(options: StatsOptions): Stats {
  const { clock, log } = options;
  const rates = new Rates();
  let last: { atMs: number; isOver: boolean; reading: Promise<Reading> } | undefined;

  const read = async (): Promise<Reading> => {
    let failed = false;
    const pods = await readPods(options, rates).catch((error: unknown) => {
      failed = true;
      log.error('Failed to read the stats of pods from the runtime', { err: messageOf(error) });
      return [];
    });
    const node = await readNode(options, rates);
    rates.prune();
    return { node, pods, failed };
  };
  const reading = (): Promise<Reading> => {
    // A runtime that is slow is not asked again before it has answered, however many ask us.
    if (last !== undefined && (!last.isOver || clock.monoMs() - last.atMs <= reuseMs)) return last.reading;
    const mine = { atMs: clock.monoMs(), isOver: false, reading: read().finally(() => (mine.isOver = true)) };
    last = mine;
    return mine.reading;
  };

  return {
    async summary(query, signal) {
      const { node, pods } = await reading();
      const isSmall = query.get('only_cpu_and_memory') === 'true';
      const [system, groups] = await Promise.all([options.groups?.system() ?? [], options.groups?.read(readPodsOf(options, pods), false) ?? null]);
      const systemContainers = system.map((one) => ({ ...one, cpuNanoCores: rates.nanoCores(`system ${one.name}`, one.atMs, one.cpuNanoSeconds) }));
      const whole = groups === null ? pods : pods.map((pod) => withPressure(pod, groups));
      const measured = isSmall ? whole : await withLogs(options, whole, signal);
      return summaryOf({ ...node, systemContainers, ...(groups === null ? {} : { pressure: null }) }, measured, isSmall);
    },
    async resource() {
      const { node, pods, failed } = await reading();
      return resourceMetrics(node, pods, failed);
    },
    async cadvisor() {
      const { node, pods } = await reading();
      return cadvisorMetrics(node, pods, await options.groups?.read(readPodsOf(options, pods), true), clock.nowMs());
    },
  };
}

/** Pods that the agent has and the runtime told of, as the reader of cgroups wants them. */
function readPodsOf({ pods }: StatsOptions, told: readonly PodStatsFacts[]): ReadPod[] {
  return told.flatMap(({ uid, containers }) => {
    const pod = pods.byUid(uid);
    return pod === undefined ? [] : [{ pod, containers: containers.map(({ id }) => id) }];
  });
}

function withPressure(pod: PodStatsFacts, groups: ReadonlyMap<string, GroupFacts>): PodStatsFacts {
  const total = podUsage(pod);
  const pressure = (key: string): { pressure: Pressure | null } => ({ pressure: groups.get(key)?.usage.pressure ?? null });
  return {
    ...pod,
    usage: total === null ? null : { ...total, ...pressure(pod.uid) },
    containers: pod.containers.map((container) => ({ ...container, ...pressure(container.id) })),
  };
}

/** How many pods' logs are measured at once. */
const walksMax = 4;

/** What logs take, and which volumes count for the pod's own storage. */
async function withLogs(options: StatsOptions, pods: readonly PodStatsFacts[], signal: AbortSignal): Promise<PodStatsFacts[]> {
  const { podLogsDir, sys, timeoutMs } = options;
  if (podLogsDir === undefined) return [...pods];
  const disk = await fileSystemAt(options, podLogsDir);
  const out: PodStatsFacts[] = [];
  const measure = async (pod: PodStatsFacts): Promise<PodStatsFacts> => {
    const containers: ContainerStatsFacts[] = [];
    for (const container of pod.containers) {
      const path = `${podLogsDir}/${pod.namespace}_${pod.name}_${pod.uid}/${container.name}`;
      const use = await sys.diskUsage(path, { timeoutMs }, signal).catch(() => null);
      containers.push(use === null ? container : { ...container, logs: { ...disk, usedBytes: use.bytes, inodesUsed: use.inodes } });
    }
    const known = options.pods.byUid(pod.uid);
    return { ...pod, containers, ephemeralVolumes: known === undefined ? [] : localVolumes(known) };
  };
  for (let at = 0; at < pods.length; at += walksMax) out.push(...(await Promise.all(pods.slice(at, at + walksMax).map(measure))));
  return out;
}

/** Cores in use now, from two readings of the time used, for runtimes that do not tell. */
class Rates {
  readonly #samples = new Map<string, { atMs: number; nanos: number; rate: number | null; seen: boolean }>();

  nanoCores(key: string, atMs: number, nanos: number | null): number | null {
    if (nanos === null) return null;
    const before = this.#samples.get(key);
    if (before === undefined || nanos < before.nanos) {
      this.#samples.set(key, { atMs, nanos, rate: null, seen: true });
      return null;
    }
    before.seen = true;
    const tookMs = atMs - before.atMs;
    if (tookMs < rateMs) return before.rate;
    const rate = Math.round(((nanos - before.nanos) / tookMs) * 1_000);
    this.#samples.set(key, { atMs, nanos, rate, seen: true });
    return rate;
  }

  /** Forgets what was not in the reading that has just ended. */
  prune(): void {
    for (const [key, sample] of this.#samples) {
      if (!sample.seen) this.#samples.delete(key);
      else sample.seen = false;
    }
  }
}

async function readPods(options: StatsOptions, rates: Rates): Promise<PodStatsFacts[]> {
  const facts = options.pods.allFacts();
  const call = { timeoutMs: options.timeoutMs };
  const { stats: containers } = await options.runtime.listContainerStats({}, call);
  // A runtime that does not know the call tells of containers only; pods are then their sums.
  const sandboxes = await options.runtime.listPodSandboxStats({}, call).then(
    ({ stats }) => stats,
    () => [] as PodSandboxStats[],
  );
  const all = facts.map((pod) => podStats(pod, containers, sandboxes, rates)).filter((pod) => pod !== null);
  return all.map((pod) => ({ ...pod, volumes: options.volumes?.(pod.uid) ?? [] }));
}

function podStats(pod: PodFacts, containers: readonly ContainerStats[], sandboxes: readonly PodSandboxStats[], rates: Rates): PodStatsFacts | null {
  const sandbox = pod.sandboxes.find(({ ready }) => ready);
  if (sandbox === undefined) return null;
  const whole = sandboxes.find(({ attributes }) => attributes?.id === sandbox.id)?.linux ?? null;
  const own = pod.containers.filter(({ state, sandboxId }) => state === 'running' && sandboxId === sandbox.id);
  return {
    uid: pod.uid,
    namespace: pod.namespace,
    name: pod.name,
    startedAtMs: sandbox.createdAtMs,
    usage: whole === null ? null : usageOf(whole.cpu, whole.memory, null, `s ${sandbox.id}`, rates),
    interfaces: interfacesOf(whole?.network ?? null),
    processCount: number(whole?.process?.processCount ?? null),
    containers: own.flatMap((container) => {
      const stats = containers.find(({ attributes }) => attributes?.id === container.id);
      return stats === undefined ? [] : [containerStats(container, stats, rates)];
    }),
  };
}

function containerStats(container: ContainerFacts, stats: ContainerStats, rates: Rates): ContainerStatsFacts {
  return {
    ...usageOf(stats.cpu, stats.memory, number(stats.swap?.swapUsageBytes ?? null), `c ${container.id}`, rates),
    name: container.name,
    id: container.id,
    image: container.image,
    startedAtMs: container.startedAtMs,
    rootfsUsedBytes: number(stats.writableLayer?.usedBytes ?? null),
    rootfsInodesUsed: number(stats.writableLayer?.inodesUsed ?? null),
  };
}

function number(value: UInt64Value | null): number | null {
  return value === null ? null : Number(value.value);
}

function usageOf(cpu: CpuUsage | null, memory: MemoryUsage | null, swapBytes: number | null, key: string, rates: Rates): UsageFacts {
  const atMs = Number(cpu?.timestamp ?? memory?.timestamp ?? 0) / 1e6;
  const nanos = number(cpu?.usageCoreNanoSeconds ?? null);
  const told = number(cpu?.usageNanoCores ?? null);
  const rate = rates.nanoCores(key, atMs, nanos);
  return {
    atMs,
    cpuNanoSeconds: nanos,
    cpuNanoCores: told === null || told === 0 ? (rate ?? told) : told,
    memory: {
      workingSetBytes: number(memory?.workingSetBytes ?? null),
      availableBytes: number(memory?.availableBytes ?? null),
      usageBytes: number(memory?.usageBytes ?? null),
      rssBytes: number(memory?.rssBytes ?? null),
      pageFaults: number(memory?.pageFaults ?? null),
      majorPageFaults: number(memory?.majorPageFaults ?? null),
    },
    swapBytes,
  };
}

function interfacesOf(network: NetworkUsage | null): InterfaceFacts[] {
  if (network === null) return [];
  const all = [...(network.defaultInterface === null ? [] : [network.defaultInterface]), ...network.interfaces];
  return all.map(({ name, rxBytes, rxErrors, txBytes, txErrors }) => ({
    name,
    rxBytes: number(rxBytes),
    rxErrors: number(rxErrors),
    txBytes: number(txBytes),
    txErrors: number(txErrors),
  }));
}

const procFiles = ['/proc/stat', '/proc/meminfo', '/proc/net/dev', '/proc/net/route', '/proc/loadavg', '/proc/vmstat', ...PID_FILES] as const;

async function readNode(options: StatsOptions, rates: Rates): Promise<NodeStatsFacts> {
  const { clock, machine } = options;
  const [files, fs, imageFs] = await Promise.all([options.sys.readFiles(procFiles), readFileSystem(options), readImageFs(options)]);
  const [stat = '', meminfo = '', dev = '', route = '', loadavg = '', vmstat = '', ...pidLimits] = files.map((bytes) =>
    bytes === null ? '' : Buffer.from(bytes).toString(),
  );
  const atMs = clock.nowMs();
  const kib = (field: string): number | null => {
    const match = new RegExp(`^${field.replaceAll(/[()]/g, '\\$&')}:\\s+(\\d+)`, 'm').exec(meminfo);
    return match === null ? null : Number(match[1]) * 1024;
  };
  const [total, free, inactive] = [kib('MemTotal') ?? machine.memoryBytes, kib('MemFree') ?? 0, kib('Inactive(file)') ?? 0];
  const nanos = cpuNanos(stat);
  const swapTotal = kib('SwapTotal') ?? 0;
  return {
    nodeName: options.nodeName,
    startedAtMs: Number(/^btime (\d+)/m.exec(stat)?.[1] ?? 0) * 1000,
    atMs,
    cpuNanoSeconds: nanos,
    cpuNanoCores: rates.nanoCores('node', atMs, nanos),
    memory: {
      workingSetBytes: Math.max(0, total - free - inactive),
      availableBytes: free + inactive,
      usageBytes: total - free,
      rssBytes: kib('AnonPages'),
      pageFaults: countIn(vmstat, 'pgfault'),
      majorPageFaults: countIn(vmstat, 'pgmajfault'),
    },
    swapBytes: swapTotal === 0 ? null : swapTotal - (kib('SwapFree') ?? 0),
    interfaces: deviceFacts(dev),
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

function deviceFacts(dev: string): InterfaceFacts[] {
  return dev
    .split('\n')
    .slice(2)
    .map((line) => /^\s*([^:]+):\s*(.*)$/.exec(line))
    .filter((match) => match !== null && match[1] !== 'lo')
    .map((match) => {
      const fields = (match?.[2] ?? '').split(/\s+/).map(Number);
      return { name: match?.[1] ?? '', rxBytes: fields[0] ?? null, rxErrors: fields[2] ?? null, txBytes: fields[8] ?? null, txErrors: fields[10] ?? null };
    });
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

async function fileSystemAt({ sys, clock, timeoutMs }: StatsOptions, path: string): Promise<FileSystemFacts> {
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
  return { ...below, usedBytes: number(image?.usedBytes ?? null) ?? below.usedBytes, inodesUsed: number(image?.inodesUsed ?? null) ?? below.inodesUsed };
}
