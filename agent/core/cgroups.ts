import type { MountEntry } from './mountinfo.ts';
import { everyContainerLimits, memoryOf, milliCpuOf, podLimits, podRequests, qosClassOfStatus } from './qos.ts';
import type { PodResources, QosClass } from './qos.ts';
import { hugePageLimits } from './huge-pages.ts';
import { podMemoryQos } from './memory-qos.ts';
import type { MemoryQos } from './memory-qos.ts';
import type { PodCgroupValues } from './resize/moves.ts';

export type CgroupDriver = 'cgroupfs' | 'systemd';

/** A cgroup by its parts from the root down, before a driver gives it a path: `['kubepods', 'burstable', 'podU']`. */
export type CgroupName = readonly string[];

const minShares = 2n;
const maxShares = 262_144n;
const minQuotaUs = 1000n;

/** The parts of `cgroupRoot`: '/' has none. */
export function rootName(cgroupRoot: string): CgroupName {
  return cgroupRoot.split('/').filter((part) => part !== '');
}

export function kubepods(root: CgroupName): CgroupName {
  return [...root, 'kubepods'];
}

/** The cgroup that a class of pods stands in: Guaranteed pods stand beside the other two classes. */
export function qosName(root: CgroupName, qos: QosClass): CgroupName {
  return qos === 'Guaranteed' ? kubepods(root) : [...kubepods(root), qos.toLowerCase()];
}

export function podName(root: CgroupName, qos: QosClass, uid: string): CgroupName {
  return [...qosName(root, qos), `pod${uid}`];
}

/** The three places where a pod's cgroup can be. */
export function podNames(root: CgroupName, uid: string): CgroupName[] {
  return (['Guaranteed', 'Burstable', 'BestEffort'] as const).map((qos) => podName(root, qos, uid));
}

/** Path below the hierarchy's mount point: `/kubepods/burstable/podU`, or nested slices for systemd. */
export function cgroupPath(driver: CgroupDriver, name: CgroupName): string {
  if (driver === 'cgroupfs') return `/${name.join('/')}`;
  const parts = name.map((part) => part.replaceAll('-', '_'));
  return `/${parts.map((_, index) => `${parts.slice(0, index + 1).join('-')}.slice`).join('/')}`;
}

/** What the CRI calls cgroup_parent: the path, or the last slice alone for systemd. */
export function cgroupParent(driver: CgroupDriver, name: CgroupName): string {
  const path = cgroupPath(driver, name);
  return driver === 'cgroupfs' ? path : (path.split('/').at(-1) ?? path);
}

/** A cgroup by its parts from what a person calls it: a path, or with systemd a slice (`system.slice`, `/a.slice/a-b.slice`). */
export function parsedName(driver: CgroupDriver, text: string): CgroupName {
  if (driver === 'cgroupfs') return rootName(text);
  const slice = text.split('/').findLast((part) => part !== '') ?? '';
  return slice
    .replace(/\.slice$/, '')
    .split('-')
    .filter((part) => part !== '')
    .map((part) => part.replaceAll('_', '-'));
}

/** The pod UID in a cgroup's directory name, or null for what is no pod's. */
export function uidOfCgroup(driver: CgroupDriver, directory: string): string | null {
  if (driver === 'cgroupfs') return /^pod([A-Za-z0-9._-]+)$/.exec(directory)?.[1] ?? null;
  return /-pod([A-Za-z0-9_.]+)\.slice$/.exec(directory)?.[1]?.replaceAll('_', '-') ?? null;
}

/** One mounted hierarchy. Version 2 has exactly one, with no controllers listed. */
export interface Hierarchy {
  readonly mount: string;
  readonly controllers: readonly string[];
}

export interface CgroupLayout {
  readonly version: 1 | 2;
  /** Where pods get directories. */
  readonly hierarchies: readonly Hierarchy[];
  /** Beside those of version 1: the unified hierarchy of a hybrid system, where a runtime may leave directories. */
  readonly unified: string | null;
}

/** How cgroups are mounted here; null when they are not. */
export function cgroupLayout(mounts: readonly MountEntry[], base = '/sys/fs/cgroup'): CgroupLayout | null {
  const inBase = mounts.filter((entry) => entry.target === base || entry.target.startsWith(`${base}/`));
  if (inBase.some((entry) => entry.fstype === 'cgroup2' && entry.target === base))
    return { version: 2, hierarchies: [{ mount: base, controllers: [] }], unified: null };
  const hierarchies = new Map<string, Hierarchy>();
  for (const entry of inBase) {
    if (entry.fstype !== 'cgroup') continue;
    const controllers = entry.superOptions.split(',').filter((option) => !notControllers.has(option) && !/^(release_agent|clone_children)/.test(option));
    const key = controllers.join(',');
    if (!hierarchies.has(key)) hierarchies.set(key, { mount: entry.target, controllers });
  }
  if (hierarchies.size === 0) return null;
  return { version: 1, hierarchies: [...hierarchies.values()], unified: inBase.find((entry) => entry.fstype === 'cgroup2')?.target ?? null };
}

