import { cpuSet, difference, union } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';
import { cpusIn, cpusOf, cpusPerCore, cpusPerSocket, cpusPerUncore, idsOf, keepOnly } from './cpu-topology.ts';
import type { CpuPlaces, CpuTopology, Level } from './cpu-topology.ts';

/** How single CPUs are taken: filling cores one after another, or one of each core first. */
export type CpuOrder = 'packed' | 'spread';

export type Taken = { readonly ok: true; readonly cpus: CpuSet } | { readonly ok: false; readonly message: string };

/**
 * Takes CPUs from those that are free so that as few sockets, NUMA nodes and cores as possible are broken up: whole
 * NUMA nodes and sockets first, then whole last-level caches (when wished), whole cores, then single CPUs; at each
 * level from the id with the fewest free CPUs (upstream's pkg/kubelet/cm/cpumanager, `takeByTopologyNUMAPacked`).
 */
export class CpuPicker {
  readonly topology: CpuTopology;
  readonly #order: CpuOrder;
  readonly #numaFirst: boolean;
  free: CpuPlaces;
  needed: number;
  taken: CpuSet = [];

  constructor(topology: CpuTopology, available: CpuSet, count: number, order: CpuOrder) {
    this.topology = topology;
    this.#order = order;
    this.#numaFirst = topology.sockets >= topology.numaNodes;
    this.free = keepOnly(topology.places, available);
    this.needed = count;
  }

  get isDone(): boolean {
    return this.needed < 1;
  }

  get cannot(): boolean {
    return this.needed > this.free.size;
  }

  take(cpus: CpuSet): void {
    this.taken = union(this.taken, cpus);
    this.free = keepOnly(this.free, difference(cpusOf(this.free), this.taken));
    this.needed -= cpus.length;
  }

  numaNodes(): number[] {
    return this.#numaFirst ? this.#byFree('numa', idsOf(this.free, 'numa')) : this.#nested(this.sockets(), 'socket', 'numa');
  }

  sockets(): number[] {
    return this.#numaFirst ? this.#nested(this.numaNodes(), 'numa', 'socket') : this.#byFree('socket', idsOf(this.free, 'socket'));
  }

  cores(): number[] {
    return this.#numaFirst ? this.#nested(this.sockets(), 'socket', 'core') : this.#nested(this.numaNodes(), 'numa', 'core');
  }

  uncoreCaches(): number[] {
    return this.#nested(this.numaNodes(), 'numa', 'uncore');
  }

  /** Single CPUs in the order in which they are taken. */
  cpus(): number[] {
    if (this.#order === 'packed') return this.cores().flatMap((core) => cpusIn(this.free, 'core', core));
    return this.sockets().flatMap((socket) => cpusIn(this.free, 'socket', socket));
  }

  takeWholeNodesAndSockets(): void {
    const whole = { numa: () => this.takeWhole('numa'), socket: () => this.takeWhole('socket') };
    const [first, second] = this.#numaFirst ? [whole.numa, whole.socket] : [whole.socket, whole.numa];
    first();
    if (!this.isDone) second();
  }

  /** Takes every wholly free id of a level that is not more than is needed. */
  takeWhole(level: Level): void {
    const order = { numa: () => this.numaNodes(), socket: () => this.sockets(), core: () => this.cores(), uncore: () => this.uncoreCaches() }[level]();
    for (const id of order.filter((each) => this.#isWhole(level, each))) {
      const cpus = cpusIn(this.topology.places, level, id);
      if (this.needed >= cpus.length) this.take(cpus);
    }
  }

  /** Whole last-level caches, then a part of one that holds all that is left. */
  takeUncore(): void {
    for (const uncore of this.uncoreCaches()) {
      if (this.needed >= cpusPerUncore(this.topology)) this.takeWhole('uncore');
      if (this.isDone) return;
      this.#takePartOf(uncore);
      if (this.isDone) return;
    }
  }

  takeSingles(): void {
    for (const cpu of this.cpus()) {
      this.take([cpu]);
      if (this.isDone) return;
    }
  }

  #takePartOf(uncore: number): void {
    const perCore = cpusPerCore(this.topology);
    const cores = idsOf(this.free, 'core', { level: 'uncore', ids: [uncore] }).slice(0, Math.ceil(this.needed / perCore));
    let cpus = cpusIn(this.free, 'core', ...cores);
    // An odd number of threads leaves the last one of the last core.
    if (this.needed % 2 !== 0 && perCore > 1 && cpus.length > this.needed) cpus = cpus.slice(0, -1);
    if (cpus.length === this.needed) this.take(cpus);
  }

  #isWhole(level: Level, id: number): boolean {
    const free = cpusIn(this.free, level, id).length;
    if (level === 'socket') return free === cpusPerSocket(this.topology);
    if (level === 'core') return free === cpusPerCore(this.topology);
    return free === cpusIn(this.topology.places, level, id).length;
  }

  #nested(outer: readonly number[], outerLevel: Level, level: Level): number[] {
    return outer.flatMap((id) => this.#byFree(level, idsOf(this.free, level, { level: outerLevel, ids: [id] })));
  }

  #byFree(level: Level, ids: CpuSet): number[] {
    const free = new Map(ids.map((id) => [id, cpusIn(this.free, level, id).length]));
    return ids.toSorted((left, right) => (free.get(left) ?? 0) - (free.get(right) ?? 0) || left - right);
  }
}

/** `count` CPUs of the available ones on as few NUMA nodes, sockets and cores as can be. */
export function takePacked(topology: CpuTopology, available: CpuSet, count: number, order: CpuOrder, byUncore: boolean): Taken {
  const picker = new CpuPicker(topology, available, count, order);
  const tries = [
    () => picker.takeWholeNodesAndSockets(),
    ...(byUncore ? [() => picker.takeUncore()] : []),
    ...(order === 'spread' ? [] : [() => picker.takeWhole('core')]),
    () => picker.takeSingles(),
  ];
  if (!picker.isDone && picker.cannot) return notEnough(count, available);
  for (const attempt of tries) {
    if (picker.isDone) break;
    attempt();
  }
  return picker.isDone ? { ok: true, cpus: picker.taken } : { ok: false, message: 'failed to allocate cpus' };
}

export function notEnough(count: number, available: CpuSet): Taken {
  return { ok: false, message: `not enough cpus available to satisfy request: requested=${count}, available=${cpuSet(available).length}` };
}
