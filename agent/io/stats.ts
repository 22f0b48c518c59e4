import { stat } from 'node:fs/promises';
import { atMost } from '../../base/abort.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { metricText } from '../../base/metrics-text.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { ContainerStats, CpuUsage, IoUsage, MemoryUsage, NetworkUsage, SwapUsage } from '../../proto/cri/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { MachineFacts } from '../core/node-status.ts';
import { cadvisorMetrics, machineMetrics, type CadvisorFacts } from '../core/cadvisor-text.ts';
import type { GroupFacts } from '../core/cadvisor-groups.ts';
import type { Pressure } from '../core/cgroup-usage.ts';
import { criPressure } from '../core/cri-metrics.ts';
import { localVolumes } from '../core/evict-rank.ts';
import { parseImage } from '../core/images.ts';
import { podPaths } from '../core/volumes-paths.ts';
import {
  resourceMetrics,
  podUsage,
  summaryOf,
  type ContainerStatsFacts,
  type InterfaceFacts,
  type NodeStatsFacts,
  type PodStatsFacts,
  type UsageFacts,
  type VolumeStatsFacts,
} from '../core/stats.ts';
import type { ContainerFacts, PodFacts } from '../core/types.ts';
import type { Pods } from '../seams.ts';
import type { CgroupReader, ReadPod, SwapFacts } from './cgroup-usage.ts';
import type { Cri } from './cri.ts';
import { logUsage } from './log-usage.ts';
import { fileSystemAt, readNode, uint } from './node-stats.ts';
import { NodeDisks } from './node-disks.ts';
import { Rates } from './rates.ts';
import { createCriPage, readCriStats, type CriPageOptions, type CriStats } from './stats-cri.ts';

export interface StatsOptions {
  clock: Clock;
  log: Log;
  sys: Pick<Sys, 'readFiles' | 'statfs' | 'diskUsage'>;
  runtime: Pick<Cri['runtime'], 'listPodSandboxStats' | 'listContainerStats'> & CriPageOptions['runtime'];
  images: Pick<Cri['images'], 'imageFsInfo'> & Partial<Pick<Cri['images'], 'listImages'>>;
  pods: Pods;
  nodeName: string;
  rootDir: string;
  machine: MachineFacts;
  timeoutMs: number;
  /** How full a pod's volumes are, as measured last; absent: it is not told. */
  volumes?: (uid: string) => readonly VolumeStatsFacts[];
  /** What cgroups tell beyond the runtime; absent: it is not told. */
  groups?: Pick<CgroupReader, 'read' | 'system' | 'above' | 'swap' | 'root'>;
  /** `PodAndContainerStatsFromCRI`: what pods use is what the runtime says, and nothing is read from their cgroups. */
  fromCri?: boolean;
  /** Where the logs of containers lie; absent: they are not measured. */
  podLogsDir?: string;
}

export interface Stats {
  summary(query: URLSearchParams, signal: AbortSignal): Promise<unknown>;
  resource(signal: AbortSignal): Promise<string>;
  cadvisor(signal: AbortSignal): Promise<string>;
  /** How much disk the logs of each container take, in Prometheus' text form; empty while it is not known. Never waits long, never fails but by `signal`. */
  logs(signal: AbortSignal): Promise<string>;
}

/** One reading serves all who ask within this time: it costs the runtime far more than us. */
const reuseMs = 5_000;
/** Directories of logs are walked no more often than this, however often somebody scrapes. */
const logsReuseMs = 60_000;
/** Who reads the page waits this long for a walk; what takes longer is on the next page. */
const logsWaitMs = 2_000;
/** Each directory has its own deadline. */
const uncut = new AbortController().signal;

interface Reading {
  node: NodeStatsFacts;
  pods: PodStatsFacts[];
  failed: boolean;
  /** The runtime alone told of pods. */
  strict: boolean;
}