const notControllers = new Set(['rw', 'ro', 'xattr', 'noprefix', 'none', 'seclabel']);

/** Limits of a cgroup; null leaves a value alone. */
export interface CgroupResources {
  readonly cpuShares: bigint | null;
  /** Microseconds of each period; -1 is no limit. */
  readonly cpuQuotaUs: bigint | null;
  readonly cpuPeriodUs: bigint;
  readonly memoryBytes: bigint | null;
  readonly pidsMax: bigint | null;
  /** Processors as the kernel lists them (`0-3`). */
  readonly cpus?: string;
  /** Bytes by page size as cgroups name it (`2MB`). */
  readonly hugePages?: ReadonlyMap<string, bigint>;
  /** Version 2 alone: file to text, for what has no name of its own here. */
  readonly unified?: Readonly<Record<string, string>>;
}

export interface PodCgroupSettings {
  readonly cpuCFSQuota: boolean;
  readonly cpuPeriodUs: bigint;
  /** -1: no limit of its own. */
  readonly podPidsLimit: bigint;
  /** Page sizes that a cgroup can limit here; each pod is limited to what it asks of them. */
  readonly hugePageSizes?: readonly string[];
  /** How memory is protected and throttled; null: it is not. */
  readonly memoryQos?: MemoryQos | null;
}

/** The limits of a pod's cgroup by its class: a quota or memory limit only where every container has one. */
export function podCgroupResources(pod: PodResources, settings: PodCgroupSettings): CgroupResources {
  const limits = podLimits(pod);
  const qos = qosClassOfStatus(pod);
  const isLimited = (resource: string): boolean => qos !== 'BestEffort' && everyContainerLimits(pod, resource);
  const quota = settings.cpuCFSQuota ? cpuQuotaUs(milliCpuOf(limits), settings.cpuPeriodUs) : -1n;
  return {
    cpuShares: qos === 'BestEffort' ? minShares : cpuShares(milliCpuOf(podRequests(pod))),
    cpuQuotaUs: isLimited('cpu') ? quota : null,
    cpuPeriodUs: settings.cpuPeriodUs,
    memoryBytes: isLimited('memory') ? memoryOf(limits) : null,
    pidsMax: settings.podPidsLimit > 0n ? settings.podPidsLimit : null,
    ...(settings.hugePageSizes === undefined || settings.hugePageSizes.length === 0
      ? {}
      : { hugePages: hugePageLimits(settings.hugePageSizes, Object.fromEntries([...podRequests(pod)].map(([name, { nano }]) => [name, `${nano}n`]))) }),
    ...(settings.memoryQos === undefined || settings.memoryQos === null ? {} : { unified: podMemoryQos(pod, settings.memoryQos) }),
  };
}

/** CPU requests in thousandths → cpu.shares, within what the kernel takes. */
export function cpuShares(milli: bigint): bigint {
  const shares = (milli * 1024n) / 1000n;
  if (shares < minShares) return minShares;
  return shares > maxShares ? maxShares : shares;
}

/** CPU limit in thousandths → CFS quota for a period, both in microseconds. 0 is "no limit". */
export function cpuQuotaUs(milli: bigint, periodUs: bigint): bigint {
  if (milli === 0n) return 0n;
  const quota = (milli * periodUs) / 1000n;
  return quota < minQuotaUs ? minQuotaUs : quota;
}

/**
 * cpu.shares [2, 262144] → cpu.weight [1, 10000], linear: what upstream's kubelet 1.37 gives pods and classes of pods. Runtimes
 * give their containers a weight by another curve since 2025; both are seen on one machine, and a swap must change neither.
 */
export function cpuWeight(shares: bigint): bigint {
  if (shares === 0n) return 0n;
  if (shares >= maxShares) return 10_000n;
  return 1n + ((shares - minShares) * 9999n) / 262_142n;
}

/** cpu.weight → cpu.shares by the same rule, rounded down: what upstream reads a version 2 cgroup with. */
export function sharesOfWeight(weight: bigint): bigint {
  return ((weight - 1n) * 262_142n) / 9999n + 2n;
}

export interface CgroupWrite {
  readonly path: string;
  readonly data: string;
}

