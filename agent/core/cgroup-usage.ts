import { sharesOfWeight } from './cgroups.ts';

/** What the kernel tells of one cgroup beyond what CRI has fields for; null is "not told". */
export interface CgroupUsage {
  readonly cpuNanos: number | null;
  readonly userNanos: number | null;
  readonly systemNanos: number | null;
  readonly throttle: {
    readonly periods: number;
    readonly throttled: number;
    readonly nanos: number;
    readonly bursts: number;
    readonly burstNanos: number;
  } | null;
  readonly cache: number | null;
  readonly rss: number | null;
  readonly mapped: number | null;
  readonly swap: number | null;
  readonly usage: number | null;
  readonly workingSet: number | null;
  readonly activeFile: number | null;
  readonly inactiveFile: number | null;
  /** Of the kernel for this cgroup; 0 where version 2 counts it with the rest. */
  readonly kernel: number;
  readonly reclaim: Reclaim;
  readonly most: number | null;
  readonly failures: number | null;
  /** Faults of the cgroup alone, and with those below it. */
  readonly faults: { readonly own: Faults; readonly all: Faults };
  readonly eventsHigh: number;
  readonly eventsMax: number;
  readonly oomKills: number;
  readonly threads: number | null;
  /** 0: unbounded. */
  readonly threadsMax: number | null;
  readonly pids: readonly number[];
  readonly io: readonly IoUsage[];
  readonly spec: CgroupSpec;
  readonly pressure: Pressure | null;
}

/** What version 2 tells of its page cache; all of it is 0 with version 1. */
export interface Reclaim {
  readonly dirty: number;
  readonly writeback: number;
  readonly scanned: number;
  readonly stolen: number;
  readonly refaultFile: number;
  readonly refaultAnon: number;
}

interface Faults {
  readonly minor: number | null;
  readonly major: number | null;
}

export interface IoUsage {
  /** `254:0`. */
  readonly device: string;
  /** Read, Write, Sync, Async, Discard, Total. */
  readonly operation: string;
  readonly bytes: number | null;
  readonly count: number | null;
}

/** Limits as cAdvisor tells them: 0 is unbounded. */
export interface CgroupSpec {
  readonly cpuShares: number | null;
  readonly cpuPeriod: number | null;
  readonly cpuQuota: number | null;
  readonly memoryLimit: number;
  readonly memoryReservation: number;
  readonly swapLimit: number;
  /** Most bytes of swap; null is unbounded or not told. */
  readonly swapMax: number | null;
}

/** Pressure stall information (Documentation/accounting/psi.rst). */
export interface PressureData {
  readonly total: number;
  readonly avg10: number;
  readonly avg60: number;
  readonly avg300: number;
}
export interface PressureOf {
  readonly full: PressureData;
  readonly some: PressureData;
}
export interface Pressure {
  readonly cpu: PressureOf | null;
  readonly memory: PressureOf | null;
  readonly io: PressureOf | null;
}

/** Files of one cgroup by controller (version 1) or altogether (version 2). */
const V1 = {
  cpuacct: ['cpuacct.stat', 'cpuacct.usage'],
  cpu: ['cpu.stat', 'cpu.shares', 'cpu.cfs_period_us', 'cpu.cfs_quota_us'],
  memory: [
    'memory.stat',
    'memory.usage_in_bytes',
    'memory.max_usage_in_bytes',
    'memory.failcnt',
    'memory.kmem.usage_in_bytes',
    'memory.limit_in_bytes',
    'memory.soft_limit_in_bytes',
    'memory.memsw.limit_in_bytes',
    'memory.oom_control',
    'cgroup.procs',
  ],
  pids: ['pids.current', 'pids.max'],
  blkio: ['blkio.throttle.io_service_bytes', 'blkio.throttle.io_serviced'],
} as const;
const V2 = [
  'cpu.stat',
  'cpu.weight',
  'cpu.max',
  'memory.stat',
  'memory.current',
  'memory.peak',
  'memory.max',
  'memory.low',
  'memory.swap.current',
  'memory.swap.max',
  'memory.events',
  'pids.current',
  'pids.max',
  'io.stat',
  'cgroup.procs',
  'cpu.pressure',
  'memory.pressure',
  'io.pressure',
] as const;

/** Where the files of a cgroup are: `directories` are its own in each hierarchy, in the layout's order. */
export function cgroupUsageFiles(
  version: 1 | 2,
  hierarchies: readonly { readonly controllers: readonly string[] }[],
  directories: readonly string[],
): string[] {
  if (version === 2) return V2.map((name) => `${directories[0] ?? ''}/${name}`);
  return Object.entries(V1).flatMap(([controller, names]) => {
    const at = hierarchies.findIndex((one) => one.controllers.includes(controller));
    return names.map((name) => (at < 0 ? '' : `${directories[at] ?? ''}/${name}`));
  });
}