/** Usage of the node, its pods and containers, from the runtime and /proc. */
export function createStats(options: StatsOptions): Stats {
  const { clock, log } = options;
  const rates = new Rates();
  // Of their own: who asks for these asks seldom, and a reading for others forgets what it has not seen.
  const systemRates = new Rates();
  const disks = new NodeDisks(options);
  const criPage = createCriPage(options);
  let sandboxImage = '';
  let logsPage = '';
  let walk: { atMs: number; isOver: boolean; work: Promise<void> } | undefined;
  let last: { atMs: number; isOver: boolean; reading: Promise<Reading> } | undefined;

  const read = async (): Promise<Reading> => {
    let failed = false;
    const { pods, strict } = await readPods(options, rates).catch((error: unknown) => {
      failed = true;
      log.error('Failed to read the stats of pods from the runtime', { err: messageOf(error) });
      return { pods: [], strict: options.fromCri === true };
    });
    const [node, swap] = await Promise.all([readNode(options, rates), strict ? null : (options.groups?.swap(readPodsOf(options, pods)) ?? null)]);
    rates.prune();
    return { node, pods: swap === null ? pods : pods.map((pod) => withSwap(pod, swap)), failed, strict };
  };
  const reading = (): Promise<Reading> => {
    // A runtime that is slow is not asked again before it has answered, however many ask us.
    if (last !== undefined && (!last.isOver || clock.monoMs() - last.atMs <= reuseMs)) return last.reading;
    const mine = { atMs: clock.monoMs(), isOver: false, reading: read().finally(() => (mine.isOver = true)) };
    last = mine;
    return mine.reading;
  };

  /** For all who ask meanwhile: none of them ends it by leaving. */
  const walkLogs = async (): Promise<void> => {
    try {
      const { pods, failed } = await reading();
      logsPage = failed ? '' : logsText(await withLogs(options, pods, uncut));
      if (failed) walk = undefined;
    } catch (error) {
      walk = undefined;
      log.error('Failed to measure the logs of containers', { err: messageOf(error) });
    }
  };

  return {
    async summary(query, signal) {
      const { node, pods, strict } = await reading();
      const isSmall = query.get('only_cpu_and_memory') === 'true';
      const [system, groups] = await Promise.all([
        options.groups?.system() ?? [],
        strict ? null : (options.groups?.read(readPodsOf(options, pods), false) ?? null),
      ]);
      const systemContainers = system.map((one) => ({
        ...one,
        cpuNanoCores: systemRates.nanoCores(one.name, one.atMs, one.cpuNanoSeconds, one.startedAtMs),
      }));
      const whole = groups === null ? pods : pods.map((pod) => withPressure(pod, groups));
      const measured = isSmall ? whole : await withLogs(options, whole, signal);
      return summaryOf({ ...node, systemContainers, ...(options.groups === undefined ? {} : { pressure: null }) }, measured, isSmall);
    },
    async resource() {
      const { node, pods, failed } = await reading();
      return resourceMetrics(node, pods, failed);
    },
    async logs(signal) {
      if (walk === undefined || (walk.isOver && clock.monoMs() - walk.atMs > logsReuseMs)) {
        const mine = { atMs: clock.monoMs(), isOver: false, work: walkLogs().finally(() => (mine.isOver = true)) };
        walk = mine;
      }
      if (!walk.isOver) await atMost(clock, walk.work, logsWaitMs, signal);
      return logsPage;
    },
    async cadvisor() {
      const told = options.fromCri === true ? await criPage() : null;
      if (told !== null) return told + machineMetrics({ machine: options.machine, ...(await packagesOf(options)) });
      const { node, pods } = await reading();
      sandboxImage ||= await pinnedImage(options);
      const [groups, above, fileSystems, cpus] = await Promise.all([
        options.groups?.read(readPodsOf(options, pods), true) ?? new Map<string, GroupFacts>(),
        options.groups?.above() ?? [],
        disks.read(),
        packagesOf(options),
      ]);
      const facts: CadvisorFacts = { groups, above, fileSystems, machine: options.machine, ...cpus, sandboxImage, nowMs: clock.nowMs() };
      return cadvisorMetrics(node, pods, facts);
    },
  };
}

