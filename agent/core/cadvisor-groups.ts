import type { CgroupUsage, IoUsage, PressureOf } from './cgroup-usage.ts';
import type { Labels } from '../../base/metrics-text.ts';
import type { DiskCounts } from './file-systems.ts';
import type { LinkFacts } from './net-dev.ts';
import { family, type Row } from './stats.ts';

/** What is known of a cgroup and of the processes in it. */
export interface GroupFacts {
  /** Below the hierarchy's mount point. */
  readonly path: string;
  readonly atMs: number;
  readonly usage: CgroupUsage;
  /** Null for a cgroup whose processes were not looked at. */
  readonly processes: ProcessFacts | null;
  /** Of its network namespace; empty where nobody looked. */
  readonly network: readonly LinkFacts[];
  /** `254:0` to `/dev/vda`. */
  readonly devices: ReadonlyMap<string, string>;
}

export interface ProcessFacts {
  readonly files: number;
  readonly sockets: number;
  /** Of the first process, where the cgroup has one that stands for it; -1 is unbounded, null is not told. */
  readonly openFilesLimit: number | null;
}

export interface Group {
  readonly labels: Labels;
  readonly facts: GroupFacts;
}

type Pick = (usage: CgroupUsage) => number | null | undefined;

const nanos = (value: number | null): number | null => (value === null ? null : value / 1e9);
const micros = (value: number | undefined): number => (value ?? 0) / 1e6;

/** Name, kind, help and value of the series that have no labels of their own. */
const PLAIN: readonly (readonly [name: string, kind: 'counter' | 'gauge', help: string, pick: Pick])[] = [
  ['cpu_user_seconds_total', 'counter', 'Cumulative user cpu time consumed in seconds.', (one) => nanos(one.userNanos)],
  ['cpu_system_seconds_total', 'counter', 'Cumulative system cpu time consumed in seconds.', (one) => nanos(one.systemNanos)],
  ['memory_cache', 'gauge', 'Number of bytes of page cache memory.', (one) => one.cache],
  ['memory_kernel_usage', 'gauge', 'Size of kernel memory allocated in bytes.', (one) => one.kernel],
  ['memory_total_active_file_bytes', 'gauge', 'Current total active file in bytes.', (one) => one.activeFile],
  ['memory_total_inactive_file_bytes', 'gauge', 'Current total inactive file in bytes.', (one) => one.inactiveFile],
  ['memory_file_dirty_bytes', 'gauge', 'Number of bytes of file cache that has been modified but not yet written back to disk.', (one) => one.reclaim.dirty],
  ['memory_file_writeback_bytes', 'gauge', 'Number of bytes of file cache that is currently being written back to disk.', (one) => one.reclaim.writeback],
  ['memory_pgscan_total', 'counter', 'Cumulative number of pages scanned by the page reclaim algorithm.', (one) => one.reclaim.scanned],
  ['memory_pgsteal_total', 'counter', 'Cumulative number of pages reclaimed by the page reclaim algorithm.', (one) => one.reclaim.stolen],
  ['memory_workingset_refault_file_total', 'counter', 'Cumulative number of refaults of previously evicted file pages.', (one) => one.reclaim.refaultFile],
  ['memory_workingset_refault_anon_total', 'counter', 'Cumulative number of refaults of previously evicted anonymous pages.', (one) => one.reclaim.refaultAnon],
  ['memory_mapped_file', 'gauge', 'Size of memory mapped files in bytes.', (one) => one.mapped],
  ['memory_failcnt', 'counter', 'Number of memory usage hits limits', (one) => one.failures],
  ['memory_max_usage_bytes', 'gauge', 'Maximum memory usage recorded in bytes', (one) => one.most ?? 0],
  ['memory_events_high_total', 'counter', 'Cumulative count of memory.high throttle events for the container', (one) => one.eventsHigh],
  ['memory_events_max_total', 'counter', 'Cumulative count of memory.max limit hit events for the container', (one) => one.eventsMax],
  ['oom_events_total', 'counter', 'Count of out of memory events observed for the container', (one) => one.oomKills],
  ['processes', 'gauge', 'Number of processes running inside the container.', (one) => one.pids.length],
  ['threads', 'gauge', 'Number of threads running inside the container', (one) => one.threads ?? 0],
  ['threads_max', 'gauge', 'Maximum number of threads allowed inside the container, infinity if value is zero', (one) => one.threadsMax ?? 0],
  ['health_state', 'gauge', "The result of the container's health check", () => -1],
];