/** The usage that the texts of `cgroupUsageFiles` tell, in that order; null when the cgroup is not there. */
export function cgroupUsage(version: 1 | 2, texts: readonly string[]): CgroupUsage | null {
  const names: readonly string[] = version === 1 ? Object.values(V1).flat() : V2;
  const text = (name: string): string => texts[names.indexOf(name)] ?? '';
  if (text('memory.stat') === '' && text('cpu.stat') === '') return null;
  return version === 1 ? usageOfV1(text) : usageOfV2(text);
}

type Text = (name: string) => string;

/** Hundredths of a second, as the kernel counts for its users. */
const TICK_NANOS = 10_000_000;
/** More than any machine has: how version 1 says "unbounded", rounded to pages. */
const UNBOUNDED = 2 ** 62;

const whole = (text: string): number | null => (/^\d+\s*$/.test(text) ? Number(text) : null);
const limit = (text: string): number => {
  const value = whole(text) ?? 0;
  return value >= UNBOUNDED ? 0 : value;
};

const swapMax = (text: string): number | null => {
  const value = whole(text);
  return value === null || value >= UNBOUNDED ? null : value;
};

/** Files that tell of swap alone, in the cgroup's directory of the memory controller. */
export const swapFiles = (version: 1 | 2): readonly [usage: string, most: string] =>
  version === 1 ? ['memory.stat', 'memory.memsw.limit_in_bytes'] : ['memory.swap.current', 'memory.swap.max'];

/** Bytes of swap in use, and how many more there may be (null: unbounded), from the texts of `swapFiles`; null when the cgroup is not there. */
export function swapOf(version: 1 | 2, usage: string, most: string): { readonly usedBytes: number; readonly availableBytes: number | null } | null {
  const usedBytes = version === 1 ? (usage === '' ? null : (pairs(usage)('total_swap') ?? 0)) : whole(usage);
  if (usedBytes === null) return null;
  const bound = swapMax(most);
  return { usedBytes, availableBytes: bound === null ? null : Math.max(0, bound - usedBytes) };
}

/** `key value` lines. */
function pairs(text: string): (key: string) => number | null {
  const found = new Map(
    text
      .split('\n')
      .map((line) => line.split(' '))
      .filter(([key, value]) => key !== undefined && value !== undefined)
      .map(([key = '', value]) => [key, Number(value)] as const),
  );
  return (key) => found.get(key) ?? null;
}

