/** A set of small numbers (CPUs, cores, NUMA nodes …): in ascending order, each once. */
export type CpuSet = readonly number[];

export function cpuSet(ids: Iterable<number> = []): CpuSet {
  return [...new Set(ids)].toSorted((left, right) => left - right);
}

/** `0-3,7` as the kernel and upstream's state files write sets; null for what is none. Nothing at all is the empty set. */
export function parseCpuSet(text: string): CpuSet | null {
  const ids: number[] = [];
  const trimmed = text.trim();
  if (trimmed === '') return [];
  for (const part of trimmed.split(',')) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (match === null) return null;
    const [from, to] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (to < from || to > 65_535) return null;
    for (let id = from; id <= to; id++) ids.push(id);
  }
  return cpuSet(ids);
}

/** The shortest text: runs as `a-b`. */
export function formatCpuSet(set: CpuSet): string {
  const runs: [number, number][] = [];
  for (const id of set) {
    const last = runs.at(-1);
    if (last !== undefined && last[1] === id - 1) last[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(([from, to]) => (from === to ? String(from) : `${from}-${to}`)).join(',');
}

export function union(...sets: readonly CpuSet[]): CpuSet {
  return cpuSet(sets.flat());
}

export function difference(left: CpuSet, right: CpuSet): CpuSet {
  const without = new Set(right);
  return left.filter((id) => !without.has(id));
}

export function intersection(left: CpuSet, right: CpuSet): CpuSet {
  const both = new Set(right);
  return left.filter((id) => both.has(id));
}

export function sameSet(left: CpuSet, right: CpuSet): boolean {
  return left.length === right.length && left.every((id, index) => id === right[index]);
}
