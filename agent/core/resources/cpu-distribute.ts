import { CpuPicker, notEnough, takePacked } from './cpu-assign.ts';
import type { CpuOrder, Taken } from './cpu-assign.ts';
import type { CpuSet } from './cpuset.ts';
import { cpusIn, idsOf } from './cpu-topology.ts';
import type { CpuTopology } from './cpu-topology.ts';
import { combinations } from './numa-mask.ts';

export interface DistributeOptions {
  /** CPUs are taken in groups of this many: 1, or those of a core. */
  readonly groupSize: number;
  readonly order: CpuOrder;
  readonly alignBySocket: boolean;
}

interface Best {
  readonly nodes: readonly number[];
  readonly remainder: readonly number[];
  readonly balance: number;
  readonly oneSocket: boolean;
}

/**
 * Shares `count` CPUs evenly among as few NUMA nodes as can hold them, of all such choices the one that leaves the
 * nodes the most evenly filled (upstream's `takeByTopologyNUMADistributed`); packed when no choice is possible.
 */
export function takeDistributed(topology: CpuTopology, available: CpuSet, count: number, options: DistributeOptions): Taken {
  const { groupSize, order } = options;
  const packed = (): Taken => takePacked(topology, available, count, order, false);
  if (count % groupSize !== 0) return packed();
  const picker = new CpuPicker(topology, available, count, order);
  if (picker.isDone) return { ok: true, cpus: picker.taken };
  if (picker.cannot) return notEnough(count, available);
  const nodes = picker.numaNodes();
  const free = new Map(nodes.map((node) => [node, cpusIn(picker.free, 'numa', node).length]));
  const [fewest, most] = nodesNeeded(topology, nodes.length, count, groupSize);
  for (let size = fewest; size <= most; size++) {
    const best = bestOf(topology, free, count, size, options);
    if (best !== null) return takeFrom(picker, best, count, options);
  }
  return packed();
}

function nodesNeeded(topology: CpuTopology, availableNodes: number, count: number, groupSize: number): [number, number] {
  const groups = Math.ceil(topology.cpus / groupSize);
  const groupsPerNode = Math.ceil(groups / idsOf(topology.places, 'numa').length);
  const groupsNeeded = Math.ceil(count / groupSize);
  return [Math.ceil(groupsNeeded / groupsPerNode), Math.min(groupsNeeded, availableNodes)];
}

/** What each node gives at least, in whole groups. */
function shareOf(free: ReadonlyMap<number, number>, nodes: readonly number[], count: number, groupSize: number, bounded: boolean): number {
  let share = Math.floor(Math.floor(count / nodes.length) / groupSize) * groupSize;
  if (bounded) for (const node of nodes) share = Math.min(share, Math.floor((free.get(node) ?? 0) / groupSize) * groupSize);
  return share;
}

function bestOf(topology: CpuTopology, free: ReadonlyMap<number, number>, count: number, size: number, options: DistributeOptions): Best | null {
  const { groupSize, alignBySocket } = options;
  let best: Best | null = null;
  for (const nodes of combinations([...free.keys()], size)) {
    if (best?.balance === 0 && (!alignBySocket || best.oneSocket)) break;
    const counts = nodes.map((node) => free.get(node) ?? 0);
    if (sum(counts) < count || sum(counts.map((each) => Math.floor(each / groupSize))) * groupSize < count) continue;
    const share = shareOf(free, nodes, count, groupSize, alignBySocket);
    if (counts.some((each) => each < share)) continue;
    const left = new Map([...free].map(([node, each]) => [node, nodes.includes(node) ? each - share : each]));
    const { balance, remainder } = bestRemainder(left, nodes, count - share * nodes.length, groupSize);
    const oneSocket = alignBySocket && idsOf(topology.places, 'socket', { level: 'numa', ids: nodes }).length <= 1;
    const better = alignBySocket && oneSocket !== (best?.oneSocket ?? false) ? oneSocket : balance < (best?.balance ?? Number.MAX_VALUE);
    if (better) best = { nodes, remainder, balance, oneSocket };
  }
  return best;
}

/** Which of the nodes give one group more, so that what is left is the most even. */
function bestRemainder(
  left: ReadonlyMap<number, number>,
  nodes: readonly number[],
  remainder: number,
  groupSize: number,
): { balance: number; remainder: readonly number[] } {
  if (remainder === 0) return { balance: deviation([...left.values()]), remainder: [] };
  let best = { balance: Number.MAX_VALUE, remainder: [] as readonly number[] };
  const able = nodes.filter((node) => (left.get(node) ?? 0) >= groupSize);
  for (let size = able.length; size >= 1; size--) {
    for (const subset of combinations(able, size)) {
      if (sum(subset.map((node) => left.get(node) ?? 0)) < remainder) continue;
      const after = new Map(left);
      if (!giveRemainder(after, subset, remainder, groupSize)) continue;
      const balance = deviation([...after.values()]);
      if (balance < best.balance) best = { balance, remainder: subset };
    }
  }
  return best;
}

/** Takes groups in turn from the nodes; false when they cannot give so many whole ones. */
function giveRemainder(left: Map<number, number>, nodes: readonly number[], remainder: number, groupSize: number): boolean {
  let open = remainder;
  while (open > 0) {
    const before = open;
    for (const node of nodes) {
      const has = left.get(node) ?? 0;
      if (open === 0 || has < groupSize) continue;
      left.set(node, has - groupSize);
      open -= groupSize;
    }
    if (open === before) return false;
  }
  return true;
}

function takeFrom(picker: CpuPicker, best: Best, count: number, { groupSize, order }: DistributeOptions): Taken {
  const freeIn = (node: number): CpuSet => cpusIn(picker.free, 'numa', node);
  const takeIn = (node: number, amount: number): void => {
    const taken = takePacked(picker.topology, freeIn(node), amount, order, false);
    if (taken.ok) picker.take(taken.cpus);
  };
  const free = new Map(best.nodes.map((node) => [node, freeIn(node).length]));
  const share = shareOf(free, best.nodes, count, groupSize, true);
  for (const node of best.nodes) takeIn(node, share);
  let remainder = count - share * best.nodes.length;
  while (remainder > 0) {
    const before = remainder;
    for (const node of best.remainder) {
      if (remainder === 0 || freeIn(node).length < groupSize) continue;
      takeIn(node, groupSize);
      remainder -= groupSize;
    }
    if (remainder === before) break;
  }
  if (picker.needed > 0) return { ok: false, message: `accounting error, not enough CPUs allocated, remaining: ${picker.needed}` };
  if (picker.needed < 0) return { ok: false, message: `accounting error, too many CPUs allocated, remaining: ${picker.needed}` };
  return { ok: true, cpus: picker.taken };
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** To three places, as upstream compares it. */
function deviation(values: readonly number[]): number {
  const mean = Math.round((sum(values) / values.length) * 1000) / 1000;
  return Math.round(Math.sqrt(sum(values.map((value) => (value - mean) ** 2)) / values.length) * 1000) / 1000;
}