/** What was asked for: the same at any time, so without a time. */
const SPEC: readonly (readonly [name: string, help: string, pick: Pick])[] = [
  ['cpu_period', 'CPU period of the container.', (one) => one.spec.cpuPeriod],
  ['cpu_quota', 'CPU quota of the container.', (one) => one.spec.cpuQuota],
  ['cpu_shares', 'CPU share of the container.', (one) => one.spec.cpuShares],
  ['memory_limit_bytes', 'Memory limit for the container.', (one) => one.spec.memoryLimit],
  ['memory_reservation_limit_bytes', 'Memory reservation limit for the container.', (one) => one.spec.memoryReservation],
  ['memory_swap_limit_bytes', 'Memory swap limit for the container.', (one) => one.spec.swapLimit],
];

const LIMITED: readonly (readonly [name: string, help: string, pick: Pick])[] = [
  ['periods_total', 'Number of elapsed enforcement period intervals.', (one) => one.throttle?.periods],
  ['throttled_periods_total', 'Number of throttled period intervals.', (one) => one.throttle?.throttled],
  ['throttled_seconds_total', 'Total time duration the container has been throttled.', (one) => nanos(one.throttle?.nanos ?? null)],
  ['burst_periods_total', 'Number of periods when burst occurs.', (one) => one.throttle?.bursts],
  ['burst_seconds_total', 'Total time duration the container has been bursted.', (one) => nanos(one.throttle?.burstNanos ?? null)],
];

const DISK: readonly (readonly [name: string, help: string, operation: string, pick: (io: IoUsage) => number | null])[] = [
  ['reads_bytes_total', 'Cumulative count of bytes read', 'Read', (io) => io.bytes],
  ['reads_total', 'Cumulative count of reads completed', 'Read', (io) => io.count],
  ['writes_bytes_total', 'Cumulative count of bytes written', 'Write', (io) => io.bytes],
  ['writes_total', 'Cumulative count of writes completed', 'Write', (io) => io.count],
];

const LINKS: readonly (readonly [name: string, help: string, pick: (link: LinkFacts) => number])[] = [
  ['receive_bytes_total', 'Cumulative count of bytes received', (link) => link.rxBytes],
  ['receive_errors_total', 'Cumulative count of errors encountered while receiving', (link) => link.rxErrors],
  ['transmit_bytes_total', 'Cumulative count of bytes transmitted', (link) => link.txBytes],
  ['transmit_errors_total', 'Cumulative count of errors encountered while transmitting', (link) => link.txErrors],
  ['receive_packets_total', 'Cumulative count of packets received', (link) => link.rxPackets],
  ['receive_packets_dropped_total', 'Cumulative count of packets dropped while receiving', (link) => link.rxDropped],
  ['transmit_packets_total', 'Cumulative count of packets transmitted', (link) => link.txPackets],
  ['transmit_packets_dropped_total', 'Cumulative count of packets dropped while transmitting', (link) => link.txDropped],
];

/** A file system of the node. */
export interface DiskRow {
  readonly labels: Labels;
  readonly atMs: number;
  readonly capacityBytes: number;
  readonly usedBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
  readonly counts: DiskCounts;
}

const millis = (value: number): number => value / 1000;

