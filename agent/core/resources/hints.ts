import { countOf, isNarrower, maskOf, nodesOf } from './numa-mask.ts';
import type { NumaMask } from './numa-mask.ts';

/** NUMA nodes that a request could be served from; null: any. */
export interface Hint {
  readonly nodes: NumaMask | null;
  readonly preferred: boolean;
}

/** By resource. `null`: no preference; an empty list: it cannot be served anyhow. */
export type Hints = ReadonlyMap<string, readonly Hint[] | null>;

export const topologyPolicies = ['none', 'best-effort', 'restricted', 'single-numa-node'] as const;
export type TopologyPolicy = (typeof topologyPolicies)[number];

export interface NumaInfo {
  readonly nodes: readonly number[];
  /** By node: how far each node (by its number) is. */
  readonly distances: ReadonlyMap<number, readonly number[]>;
}

export interface MergeOptions {
  readonly policy: TopologyPolicy;
  readonly preferClosest: boolean;
  readonly numa: NumaInfo;
}

/**
 * The best NUMA nodes for what all providers say, and whether the policy takes a pod on them: of all choices of one hint
 * each the one whose common nodes are preferred by all and the fewest (KEP-693; upstream's topologymanager).
 */
export function mergeHints(providers: readonly Hints[], options: MergeOptions): { readonly best: Hint; readonly admit: boolean } {
  const { policy, numa } = options;
  const all = maskOf(numa.nodes);
  let lists = listsOf(providers);
  const single = policy === 'single-numa-node';
  if (single) lists = lists.map((hints) => hints.filter((hint) => hint.preferred && (hint.nodes === null || countOf(hint.nodes) === 1)));
  const closest = options.preferClosest && !single;
  const limit = maxOfNarrowest(lists);
  let best: Hint | null = null;
  for (const choice of choices(lists)) best = better(best, merged(all, choice), limit, closest, numa);
  let chosen = best ?? { nodes: all, preferred: false };
  if (single && chosen.nodes === all) chosen = { nodes: null, preferred: chosen.preferred };
  return { best: chosen, admit: policy === 'none' || policy === 'best-effort' || chosen.preferred };
}

function listsOf(providers: readonly Hints[]): (readonly Hint[])[] {
  const lists: (readonly Hint[])[] = [];
  for (const hints of providers) {
    if (hints.size === 0) lists.push([{ nodes: null, preferred: true }]);
    for (const list of hints.values())
      lists.push(list === null ? [{ nodes: null, preferred: true }] : list.length === 0 ? [{ nodes: null, preferred: false }] : list);
  }
  return lists;
}

function* choices(lists: readonly (readonly Hint[])[], from = 0): Generator<readonly Hint[]> {
  if (from === lists.length) {
    yield [];
    return;
  }
  for (const hint of lists[from] ?? []) for (const rest of choices(lists, from + 1)) yield [hint, ...rest];
}

function merged(all: NumaMask, choice: readonly Hint[]): { nodes: NumaMask; preferred: boolean } {
  const masks = choice.flatMap(({ nodes }) => (nodes === null ? [] : [nodes]));
  const preferred = choice.every((hint) => hint.preferred) && masks.every((mask) => mask === masks[0]);
  return { nodes: masks.reduce((common, mask) => common & mask, all), preferred };
}

/** The most nodes that any resource needs at least: what is not preferred should come near to it. */
function maxOfNarrowest(lists: readonly (readonly Hint[])[]): number {
  let most = 0;
  for (const hints of lists) {
    const masks = hints.flatMap(({ nodes }) => (nodes === null ? [] : [nodes]));
    if (masks.length > 0) most = Math.max(most, countOf(masks.reduce((narrowest, mask) => (isNarrower(mask, narrowest) ? mask : narrowest))));
  }
  return most;
}

type Merged = { readonly nodes: NumaMask | null; readonly preferred: boolean };

function better(current: Merged | null, candidate: { nodes: NumaMask; preferred: boolean }, limit: number, closest: boolean, numa: NumaInfo): Merged | null {
  const size = countOf(candidate.nodes);
  if (size === 0) return current;
  if (current === null || current.nodes === null) return candidate;
  if (current.preferred !== candidate.preferred) return candidate.preferred ? candidate : current;
  const nearer = (): Merged => (isBetterMask(current.nodes ?? 0n, candidate.nodes, closest, numa) ? candidate : current);
  if (current.preferred) return nearer();
  const currentSize = countOf(current.nodes);
  if (currentSize > limit) return nearer();
  if (currentSize === limit) return size === limit ? nearer() : current;
  if (size > limit) return current;
  if (size === limit || size > currentSize) return candidate;
  return size < currentSize ? current : nearer();
}

function isBetterMask(current: NumaMask, candidate: NumaMask, closest: boolean, numa: NumaInfo): boolean {
  if (candidate === current) return false;
  if (!closest || countOf(current) !== countOf(candidate)) return !isNarrower(current, candidate);
  const [near, other] = [averageDistance(current, numa), averageDistance(candidate, numa)];
  return near === other ? candidate < current : other < near;
}

function averageDistance(mask: NumaMask, numa: NumaInfo): number {
  const nodes = nodesOf(mask);
  let total = 0;
  for (const from of nodes) for (const to of nodes) total += numa.distances.get(from)?.[to] ?? 0;
  return nodes.length === 0 ? 0 : total / nodes.length ** 2;
}
