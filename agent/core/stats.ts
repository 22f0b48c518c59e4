import { metricText, type Labels, type Sample } from '../../base/metrics-text.ts';
import type { Pressure, PressureOf } from './cgroup-usage.ts';
import { timeText } from '../../base/time.ts';

/** What is measured of one container, sandbox or node. Null is "not told". */
export interface UsageFacts {
  readonly atMs: number;
  readonly cpuNanoSeconds: number | null;
  readonly cpuNanoCores: number | null;
  readonly memory: {
    readonly workingSetBytes: number | null;
    readonly availableBytes: number | null;
    readonly usageBytes: number | null;
    readonly rssBytes: number | null;
    readonly pageFaults: number | null;
    readonly majorPageFaults: number | null;
  };
  readonly swapBytes: number | null;
  /** How much more swap there may be; null or absent: unbounded or not told. */
  readonly swapAvailableBytes?: number | null;
  /** Absent: nobody looked. Without the kernel's PSI for cgroups all of it is nought, as upstream tells it. */
  readonly pressure?: Pressure | null;
}

/** Cgroups beside the pods' own that a kubelet tells of: `pods`, `kubelet`, `runtime`, `misc`. */
export interface SystemContainerFacts extends UsageFacts {
  readonly name: string;
  readonly startedAtMs: number;
}

export interface FileSystemFacts {
  readonly atMs: number;
  readonly capacityBytes: number | null;
  readonly availableBytes: number | null;
  readonly usedBytes: number | null;
  readonly inodes: number | null;
  readonly inodesFree: number | null;
  readonly inodesUsed: number | null;
}

/** How full a volume of a pod is. */
export interface VolumeStatsFacts extends FileSystemFacts {
  readonly name: string;
  readonly claim: { readonly namespace: string; readonly name: string } | null;
}

export interface InterfaceFacts {
  readonly name: string;
  readonly rxBytes: number | null;
  readonly rxErrors: number | null;
  readonly txBytes: number | null;
  readonly txErrors: number | null;
}

export interface ContainerStatsFacts extends UsageFacts {
  readonly name: string;
  readonly id: string;
  /** As the runtime names what the pod asked for. */
  readonly image: string;
  readonly createdAtMs: number;
  readonly startedAtMs: number;
  readonly rootfsUsedBytes: number | null;
  readonly rootfsInodesUsed: number | null;
  /** What the files of its log take; absent: not measured. */
  readonly logs?: FileSystemFacts;
}

export interface PodStatsFacts {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly sandboxId: string;
  readonly hostNetwork: boolean;
  readonly startedAtMs: number;
  /** Of the whole sandbox; null when the runtime tells of containers only. */
  readonly usage: UsageFacts | null;
  readonly interfaces: readonly InterfaceFacts[];
  readonly processCount: number | null;
  readonly containers: readonly ContainerStatsFacts[];
  readonly volumes?: readonly VolumeStatsFacts[];
  /** Names of those whose contents are the pod's own storage on the node's disk. */
  readonly ephemeralVolumes?: readonly string[];
  /** Bytes that its /etc/hosts takes; absent or null: it has none of its own. */
  readonly etcHostsBytes?: number | null;
}

export interface NodeStatsFacts extends UsageFacts {
  readonly nodeName: string;
  readonly startedAtMs: number;
  readonly interfaces: readonly InterfaceFacts[];
  readonly defaultInterface: string;
  readonly fs: FileSystemFacts;
  readonly imageFs: FileSystemFacts | null;
  readonly maxPids: number | null;
  readonly processes: number | null;
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly systemContainers?: readonly SystemContainerFacts[];
}

const calm = { total: 0, avg10: 0, avg60: 0, avg300: 0 };
const noPressure: PressureOf = { full: calm, some: calm };

/** Without what was not told. */
function known(fields: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}

function usage(facts: UsageFacts): Record<string, unknown> {
  const time = timeText(facts.atMs);
  const { pressure } = facts;
  const psi = (of: PressureOf | null | undefined): object => (pressure === undefined ? {} : { psi: of ?? noPressure });
  return {
    cpu: { ...known({ time, usageNanoCores: facts.cpuNanoCores, usageCoreNanoSeconds: facts.cpuNanoSeconds }), ...psi(pressure?.cpu) },
    memory: { ...known({ time, ...facts.memory }), ...psi(pressure?.memory) },
    ...(pressure === undefined ? {} : { io: { time, ...psi(pressure?.io) } }),
    ...(facts.swapBytes === null ? {} : { swap: known({ time, swapAvailableBytes: facts.swapAvailableBytes, swapUsageBytes: facts.swapBytes }) }),
  };
}