const FILE_SYSTEMS: readonly (readonly [name: string, kind: 'counter' | 'gauge', help: string, pick: (one: DiskRow) => number])[] = [
  ['inodes_free', 'gauge', 'Number of available Inodes', (one) => one.inodesFree],
  ['inodes_total', 'gauge', 'Number of Inodes', (one) => one.inodes],
  ['limit_bytes', 'gauge', 'Number of bytes that can be consumed by the container on this filesystem.', (one) => one.capacityBytes],
  ['usage_bytes', 'gauge', 'Number of bytes that are consumed by the container on this filesystem.', (one) => one.usedBytes],
  ['reads_total', 'counter', 'Cumulative count of reads completed', ({ counts }) => counts.reads],
  ['reads_merged_total', 'counter', 'Cumulative count of reads merged', ({ counts }) => counts.readsMerged],
  ['sector_reads_total', 'counter', 'Cumulative count of sector reads completed', ({ counts }) => counts.sectorsRead],
  ['read_seconds_total', 'counter', 'Cumulative count of seconds spent reading', ({ counts }) => millis(counts.readMs)],
  ['writes_total', 'counter', 'Cumulative count of writes completed', ({ counts }) => counts.writes],
  ['writes_merged_total', 'counter', 'Cumulative count of writes merged', ({ counts }) => counts.writesMerged],
  ['sector_writes_total', 'counter', 'Cumulative count of sector writes completed', ({ counts }) => counts.sectorsWritten],
  ['write_seconds_total', 'counter', 'Cumulative count of seconds spent writing', ({ counts }) => millis(counts.writeMs)],
  ['io_current', 'gauge', 'Number of I/Os currently in progress', ({ counts }) => counts.inProgress],
  ['io_time_seconds_total', 'counter', 'Cumulative count of seconds spent doing I/Os', ({ counts }) => millis(counts.busyMs)],
  ['io_time_weighted_seconds_total', 'counter', 'Cumulative weighted I/O time in seconds', ({ counts }) => millis(counts.weightedMs)],
];

/** Series under cAdvisor's names of what cgroups and /proc tell, beyond what CRI tells. `fileSystems`: the node's; `layers`: what containers wrote. */
export function groupMetrics(groups: readonly Group[], nowMs: number, fileSystems: readonly DiskRow[], layers: readonly Row[]): string {
  const rows = (pick: Pick, from: readonly Group[] = groups): Row[] => from.map(({ labels, facts }) => [labels, pick(facts.usage) ?? null, facts.atMs]);
  const limited = groups.filter(({ facts }) => facts.usage.spec.cpuQuota !== null);
  return [
    family(
      'container_last_seen',
      'gauge',
      'Last time a container was seen by the exporter',
      groups.map(({ labels }) => [labels, Math.floor(nowMs / 1000), nowMs]),
    ),
    ...PLAIN.map(([name, kind, help, pick]) => family(`container_${name}`, kind, help, rows(pick))),
    ...SPEC.map(([name, help, pick]) =>
      family(
        `container_spec_${name}`,
        'gauge',
        help,
        groups.map(({ labels, facts }) => [labels, pick(facts.usage) ?? null]),
      ),
    ),
    ...LIMITED.map(([name, help, pick]) => family(`container_cpu_cfs_${name}`, 'counter', help, rows(pick, limited))),
    failures(groups),
    ...disks(groups, fileSystems, layers),
    ...processes(groups),
    ...LINKS.map(([name, help, pick]) =>
      family(
        `container_network_${name}`,
        'counter',
        help,
        groups.flatMap(({ labels, facts }) => facts.network.map((link): Row => [{ ...labels, interface: link.name }, pick(link), facts.atMs])),
      ),
    ),
    ...pressures(groups),
  ].join('');
}

