import { cpuSet } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';

/** Where one CPU (a hardware thread) stands. A core is called by its lowest CPU. */
export interface CpuPlace {
  readonly numa: number;
  readonly socket: number;
  readonly core: number;
  /** The last-level cache it shares with some of its NUMA node; with no such cache the socket. */
  readonly uncore: number;
}

export type CpuPlaces = ReadonlyMap<number, CpuPlace>;

export type Level = keyof CpuPlace;

export interface CpuTopology {
  readonly cpus: number;
  readonly cores: number;
  readonly sockets: number;
  readonly numaNodes: number;
  readonly uncoreCaches: number;
  readonly places: CpuPlaces;
}

export function topologyOf(places: CpuPlaces): CpuTopology {
  const count = (level: Level): number => idsOf(places, level).length;
  return {
    places,
    cpus: places.size,
    cores: count('core'),
    sockets: count('socket'),
    numaNodes: count('numa'),
    uncoreCaches: count('uncore'),
  };
}

export const cpusPerCore = (topology: CpuTopology): number => Math.floor(topology.cpus / Math.max(1, topology.cores));
export const cpusPerSocket = (topology: CpuTopology): number => Math.floor(topology.cpus / Math.max(1, topology.sockets));
export const cpusPerUncore = (topology: CpuTopology): number => Math.floor(topology.cpus / Math.max(1, topology.uncoreCaches));

/** All CPUs. */
export function cpusOf(places: CpuPlaces): CpuSet {
  return cpuSet(places.keys());
}

export function keepOnly(places: CpuPlaces, cpus: CpuSet): CpuPlaces {
  const kept = new Set(cpus);
  return new Map([...places].filter(([cpu]) => kept.has(cpu)));
}

/** The sockets, cores … that the CPUs belong to; with `within` those of CPUs inside these ids of another level. */
export function idsOf(places: CpuPlaces, level: Level, within?: { readonly level: Level; readonly ids: readonly number[] }): CpuSet {
  const inside = new Set(within?.ids);
  const ids = new Set<number>();
  for (const place of places.values()) if (within === undefined || inside.has(place[within.level])) ids.add(place[level]);
  return cpuSet(ids);
}

/** The CPUs inside these ids of a level. */
export function cpusIn(places: CpuPlaces, level: Level, ...ids: readonly number[]): CpuSet {
  const inside = new Set(ids);
  return cpuSet([...places].filter(([, place]) => inside.has(place[level])).map(([cpu]) => cpu));
}

/** Whether all share one last-level cache. */
export function isUncoreAligned(topology: CpuTopology, cpus: CpuSet): boolean {
  return new Set(cpus.map((cpu) => topology.places.get(cpu)?.uncore ?? -1 - cpu)).size <= 1;
}