function fileSystem(facts: FileSystemFacts): Record<string, unknown> {
  const { atMs, ...rest } = facts;
  return known({ time: timeText(atMs), ...rest });
}

function network(atMs: number, interfaces: readonly InterfaceFacts[], defaultInterface: string): Record<string, unknown> {
  const shown = interfaces.map(({ name, rxBytes, rxErrors, txBytes, txErrors }) => ({ name, ...known({ rxBytes, rxErrors, txBytes, txErrors }) }));
  const main = shown.find(({ name }) => name === defaultInterface) ?? { name: '' };
  return { time: timeText(atMs), ...main, interfaces: shown };
}

/** Sums of containers, for a sandbox of which only they are known. */
export function podUsage(pod: PodStatsFacts): UsageFacts | null {
  if (pod.usage !== null) return pod.usage;
  const [first] = pod.containers;
  if (first === undefined) return null;
  const sum = (pick: (facts: UsageFacts) => number | null): number | null => {
    const values = pod.containers.map(pick).filter((value) => value !== null);
    return values.length === 0 ? null : values.reduce((total, value) => total + value, 0);
  };
  return {
    atMs: Math.max(...pod.containers.map(({ atMs }) => atMs)),
    cpuNanoSeconds: sum((each) => each.cpuNanoSeconds),
    cpuNanoCores: sum((each) => each.cpuNanoCores),
    memory: {
      workingSetBytes: sum((each) => each.memory.workingSetBytes),
      availableBytes: sum((each) => each.memory.availableBytes),
      usageBytes: sum((each) => each.memory.usageBytes),
      rssBytes: sum((each) => each.memory.rssBytes),
      pageFaults: sum((each) => each.memory.pageFaults),
      majorPageFaults: sum((each) => each.memory.majorPageFaults),
    },
    swapBytes: sum((each) => each.swapBytes),
  };
}

/** /stats/summary (stats/v1alpha1). */
export function summaryOf(node: NodeStatsFacts, pods: readonly PodStatsFacts[], onlyCpuAndMemory: boolean): unknown {
  return {
    node: {
      nodeName: node.nodeName,
      systemContainers: (node.systemContainers ?? []).map((one) => ({ name: one.name, startTime: timeText(one.startedAtMs), ...usage(one) })),
      startTime: timeText(node.startedAtMs),
      ...usage(node),
      ...(onlyCpuAndMemory
        ? {}
        : {
            network: network(node.atMs, node.interfaces, node.defaultInterface),
            fs: fileSystem(node.fs),
            runtime: node.imageFs === null ? {} : { imageFs: fileSystem(node.imageFs), containerFs: fileSystem(node.imageFs) },
            rlimit: known({ time: timeText(node.atMs), maxpid: node.maxPids, curproc: node.processes }),
          }),
    },
    pods: pods.map((pod) => podSummary(pod, node, onlyCpuAndMemory)),
  };
}

function volumeSummary({ name, claim, ...fs }: VolumeStatsFacts): unknown {
  return { ...fileSystem(fs), name, ...(claim === null ? {} : { pvcRef: { name: claim.name, namespace: claim.namespace } }) };
}

function podSummary(pod: PodStatsFacts, { imageFs, interfaces }: NodeStatsFacts, onlyCpuAndMemory: boolean): unknown {
  const total = podUsage(pod);
  const local = (pick: (volume: VolumeStatsFacts) => number | null): number =>
    (pod.volumes ?? []).filter(({ name }) => pod.ephemeralVolumes?.includes(name) === true).reduce((sum, volume) => sum + (pick(volume) ?? 0), 0);
  const disk = (used: number | null, inodesUsed: number | null, atMs: number) =>
    known({
      time: timeText(atMs),
      availableBytes: imageFs?.availableBytes,
      capacityBytes: imageFs?.capacityBytes,
      usedBytes: used,
      inodesFree: imageFs?.inodesFree,
      inodes: imageFs?.inodes,
      inodesUsed,
    });
  return {
    podRef: { name: pod.name, namespace: pod.namespace, uid: pod.uid },
    startTime: timeText(pod.startedAtMs),
    containers: pod.containers.map((container) => ({
      name: container.name,
      startTime: timeText(container.startedAtMs),
      ...usage(container),
      ...(onlyCpuAndMemory
        ? {}
        : {
            rootfs: disk(container.rootfsUsedBytes, container.rootfsInodesUsed, container.atMs),
            ...(container.logs === undefined ? {} : { logs: fileSystem(container.logs) }),
          }),
    })),
    ...(total === null ? {} : usage(total)),
    ...(onlyCpuAndMemory || (pod.volumes ?? []).length === 0 ? {} : { volume: pod.volumes?.map(volumeSummary) }),
    ...(onlyCpuAndMemory || total === null
      ? {}
      : {
          network: network(total.atMs, pod.hostNetwork ? interfaces : pod.interfaces, 'eth0'),
          'ephemeral-storage': disk(
            pod.containers.reduce((sum, each) => sum + (each.rootfsUsedBytes ?? 0) + (each.logs?.usedBytes ?? 0), 0) +
              local((volume) => volume.usedBytes) +
              (pod.etcHostsBytes ?? 0),
            pod.containers.reduce((sum, each) => sum + (each.rootfsInodesUsed ?? 0) + (each.logs?.inodesUsed ?? 0), 0) +
              local((volume) => volume.inodesUsed) +
              (pod.etcHostsBytes === undefined || pod.etcHostsBytes === null ? 0 : 1),
            total.atMs,
          ),
          ...(pod.processCount === null ? {} : { process_stats: { process_count: pod.processCount } }),
        }),
  };
}