/** The writes that give the cgroup at `path` (as of cgroupPath) its limits. */
export function cgroupWrites(layout: CgroupLayout, path: string, resources: CgroupResources): CgroupWrite[] {
  const { cpuShares: shares, cpuQuotaUs: quota, cpuPeriodUs: period, memoryBytes, pidsMax } = resources;
  const isUnlimited = quota !== null && quota <= 0n;
  if (layout.version === 2) {
    const dir = `${layout.hierarchies[0]?.mount ?? ''}${path}`;
    const writes: CgroupWrite[] = [];
    if (shares !== null) writes.push({ path: `${dir}/cpu.weight`, data: String(cpuWeight(shares)) });
    if (quota !== null) writes.push({ path: `${dir}/cpu.max`, data: `${isUnlimited ? 'max' : quota} ${period}` });
    if (memoryBytes !== null) writes.push({ path: `${dir}/memory.max`, data: String(memoryBytes) });
    if (pidsMax !== null) writes.push({ path: `${dir}/pids.max`, data: String(pidsMax) });
    for (const [size, bytes] of resources.hugePages ?? []) writes.push({ path: `${dir}/hugetlb.${size}.max`, data: String(bytes) });
    if (resources.cpus !== undefined) writes.push({ path: `${dir}/cpuset.cpus`, data: resources.cpus });
    for (const [file, text] of Object.entries(resources.unified ?? {})) writes.push({ path: `${dir}/${file}`, data: text });
    return writes;
  }
  const writes: CgroupWrite[] = [];
  const write = (controller: string, file: string, data: string): void => {
    const mount = layout.hierarchies.find((each) => each.controllers.includes(controller))?.mount;
    if (mount !== undefined) writes.push({ path: `${mount}${path}/${file}`, data });
  };
  if (shares !== null) write('cpu', 'cpu.shares', String(shares));
  if (quota !== null) {
    write('cpu', 'cpu.cfs_period_us', String(period));
    write('cpu', 'cpu.cfs_quota_us', String(isUnlimited ? -1n : quota));
  }
  if (memoryBytes !== null) write('memory', 'memory.limit_in_bytes', String(memoryBytes));
  if (pidsMax !== null) write('pids', 'pids.max', String(pidsMax));
  for (const [size, bytes] of resources.hugePages ?? []) write('hugetlb', `hugetlb.${size}.limit_in_bytes`, String(bytes));
  if (resources.cpus !== undefined) write('cpuset', 'cpuset.cpus', resources.cpus);
  return writes;
}

/** The files that say what a cgroup has, in the order in which `cgroupValues` takes their contents. */
export function cgroupReads(layout: CgroupLayout, path: string): string[] {
  if (layout.version === 2)
    return ['cpu.weight', 'cpu.max', 'memory.max', 'memory.current'].map((file) => `${layout.hierarchies[0]?.mount ?? ''}${path}/${file}`);
  const mount = (controller: string): string => layout.hierarchies.find((each) => each.controllers.includes(controller))?.mount ?? '';
  return [
    ...['cpu.shares', 'cpu.cfs_quota_us', 'cpu.cfs_period_us'].map((file) => `${mount('cpu')}${path}/${file}`),
    ...['memory.limit_in_bytes', 'memory.usage_in_bytes'].map((file) => `${mount('memory')}${path}/${file}`),
  ];
}

/** Version 1 writes "no limit" as the largest multiple of a page. */
const noMemoryLimit = 1n << 62n;

/** What the files say; null when one of them does not hold what it should. */
export function cgroupValues(version: 1 | 2, texts: readonly string[]): PodCgroupValues | null {
  const words = texts.map((text) => text.trim());
  if (words.some((word) => word === '')) return null;
  const limited = (word: string): bigint | null => (word === 'max' || word.startsWith('-') || BigInt(word) >= noMemoryLimit ? null : BigInt(word));
  try {
    if (version === 2) {
      const [weight = '', max = '', memory = '', usage = ''] = words;
      const [quota = '', period = ''] = max.split(' ');
      return {
        cpuShares: sharesOfWeight(BigInt(weight)),
        cpuQuotaUs: limited(quota),
        cpuPeriodUs: BigInt(period),
        memoryBytes: limited(memory),
        memoryUsageBytes: BigInt(usage),
      };
    }
    const [shares = '', quota = '', period = '', memory = '', usage = ''] = words;
    return {
      cpuShares: BigInt(shares),
      cpuQuotaUs: limited(quota),
      cpuPeriodUs: BigInt(period),
      memoryBytes: limited(memory),
      memoryUsageBytes: BigInt(usage),
    };
  } catch {
    return null;
  }
}

/** Controllers that pods need of version 2; those the kernel lacks are left out. */
export function wantedControllers(available: string): string {
  const there = new Set(available.trim().split(/\s+/));
  return ['cpuset', 'cpu', 'io', 'memory', 'hugetlb', 'pids']
    .filter((name) => there.has(name))
    .map((name) => `+${name}`)
    .join(' ');
}

const controlFile = /^(cgroup|cpu|cpuacct|cpuset|memory|pids|io|blkio|hugetlb|devices|freezer|net_cls|net_prio|perf_event|rdma|misc|dmem|irq)\./;
const bareFiles = new Set(['tasks', 'notify_on_release', 'release_agent']);

/** The child cgroups among the names in a cgroup's directory. */
export function childCgroups(names: readonly string[]): string[] {
  return names.filter((name) => !controlFile.test(name) && !bareFiles.has(name));
}

/** Why this machine's cgroup version is not served, or null. */
export function versionProblem(version: 1 | 2, failCgroupV1: boolean): string | null {
  if (version === 2 || !failCgroupV1) return null;
  return 'kubelet is configured to not run on a host using cgroup v1. cgroup v1 support is unsupported and will be removed in a future release';
}