const pidsIn = (text: string): number[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map(Number);

const without = (usage: number | null, inactive: number | null): number | null => (usage === null ? null : Math.max(0, usage - (inactive ?? 0)));

function usageOfV1(text: Text): CgroupUsage {
  const [stat, cpu, account] = [pairs(text('memory.stat')), pairs(text('cpu.stat')), pairs(text('cpuacct.stat'))];
  const ticks = (name: string): number | null => {
    const value = account(name);
    return value === null ? null : value * TICK_NANOS;
  };
  const usage = whole(text('memory.usage_in_bytes'));
  const quota = Number(text('cpu.cfs_quota_us').trim() || -1);
  return {
    cpuNanos: whole(text('cpuacct.usage')),
    userNanos: ticks('user'),
    systemNanos: ticks('system'),
    throttle: throttle(cpu, cpu('throttled_time'), cpu('burst_time')),
    cache: stat('total_cache'),
    rss: stat('total_rss'),
    mapped: stat('total_mapped_file'),
    swap: stat('total_swap') ?? 0,
    usage,
    workingSet: without(usage, stat('total_inactive_file')),
    activeFile: stat('total_active_file'),
    inactiveFile: stat('total_inactive_file'),
    kernel: whole(text('memory.kmem.usage_in_bytes')) ?? 0,
    reclaim: { dirty: 0, writeback: 0, scanned: 0, stolen: 0, refaultFile: 0, refaultAnon: 0 },
    most: whole(text('memory.max_usage_in_bytes')),
    failures: whole(text('memory.failcnt')),
    faults: { own: { minor: stat('pgfault'), major: stat('pgmajfault') }, all: { minor: stat('total_pgfault'), major: stat('total_pgmajfault') } },
    eventsHigh: 0,
    eventsMax: 0,
    oomKills: pairs(text('memory.oom_control'))('oom_kill') ?? 0,
    threads: whole(text('pids.current')),
    threadsMax: whole(text('pids.max')) ?? 0,
    pids: pidsIn(text('cgroup.procs')),
    io: ioOfV1(text('blkio.throttle.io_service_bytes'), text('blkio.throttle.io_serviced')),
    spec: {
      cpuShares: whole(text('cpu.shares')),
      cpuPeriod: whole(text('cpu.cfs_period_us')),
      cpuQuota: quota > 0 ? quota : null,
      memoryLimit: limit(text('memory.limit_in_bytes')),
      memoryReservation: limit(text('memory.soft_limit_in_bytes')),
      swapLimit: limit(text('memory.memsw.limit_in_bytes')),
      swapMax: swapMax(text('memory.memsw.limit_in_bytes')),
    },
    pressure: null,
  };
}

function usageOfV2(text: Text): CgroupUsage {
  const [stat, cpu, events] = [pairs(text('memory.stat')), pairs(text('cpu.stat')), pairs(text('memory.events'))];
  const micros = (name: string): number | null => {
    const value = cpu(name);
    return value === null ? null : value * 1000;
  };
  const usage = whole(text('memory.current'));
  const faults = { minor: stat('pgfault'), major: stat('pgmajfault') };
  const [quota = '', period = ''] = text('cpu.max').trim().split(' ');
  const weight = whole(text('cpu.weight'));
  return {
    cpuNanos: micros('usage_usec'),
    userNanos: micros('user_usec'),
    systemNanos: micros('system_usec'),
    throttle: throttle(cpu, micros('throttled_usec'), micros('burst_usec')),
    cache: stat('file'),
    rss: stat('anon'),
    mapped: stat('file_mapped'),
    swap: whole(text('memory.swap.current')) ?? 0,
    usage,
    workingSet: without(usage, stat('inactive_file')),
    activeFile: stat('active_file'),
    inactiveFile: stat('inactive_file'),
    kernel: 0,
    reclaim: {
      dirty: stat('file_dirty') ?? 0,
      writeback: stat('file_writeback') ?? 0,
      scanned: stat('pgscan') ?? 0,
      stolen: stat('pgsteal') ?? 0,
      refaultFile: stat('workingset_refault_file') ?? 0,
      refaultAnon: stat('workingset_refault_anon') ?? 0,
    },
    most: whole(text('memory.peak')),
    failures: events('max') ?? 0,
    faults: { own: faults, all: faults },
    eventsHigh: events('high') ?? 0,
    eventsMax: events('max') ?? 0,
    oomKills: events('oom_kill') ?? 0,
    threads: whole(text('pids.current')),
    threadsMax: whole(text('pids.max')) ?? 0,
    pids: pidsIn(text('cgroup.procs')),
    io: ioOfV2(text('io.stat')),
    spec: {
      cpuShares: weight === null ? null : Number(sharesOfWeight(BigInt(weight))),
      cpuPeriod: whole(period),
      cpuQuota: whole(quota),
      memoryLimit: limit(text('memory.max')),
      memoryReservation: limit(text('memory.low')),
      swapLimit: limit(text('memory.swap.max')),
      swapMax: swapMax(text('memory.swap.max')),
    },
    pressure: pressureOf(text('cpu.pressure'), text('memory.pressure'), text('io.pressure')),
  };
}

function throttle(cpu: (key: string) => number | null, nanos: number | null, burstNanos: number | null): CgroupUsage['throttle'] {
  const periods = cpu('nr_periods');
  if (periods === null) return null;
  return { periods, throttled: cpu('nr_throttled') ?? 0, nanos: nanos ?? 0, bursts: cpu('nr_bursts') ?? 0, burstNanos: burstNanos ?? 0 };
}

/** `8:0 Read 4096` lines of bytes and of operations; the last one is the total of all devices. */
function ioOfV1(bytes: string, counts: string): IoUsage[] {
  const read = (text: string): Map<string, number> =>
    new Map(
      text
        .split('\n')
        .map((line) => line.split(' '))
        .filter((fields) => fields.length === 3)
        .map(([device = '', operation = '', value]) => [`${device} ${operation}`, Number(value)]),
    );
  const [sizes, numbers] = [read(bytes), read(counts)];
  return [...new Set([...sizes.keys(), ...numbers.keys()])].map((key) => {
    const [device = '', operation = ''] = key.split(' ');
    return { device, operation, bytes: sizes.get(key) ?? null, count: numbers.get(key) ?? null };
  });
}

/** `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0` lines. */
function ioOfV2(text: string): IoUsage[] {
  return text.split('\n').flatMap((line) => {
    const [device = '', ...fields] = line.split(' ');
    const values = new Map(fields.map((field) => field.split('=') as [string, string]));
    if (!values.has('rbytes')) return [];
    const row = (operation: string, letter: string): IoUsage => ({
      device,
      operation,
      bytes: Number(values.get(`${letter}bytes`) ?? 0),
      count: Number(values.get(`${letter}ios`) ?? 0),
    });
    return [row('Read', 'r'), row('Write', 'w'), row('Discard', 'd')];
  });
}

/** What the pressure files of a cgroup or of the machine tell; null without the kernel's PSI. */
export function pressureOf(cpu: string, memory: string, io: string): Pressure | null {
  const one = (text: string): PressureOf | null => {
    const line = (kind: string): PressureData => {
      const match = new RegExp(`^${kind} avg10=([\\d.]+) avg60=([\\d.]+) avg300=([\\d.]+) total=(\\d+)`, 'm').exec(text);
      return { avg10: Number(match?.[1] ?? 0), avg60: Number(match?.[2] ?? 0), avg300: Number(match?.[3] ?? 0), total: Number(match?.[4] ?? 0) };
    };
    return text === '' ? null : { full: line('full'), some: line('some') };
  };
  const found = { cpu: one(cpu), memory: one(memory), io: one(io) };
  return found.cpu === null && found.memory === null && found.io === null ? null : found;
}