export type Row = readonly [labels: Labels, value: number | null, atMs?: number];

/** One metric with a sample for each row that has a value. */
export function family(name: string, kind: 'counter' | 'gauge', help: string, rows: readonly Row[]): string {
  const samples = rows
    .filter(([, value]) => value !== null)
    .map(([labels, value, atMs]): Sample => ({ labels, value: value ?? 0, ...(atMs === undefined ? {} : { atMs }) }));
  return metricText(name, kind, help, samples);
}

export const seconds = (nanos: number | null): number | null => (nanos === null ? null : nanos / 1e9);

/** /metrics/resource: what metrics-server reads. */
export function resourceMetrics(node: NodeStatsFacts, pods: readonly PodStatsFacts[], failed: boolean): string {
  const containers = pods.flatMap((pod) =>
    pod.containers.map((container) => ({ labels: { container: container.name, namespace: pod.namespace, pod: pod.name }, container })),
  );
  const wholes = pods.flatMap((pod) => {
    const total = podUsage(pod);
    return total === null ? [] : [{ labels: { namespace: pod.namespace, pod: pod.name }, total }];
  });
  const error: Row[] = [[{}, failed ? 1 : 0]];
  return [
    family(
      'container_cpu_usage_seconds_total',
      'counter',
      '[STABLE] Cumulative cpu time consumed by the container in core-seconds',
      containers.map(({ labels, container }) => [labels, seconds(container.cpuNanoSeconds), container.atMs]),
    ),
    family(
      'container_memory_working_set_bytes',
      'gauge',
      '[STABLE] Current working set of the container in bytes',
      containers.map(({ labels, container }) => [labels, container.memory.workingSetBytes, container.atMs]),
    ),
    family(
      'container_start_time_seconds',
      'gauge',
      '[STABLE] Start time of the container since unix epoch in seconds',
      containers.map(({ labels, container }) => [labels, container.startedAtMs / 1000]),
    ),
    family(
      'container_swap_limit_bytes',
      'gauge',
      '[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems',
      containers.map(({ labels, container: { swapBytes, swapAvailableBytes = null, atMs } }) => [
        labels,
        swapAvailableBytes === null ? null : swapAvailableBytes + (swapBytes ?? 0),
        atMs,
      ]),
    ),
    family(
      'container_swap_usage_bytes',
      'gauge',
      '[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems',
      containers.map(({ labels, container }) => [labels, container.swapBytes, container.atMs]),
    ),
    family('node_cpu_usage_seconds_total', 'counter', '[STABLE] Cumulative cpu time consumed by the node in core-seconds', [
      [{}, seconds(node.cpuNanoSeconds), node.atMs],
    ]),
    family('node_memory_working_set_bytes', 'gauge', '[STABLE] Current working set of the node in bytes', [[{}, node.memory.workingSetBytes, node.atMs]]),
    family('node_swap_usage_bytes', 'gauge', '[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems', [
      [{}, node.swapBytes, node.atMs],
    ]),
    family(
      'pod_cpu_usage_seconds_total',
      'counter',
      '[STABLE] Cumulative cpu time consumed by the pod in core-seconds',
      wholes.map(({ labels, total }) => [labels, seconds(total.cpuNanoSeconds), total.atMs]),
    ),
    family(
      'pod_memory_working_set_bytes',
      'gauge',
      '[STABLE] Current working set of the pod in bytes',
      wholes.map(({ labels, total }) => [labels, total.memory.workingSetBytes, total.atMs]),
    ),
    family(
      'pod_swap_usage_bytes',
      'gauge',
      '[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems',
      wholes.map(({ labels, total }) => [labels, total.swapBytes, total.atMs]),
    ),
    family('resource_scrape_error', 'gauge', '[STABLE] 1 if there was an error while getting container metrics, 0 otherwise', error),
  ].join('');
}
