import { intersection } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';
import { topologyOf } from './cpu-topology.ts';
import type { CpuPlace, CpuTopology } from './cpu-topology.ts';

/** One CPU as the kernel tells of it. */
export interface CpuFacts {
  readonly cpu: number;
  /** `core_id`: unique within its socket only. */
  readonly coreId: number;
  readonly socket: number;
  /** Caches of level 3 and above, with the CPUs that share each. */
  readonly bigCaches: readonly { readonly id: number; readonly shared: CpuSet }[];
}

export interface NumaFacts {
  readonly node: number;
  readonly cpus: readonly CpuFacts[];
  readonly memoryBytes: number;
  /** Page size in KiB to bytes in such pages. */
  readonly hugePages: readonly { readonly pageKiB: number; readonly bytes: number }[];
  readonly distances: readonly number[];
}

/** Cores, sockets and last-level caches of the CPUs that may be used. A cache that a whole NUMA node shares sets no border. */
export function topologyFrom(nodes: readonly NumaFacts[], usable: CpuSet): CpuTopology {
  const places = new Map<number, CpuPlace>();
  for (const { node, cpus } of nodes) {
    const cores = new Map<string, CpuFacts[]>();
    for (const facts of cpus) {
      const key = `${facts.socket}/${facts.coreId}`;
      cores.set(key, [...(cores.get(key) ?? []), facts]);
    }
    for (const threads of cores.values()) {
      const sorted = threads.toSorted((left, right) => left.cpu - right.cpu);
      const first = sorted[0]!;
      const inNode = cores.size * threads.length;
      const cache = first.bigCaches.find(({ shared }) => shared.length !== inNode);
      const place = { numa: node, socket: first.socket, core: first.cpu, uncore: cache?.id ?? first.socket };
      for (const { cpu } of sorted) if (intersection(usable, [cpu]).length > 0) places.set(cpu, place);
    }
  }
  return topologyOf(places);
}

/** `hugepages-2Mi`, as the API calls pages of so many KiB. */
export function hugePageName(pageKiB: number): string {
  const units: readonly [string, number][] = [
    ['Gi', 1_048_576],
    ['Mi', 1024],
  ];
  const [unit, size] = units.find(([, each]) => pageKiB % each === 0) ?? ['Ki', 1];
  return `hugepages-${pageKiB / size}${unit}`;
}