/** Pods that the agent has and the runtime told of, as the reader of cgroups wants them. */
function readPodsOf({ pods }: StatsOptions, told: readonly PodStatsFacts[]): ReadPod[] {
  return told.flatMap(({ uid, sandboxId, containers }) => {
    const pod = pods.byUid(uid);
    return pod === undefined ? [] : [{ pod, sandbox: sandboxId, containers: containers.map(({ id }) => id) }];
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

/** Swap from cgroups, where the runtime tells of none. */
function withSwap(pod: PodStatsFacts, swap: ReadonlyMap<string, SwapFacts>): PodStatsFacts {
  const fill = <T extends UsageFacts>(usage: T, key: string): T => {
    const own = swap.get(key);
    return own === undefined ? usage : { ...usage, swapBytes: usage.swapBytes ?? own.usedBytes, swapAvailableBytes: own.availableBytes };
  };
  const containers = pod.containers.map((container) => fill(container, container.id));
  const total = podUsage({ ...pod, containers });
  return { ...pod, usage: total === null ? null : fill(total, pod.uid), containers };
}

/** The image that the runtime keeps for its sandboxes; '' when it names none. */
async function pinnedImage({ images, timeoutMs }: StatsOptions): Promise<string> {
  const all = await images.listImages?.({}, { timeoutMs }).then(
    (answer) => answer.images,
    () => [],
  );
  return all?.find(({ pinned }) => pinned)?.repoTags[0] ?? '';
}

/** How many packages and cores the machine's processors are; each processor is a core where it does not say. */
async function packagesOf({ sys, machine }: StatsOptions): Promise<{ cores: number; sockets: number }> {
  const [bytes] = await sys.readFiles(['/proc/cpuinfo'], { maxBytesEach: 1 << 20 });
  const text = Buffer.from(bytes ?? []).toString();
  const sockets = new Set([...text.matchAll(/^physical id\s*: (\d+)$/gm)].map(([, id]) => id));
  const cores = new Set([...text.matchAll(/^physical id\s*: (\d+)$[^]*?^core id\s*: (\d+)$/gm)].map(([, socket, core]) => `${socket} ${core}`));
  return { cores: cores.size || machine.cpus, sockets: sockets.size || 1 };
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
      const use = await logUsage(sys, path, timeoutMs, signal).catch(() => null);
      containers.push(use === null ? container : { ...container, logs: { ...disk, usedBytes: use.bytes, inodesUsed: use.inodes } });
    }
    const known = options.pods.byUid(pod.uid);
    const hosts = await stat(podPaths(options.rootDir, pod.uid).etcHosts).catch(() => null);
    return {
      ...pod,
      containers,
      ephemeralVolumes: known === undefined ? [] : localVolumes(known),
      etcHostsBytes: hosts === null ? null : hosts.blocks * 512,
    };
  };
  for (let at = 0; at < pods.length; at += walksMax) out.push(...(await Promise.all(pods.slice(at, at + walksMax).map(measure))));
  return out;
}

function logsText(pods: readonly PodStatsFacts[]): string {
  const samples = pods.flatMap(({ uid, namespace, name, containers }) =>
    containers.flatMap(({ name: container, logs }) =>
      typeof logs?.usedBytes === 'number' ? [{ labels: { container, namespace, pod: name, uid }, value: logs.usedBytes }] : [],
    ),
  );
  return metricText('kubelet_container_log_filesystem_used_bytes', 'gauge', "[ALPHA] Bytes used by the container's logs on the filesystem.", samples);
}

async function readPods(options: StatsOptions, rates: Rates): Promise<{ pods: PodStatsFacts[]; strict: boolean }> {
  const facts = options.pods.allFacts();
  const told = await readCriStats(options.runtime, options.fromCri === true, options.timeoutMs);
  const all = facts.map((pod) => podStats(pod, options.pods.byUid(pod.uid), told, rates)).filter((pod) => pod !== null);
  return { pods: all.map((pod) => ({ ...pod, volumes: options.volumes?.(pod.uid) ?? [] })), strict: told.strict };
}

function podStats(pod: PodFacts, wanted: Pod | undefined, { containers, sandboxes, strict }: CriStats, rates: Rates): PodStatsFacts | null {
  const sandbox = pod.sandboxes.find(({ ready }) => ready);
  if (sandbox === undefined) return null;
  const whole = sandboxes.find(({ attributes }) => attributes?.id === sandbox.id)?.linux ?? null;
  const own = pod.containers.filter(({ state, sandboxId }) => state === 'running' && sandboxId === sandbox.id);
  return {
    uid: pod.uid,
    namespace: pod.namespace,
    name: pod.name,
    sandboxId: sandbox.id,
    hostNetwork: wanted?.spec.hostNetwork === true,
    startedAtMs: sandbox.createdAtMs,
    usage: whole === null ? null : usageOf({ ...whole, swap: null }, `s ${sandbox.id}`, rates, strict),
    interfaces: interfacesOf(whole?.network ?? null),
    processCount: uint(whole?.process?.processCount ?? null),
    containers: own.flatMap((container) => {
      const stats = containers.find(({ attributes }) => attributes?.id === container.id);
      return stats === undefined ? [] : [containerStats(container, imageName(wanted, container), stats, rates, strict)];
    }),
  };
}

/** As the runtime calls what the pod asks for: with the registry that a short name stands for. */
function imageName(pod: Pod | undefined, { name, image }: ContainerFacts): string {
  const spec = [...(pod?.spec.initContainers ?? []), ...(pod?.spec.containers ?? [])].find((each) => each.name === name);
  const parsed = parseImage(spec?.image ?? '');
  if (typeof parsed === 'string') return image;
  return `${parsed.repository}${parsed.tag === '' ? '' : `:${parsed.tag}`}${parsed.digest === '' ? '' : `@${parsed.digest}`}`;
}

function containerStats(container: ContainerFacts, image: string, stats: ContainerStats, rates: Rates, strict: boolean): ContainerStatsFacts {
  return {
    ...usageOf(stats, `c ${container.id}`, rates, strict),
    name: container.name,
    id: container.id,
    image,
    createdAtMs: container.createdAtMs,
    // A list of containers does not tell when they started, which is at once after they were made.
    startedAtMs: container.startedAtMs === 0 ? container.createdAtMs : container.startedAtMs,
    rootfsUsedBytes: uint(stats.writableLayer?.usedBytes ?? null),
    rootfsInodesUsed: uint(stats.writableLayer?.inodesUsed ?? null),
  };
}

function usageOf({ cpu, memory, swap, io }: Pick<ContainerStats, 'cpu' | 'memory' | 'swap' | 'io'>, key: string, rates: Rates, strict: boolean): UsageFacts {
  const atMs = Number(cpu?.timestamp ?? memory?.timestamp ?? 0) / 1e6;
  const nanos = uint(cpu?.usageCoreNanoSeconds ?? null);
  const told = uint(cpu?.usageNanoCores ?? null);
  const rate = rates.nanoCores(key, atMs, nanos);
  return {
    atMs,
    cpuNanoSeconds: nanos,
    cpuNanoCores: told === null || told === 0 ? (rate ?? told) : told,
    memory: {
      workingSetBytes: uint(memory?.workingSetBytes ?? null),
      // A runtime that says 0 means that there is no limit.
      availableBytes: uint(memory?.availableBytes ?? null) || null,
      usageBytes: uint(memory?.usageBytes ?? null),
      rssBytes: uint(memory?.rssBytes ?? null),
      pageFaults: uint(memory?.pageFaults ?? null),
      majorPageFaults: uint(memory?.majorPageFaults ?? null),
    },
    swapBytes: uint(swap?.swapUsageBytes ?? null),
    ...(strict ? toldAlone(cpu, memory, io, swap) : {}),
  };
}

/** What cgroups tell of otherwise. */
function toldAlone(cpu: CpuUsage | null, memory: MemoryUsage | null, io: IoUsage | null, swap: SwapUsage | null): Partial<UsageFacts> {
  const pressure = criPressure(cpu?.psi, memory?.psi, io?.psi);
  return { swapAvailableBytes: uint(swap?.swapAvailableBytes ?? null), ...(pressure === undefined ? {} : { pressure }) };
}

function interfacesOf(network: NetworkUsage | null): InterfaceFacts[] {
  if (network === null) return [];
  const { defaultInterface: first } = network;
  // Some runtimes name the default interface among the others again.
  const all = first === null ? network.interfaces : [first, ...network.interfaces.filter(({ name }) => name !== first.name)];
  return all.map(({ name, rxBytes, rxErrors, txBytes, txErrors }) => ({
    name,
    rxBytes: uint(rxBytes),
    rxErrors: uint(rxErrors),
    txBytes: uint(txBytes),
    txErrors: uint(txErrors),
  }));
}
