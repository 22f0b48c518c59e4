import { countOf, hasNode, maskOf, masksOf, nodesOf } from './numa-mask.ts';
import type { NumaMask } from './numa-mask.ts';
import type { Hint } from './hints.ts';

/** One device of a plugin. */
export interface Device {
  readonly id: string;
  readonly healthy: boolean;
  /** NUMA nodes it is near to; empty: not told. */
  readonly nodes: readonly number[];
}

export type DeviceIds = ReadonlySet<string>;

/** In the order of their ids, so that the same choice is made again. */
export function sortedIds(ids: Iterable<string>): string[] {
  return [...new Set(ids)].toSorted((left, right) => (left < right ? -1 : left > right ? 1 : 0));
}

/** Whether any device of a resource says where it is. */
export function isAligned(devices: ReadonlyMap<string, Device>): boolean {
  return [...devices.values()].some(({ nodes }) => nodes.length > 0);
}

export interface DeviceHintsInput {
  readonly devices: ReadonlyMap<string, Device>;
  readonly available: DeviceIds;
  /** Must be part of the choice. */
  readonly reusable: DeviceIds;
  readonly count: number;
  /** NUMA nodes of the machine. */
  readonly numaNodes: readonly number[];
}

/** NUMA nodes from which `count` devices could be had (upstream's devicemanager). */
export function deviceHints(input: DeviceHintsInput): Hint[] {
  const { devices, available, reusable, count } = input;
  const near = (mask: NumaMask, id: string): boolean => (devices.get(id)?.nodes ?? []).some((node) => hasNode(mask, node));
  const known = new Set(input.numaNodes);
  const withDevices = [...new Set([...devices.values()].flatMap(({ nodes }) => nodes))].filter((node) => known.has(node)).toSorted((a, b) => a - b);
  const nodes = withDevices.length === 0 ? input.numaNodes : withDevices;
  let fewest = nodes.length;
  const masks: NumaMask[] = [];
  for (const mask of masksOf(nodes)) {
    if ([...devices.keys()].filter((id) => near(mask, id)).length >= count) fewest = Math.min(fewest, countOf(mask));
    const placed = [...reusable].filter((id) => (devices.get(id)?.nodes.length ?? 0) > 0);
    if (placed.some((id) => !near(mask, id))) continue;
    if (placed.length + [...available].filter((id) => near(mask, id)).length >= count) masks.push(mask);
  }
  return masks.map((mask) => ({ nodes: mask, preferred: countOf(mask) === fewest }));
}

/** Devices near to the chosen NUMA nodes, those elsewhere, and those that do not say; without a choice all are the last. */
export function byAffinity(
  devices: ReadonlyMap<string, Device>,
  available: Iterable<string>,
  chosen: NumaMask | null,
): { readonly near: string[]; readonly far: string[]; readonly nowhere: string[] } {
  const ids = sortedIds(available);
  if (chosen === null || !isAligned(devices)) return { near: [], far: [], nowhere: ids };
  const nodesOfId = (id: string): readonly number[] => devices.get(id)?.nodes ?? [];
  const perNode = new Map<number, number>();
  for (const id of ids) for (const node of nodesOfId(id)) perNode.set(node, (perNode.get(node) ?? 0) + 1);
  // Nodes with the fewest devices first, so that those near several nodes are counted where they are scarce.
  const order = [...perNode.keys()].toSorted(
    (left, right) => Number(hasNode(chosen, right)) - Number(hasNode(chosen, left)) || (perNode.get(left) ?? 0) - (perNode.get(right) ?? 0) || left - right,
  );
  const place = (id: string): number | undefined => order.find((node) => nodesOfId(id).includes(node));
  const near = ids.filter((id) => hasNode(chosen, place(id) ?? 1_000));
  const nowhere = ids.filter((id) => nodesOfId(id).length === 0);
  return { near, nowhere, far: ids.filter((id) => !near.includes(id) && !nowhere.includes(id)) };
}

/** What must be asked of the plugin, and what to take whatever it says. */
export interface DeviceChoice {
  /** Taken already. */
  readonly taken: readonly string[];
  /** How many are still to be taken. */
  readonly open: number;
  /** What the plugin may choose from, what of it must be in, and of what its choice counts. Null: it need not be asked. */
  readonly ask: { readonly available: readonly string[]; readonly mustInclude: readonly string[]; readonly from: readonly string[] } | null;
  /** In this order, after what it prefers. */
  readonly rest: readonly string[];
}

/** Chooses `count` of a resource's devices: those of ended init containers first, then near ones, then the rest. */
export function chooseDevices(input: {
  readonly devices: ReadonlyMap<string, Device>;
  readonly available: DeviceIds;
  readonly reusable: DeviceIds;
  readonly count: number;
  readonly nodes: NumaMask | null;
}): DeviceChoice {
  const taken = sortedIds(input.reusable).slice(0, input.count);
  const open = input.count - taken.length;
  if (open === 0) return { taken, open, ask: null, rest: [] };
  const { near, far, nowhere } = byAffinity(input.devices, input.available, input.nodes);
  if (open < near.length) return { taken, open, ask: { available: sortedIds([...near, ...taken]), mustInclude: taken, from: near }, rest: near };
  const all = sortedIds(input.available);
  const missing = open - near.length;
  const withNear = sortedIds([...taken, ...near]);
  if (missing === 0) return { taken: withNear, open: 0, ask: null, rest: [] };
  return { taken: withNear, open: missing, ask: { available: sortedIds([...all, ...taken]), mustInclude: withNear, from: all }, rest: [...far, ...nowhere] };
}

/** Finishes a choice with what the plugin prefers. */
export function finishChoice(choice: DeviceChoice, preferred: readonly string[]): string[] {
  const allowed = new Set(choice.ask?.from);
  const taken = new Set(choice.taken);
  for (const id of [...preferred.filter((each) => allowed.has(each)), ...choice.rest]) {
    if (taken.size - choice.taken.length >= choice.open) break;
    taken.add(id);
  }
  return sortedIds(taken);
}

/** By NUMA node, -1 for those that do not say, as the checkpoint has them. */
export function byNode(devices: ReadonlyMap<string, Device>, ids: readonly string[]): ReadonlyMap<number, readonly string[]> {
  const groups = new Map<number, string[]>();
  for (const id of ids) {
    const nodes = devices.get(id)?.nodes ?? [];
    for (const node of nodes.length === 0 ? [-1] : nodes) groups.set(node, [...(groups.get(node) ?? []), id]);
  }
  return groups;
}

/** The NUMA nodes of one device out of such groups. */
export function nodesOfDevice(groups: ReadonlyMap<number, readonly string[]>, id: string): number[] {
  return nodesOf(maskOf([...groups].filter(([node, ids]) => node >= 0 && ids.includes(id)).map(([node]) => node)));
}
