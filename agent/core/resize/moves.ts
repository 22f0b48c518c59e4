import type { CgroupResources } from '../cgroups.ts';
import { aggregate } from '../node-status.ts';
import type { Sizes } from './amounts.ts';
import type { ContainerResize, ResizeWork } from './plan.ts';

/** A pod's cgroup as it is. */
export interface PodCgroupValues {
  readonly cpuShares: bigint;
  /** Microseconds of each period; null: no limit. */
  readonly cpuQuotaUs: bigint | null;
  readonly cpuPeriodUs: bigint;
  /** Null: no limit. */
  readonly memoryBytes: bigint | null;
  readonly memoryUsageBytes: bigint;
}

/** One thing to do, in the order in which the kernel and the runtime allow it. */
export type Move =
  | { readonly kind: 'pod'; readonly what: 'cpu-limit' | 'cpu-request' | 'memory-limit' }
  | { readonly kind: 'container'; readonly resource: 'cpu' | 'memory'; readonly resize: ContainerResize; readonly sizes: Sizes }
  | { readonly kind: 'pod-level'; readonly resource: 'cpu' | 'memory' };

export interface MovesInput {
  readonly work: ResizeWork;
  readonly current: PodCgroupValues;
  readonly wanted: CgroupResources;
  /** Memory in use by container name; absent: not known. */
  readonly usageBytes: ReadonlyMap<string, bigint>;
}

/**
 * Memory, then CPU. Of each: what the pod as a whole gets more of before its containers do, what it gets less of
 * after them, so that no container's limit is ever above its pod's. A memory limit below what is in use is refused
 * before anything is done.
 */
export function planMoves(input: MovesInput): { ok: true; moves: Move[] } | { ok: false; message: string } {
  const { work, current, wanted } = input;
  const problems = shrinkProblems(input);
  if (problems.length > 0) return { ok: false, message: `cannot decrease memory limits: ${aggregate(problems)}` };
  const whole = work.ofPod || work.podLevel;
  const moves: Move[] = [];
  if (work.memory.length > 0 || whole) {
    const way = limitWay(current.memoryBytes, wanted.memoryBytes);
    if (way === 'up') moves.push({ kind: 'pod', what: 'memory-limit' });
    for (const resize of work.memory) moves.push({ kind: 'container', resource: 'memory', resize, sizes: { ...resize.from, ...memoryOf(resize.to) } });
    if (way === 'down') moves.push({ kind: 'pod', what: 'memory-limit' });
    if (work.podLevel) moves.push({ kind: 'pod-level', resource: 'memory' });
  }
  if (work.cpu.length > 0 || whole) {
    const limit = limitWay(current.cpuQuotaUs, wanted.cpuQuotaUs);
    const shares = wanted.cpuShares ?? current.cpuShares;
    if (limit === 'up') moves.push({ kind: 'pod', what: 'cpu-limit' });
    if (shares > current.cpuShares) moves.push({ kind: 'pod', what: 'cpu-request' });
    // Memory of the same container has been done by now.
    for (const resize of work.cpu) moves.push({ kind: 'container', resource: 'cpu', resize, sizes: resize.to });
    if (shares < current.cpuShares) moves.push({ kind: 'pod', what: 'cpu-request' });
    if (limit === 'down') moves.push({ kind: 'pod', what: 'cpu-limit' });
    if (work.podLevel) moves.push({ kind: 'pod-level', resource: 'cpu' });
  }
  return { ok: true, moves };
}

function memoryOf({ memoryLimit, memoryRequest }: Sizes): Pick<Sizes, 'memoryLimit' | 'memoryRequest'> {
  return { memoryLimit, memoryRequest };
}

/** Null in `wanted`: it stays as it is, for limits cannot be taken away. */
function limitWay(current: bigint | null, wanted: bigint | null): 'up' | 'down' | 'same' {
  if (wanted === null || wanted <= 0n) return 'same';
  if (current === null || wanted < current) return 'down';
  return wanted > current ? 'up' : 'same';
}

function shrinkProblems({ work, current, wanted, usageBytes }: MovesInput): string[] {
  const problems: string[] = [];
  const whole = work.memory.length > 0 || work.ofPod || work.podLevel;
  if (whole && limitWay(current.memoryBytes, wanted.memoryBytes) === 'down' && current.memoryUsageBytes >= wanted.memoryBytes!)
    problems.push(`attempting to set pod memory limit (${wanted.memoryBytes}) below current usage (${current.memoryUsageBytes})`);
  for (const { name, from, to } of work.memory) {
    if (!shrinks(from, to)) continue;
    const usage = usageBytes.get(name);
    if (usage === undefined) problems.push(`missing container "${name}" memory usage`);
    else if (usage >= to.memoryLimit) problems.push(`attempting to set container "${name}" memory limit (${to.memoryLimit}) below current usage (${usage})`);
  }
  return problems;
}

/** Whether a memory limit gets smaller, or is a first one: then what is in use must be known. */
export function shrinks(from: Sizes, to: Sizes): boolean {
  return to.memoryLimit !== 0n && (from.memoryLimit === 0n || to.memoryLimit < from.memoryLimit);
}
