import { quantityOf } from './quantity.ts';
import type { EvictionSignal, Observation } from './evict-thresholds.ts';
import { mostPids } from './settings.ts';

/** What statfs says of one file system. */
export interface DiskFacts {
  readonly totalBytes: number;
  readonly availableBytes: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

/** Texts of files; '' is one that is not there. */
export interface MemoryTexts {
  readonly meminfo: string;
  /** Of the root cgroup: memory.usage_in_bytes of version 1, memory.current of version 2 (which the machine's own root lacks). */
  readonly usage: string;
  readonly stat: string;
  /** Of the cgroup of all pods: its limit, use and memory.stat. */
  readonly podsLimit: string;
  readonly podsUsage: string;
  readonly podsStat: string;
}

/**
 * Memory of the machine without what is in use: use is the root cgroup's without inactive file pages. Version 2 has no
 * usage at the machine's root; there it is all memory that is not free.
 */
export function memoryObservations(version: 1 | 2, texts: MemoryTexts): Map<EvictionSignal, Observation> {
  const kib = (field: string): bigint | null => {
    const match = new RegExp(`^${field}:\\s+(\\d+)`, 'm').exec(texts.meminfo);
    return match === null ? null : BigInt(match[1] ?? 0) * 1024n;
  };
  const out = new Map<EvictionSignal, Observation>();
  const total = kib('MemTotal');
  const free = kib('MemFree');
  if (total === null || free === null) return out;
  const used = workingSet(version, numberIn(texts.usage) ?? total - free, texts.stat);
  // Huge pages are nobody's use in a cgroup, and yet no pod can have them as memory (HugepageAwareEviction).
  const available = positive(total - used - (kib('Hugetlb') ?? 0n));
  out.set('memory.available', { available: bytes(available), capacity: bytes(available + used) });
  const limit = numberIn(texts.podsLimit);
  const podsUsed = numberIn(texts.podsUsage);
  if (limit !== null && podsUsed !== null && limit < 1n << 62n)
    out.set('allocatableMemory.available', { available: bytes(positive(limit - workingSet(version, podsUsed, texts.podsStat))), capacity: bytes(limit) });
  return out;
}

/** Bytes in use without file pages that nobody has touched for long (cAdvisor's working set). */
export function workingSet(version: 1 | 2, usage: bigint, stat: string): bigint {
  const inactive = new RegExp(version === 1 ? '^total_inactive_file (\\d+)' : '^inactive_file (\\d+)', 'm').exec(stat)?.[1] ?? '0';
  return positive(usage - BigInt(inactive));
}

export function numberIn(text: string): bigint | null {
  const digits = text.trim();
  return /^\d+$/.test(digits) ? BigInt(digits) : null;
}

/** Processes the kernel still allows: pid_max or threads-max, whichever is less, without those that there are. */
export function pidObservations(loadavg: string, limits: readonly string[]): Map<EvictionSignal, Observation> {
  const most = mostPids(limits);
  const running = /\d+\/(\d+)/.exec(loadavg)?.[1];
  if (most === null || running === undefined) return new Map();
  return new Map([['pid.available', { available: quantityOf(most - Number(running)), capacity: quantityOf(most) }]]);
}

/** A file system that has no count of inodes (btrfs, overlay on it) has no such signal. */
export function diskObservations(name: 'nodefs' | 'imagefs' | 'containerfs', disk: DiskFacts): Map<EvictionSignal, Observation> {
  const out = new Map<EvictionSignal, Observation>();
  if (disk.totalBytes > 0) out.set(`${name}.available`, { available: bytes(BigInt(disk.availableBytes)), capacity: bytes(BigInt(disk.totalBytes)) });
  if (disk.inodes > 0) out.set(`${name}.inodesFree`, { available: quantityOf(disk.inodesFree), capacity: quantityOf(disk.inodes) });
  return out;
}

const bytes = (value: bigint): Observation['available'] => quantityOf(value, 'BinarySI');
const positive = (value: bigint): bigint => (value < 0n ? 0n : value);

/** The device (`major:minor`) of the mount that `path` lies on, from /proc/self/mountinfo; null: not found. */
export function deviceOf(mountinfo: string, path: string): string | null {
  let best: { readonly length: number; readonly device: string } | null = null;
  for (const line of mountinfo.split('\n')) {
    const [, , device = '', , target = ''] = line.split(' ');
    if (target === '' || !(target === '/' || path === target || path.startsWith(`${target}/`))) continue;
    // Of several on one place the last hides the others.
    if (best === null || target.length >= best.length) best = { length: target.length, device };
  }
  return best?.device ?? null;
}