function failures(groups: readonly Group[]): string {
  const rows = groups.flatMap(({ labels, facts }) => {
    const { own, all } = facts.usage.faults;
    const row = (type: string, scope: string, value: number | null): Row => [{ ...labels, failure_type: type, scope }, value, facts.atMs];
    return [
      row('pgfault', 'container', own.minor),
      row('pgfault', 'hierarchy', all.minor),
      row('pgmajfault', 'container', own.major),
      row('pgmajfault', 'hierarchy', all.major),
    ];
  });
  return family('container_memory_failures_total', 'counter', 'Cumulative count of memory allocation failures.', rows);
}

function disks(groups: readonly Group[], fileSystems: readonly DiskRow[], layers: readonly Row[]): string[] {
  const each = (wanted: string | null, row: (io: IoUsage, labels: Labels, facts: GroupFacts) => Row): Row[] =>
    groups.flatMap(({ labels, facts }) =>
      facts.usage.io
        .filter(({ operation }) => wanted === null || operation === wanted)
        .map((io) => row(io, { ...labels, device: facts.devices.get(io.device) ?? '' }, facts)),
    );
  const ofGroups = new Map(DISK.map(([name, , operation, pick]) => [name, each(operation, (io, labels, facts) => [labels, pick(io), facts.atMs])]));
  ofGroups.set('usage_bytes', [...layers]);
  const told = new Set(FILE_SYSTEMS.map(([name]) => name));
  return [
    ...FILE_SYSTEMS.map(([name, kind, help, pick]) =>
      family(`container_fs_${name}`, kind, help, [...(ofGroups.get(name) ?? []), ...fileSystems.map((one): Row => [one.labels, pick(one), one.atMs])]),
    ),
    ...DISK.filter(([name]) => !told.has(name)).map(([name, help]) => family(`container_fs_${name}`, 'counter', help, ofGroups.get(name) ?? [])),
    family(
      'container_blkio_device_usage_total',
      'counter',
      'Blkio Device bytes usage',
      each(null, (io, labels, facts) => {
        const [major = '', minor = ''] = io.device.split(':');
        return [{ ...labels, major, minor, operation: io.operation }, io.bytes, facts.atMs];
      }),
    ),
  ];
}

function processes(groups: readonly Group[]): string[] {
  const rows = (pick: (facts: ProcessFacts) => number | null, more: Labels = {}): Row[] =>
    groups.flatMap(({ labels, facts }) => (facts.processes === null ? [] : [[{ ...labels, ...more }, pick(facts.processes), facts.atMs] as const]));
  return [
    family(
      'container_file_descriptors',
      'gauge',
      'Number of open file descriptors for the container.',
      rows((one) => one.files),
    ),
    family(
      'container_sockets',
      'gauge',
      'Number of open sockets for the container.',
      rows((one) => one.sockets),
    ),
    family(
      'container_ulimits_soft',
      'gauge',
      'Soft ulimit values for the container root process. Unlimited if -1, except priority and nice',
      rows((one) => one.openFilesLimit, { ulimit: 'max_open_files' }),
    ),
  ];
}

/** Of cgroups whose kernel tells pressure: who waited at all, and when nobody could go on. */
function pressures(groups: readonly Group[]): string[] {
  const told = groups.filter(({ facts }) => facts.usage.pressure !== null);
  return (['cpu', 'memory', 'io'] as const).flatMap((resource) => {
    const name = resource === 'io' ? 'IO' : resource === 'cpu' ? 'CPU' : 'memory';
    const rows = (pick: (of: PressureOf) => number): Row[] =>
      told.flatMap(({ labels, facts }) => {
        const of = facts.usage.pressure?.[resource] ?? null;
        return of === null ? [] : [[labels, micros(pick(of)), facts.atMs] as const];
      });
    return [
      family(
        `container_pressure_${resource}_stalled_seconds_total`,
        'counter',
        `Total time duration no tasks in the container could make progress due to ${name} congestion.`,
        rows((of) => of.full.total),
      ),
      family(
        `container_pressure_${resource}_waiting_seconds_total`,
        'counter',
        `Total time duration tasks in the container have waited due to ${name} congestion.`,
        rows((of) => of.some.total),
      ),
    ];
  });
}
