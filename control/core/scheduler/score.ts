import type { LabelSelector, Pod } from '../../../proto/kube/types.ts';
import { preferredNodeWeight, softTaints } from './node-rules.ts';
import { affinityWeights, hasAffinity, type NamespaceLabels } from './pod-affinity.ts';
import { plus, scoringRequests } from './resources.ts';
import { spreadCosts } from './spread.ts';
import type { NodeInfo } from './state.ts';

const MAX = 100;
const MIB = 1024 * 1024;
const IMAGE_MIN_BYTES = 23 * MIB;
const IMAGE_MAX_BYTES_PER_CONTAINER = 1000 * MIB;

export interface ScoringView {
  all: readonly NodeInfo[];
  namespaces: NamespaceLabels;
  /** Selectors of the Services and owners of the pod, which the default spreading goes by. */
  groupSelectors: readonly LabelSelector[];
}

/** A number for each node that could run the pod; the highest wins. Weights are upstream's defaults. */
export function scoreNodes(pod: Pod, feasible: readonly NodeInfo[], view: ScoringView): Map<NodeInfo, number> {
  const totals = new Map<NodeInfo, number>(feasible.map((info) => [info, 0]));
  const add = (weight: number, scores: ReadonlyMap<NodeInfo, number>): void => {
    for (const info of feasible) totals.set(info, (totals.get(info) ?? 0) + weight * Math.trunc(scores.get(info) ?? 0));
  };
  const each = (of: (info: NodeInfo) => number): Map<NodeInfo, number> => new Map(feasible.map((info) => [info, of(info)]));

  add(
    3,
    normalized(
      each((info) => softTaints(info.node, pod)),
      true,
    ),
  );
  add(
    2,
    normalized(
      each((info) => preferredNodeWeight(pod, info.node)),
      false,
    ),
  );
  add(
    1,
    each((info) => leastAllocated(pod, info)),
  );
  add(
    1,
    each((info) => balance(pod, info)),
  );
  const costs = spreadCosts(pod, feasible, view.all, view.groupSelectors);
  if (costs !== undefined) add(2, invertedCosts(costs));
  if (hasAffinity(pod) || view.all.some((info) => [...info.pods.values()].some(hasAffinity))) add(2, affinityScores(pod, feasible, view));
  add(
    1,
    each((info) => imageLocality(pod, info, view.all)),
  );
  return totals;
}

function normalized(scores: Map<NodeInfo, number>, reverse: boolean): Map<NodeInfo, number> {
  const highest = Math.max(0, ...scores.values());
  return new Map(
    [...scores].map(([info, score]) => {
      const share = highest === 0 ? 0 : Math.trunc((score * MAX) / highest);
      return [info, reverse ? MAX - share : share];
    }),
  );
}

function invertedCosts(costs: Map<NodeInfo, number>): Map<NodeInfo, number> {
  const rounded = new Map([...costs].map(([info, cost]) => [info, Math.round(cost)]));
  const highest = Math.max(...rounded.values());
  const lowest = Math.min(...rounded.values());
  return new Map([...rounded].map(([info, cost]) => [info, highest === 0 ? MAX : Math.trunc((MAX * (highest + lowest - cost)) / highest)]));
}

function affinityScores(pod: Pod, feasible: readonly NodeInfo[], view: ScoringView): Map<NodeInfo, number> {
  const weights = affinityWeights(pod, view.all, view.namespaces);
  const sums = new Map(
    feasible.map((info) => [
      info,
      Object.entries(info.node.metadata.labels ?? {}).reduce((sum, [key, value]) => sum + (weights.get(`${key}=${value}`) ?? 0), 0),
    ]),
  );
  const lowest = Math.min(...sums.values());
  const range = Math.max(...sums.values()) - lowest;
  return new Map([...sums].map(([info, sum]) => [info, range === 0 ? 0 : (MAX * (sum - lowest)) / range]));
}

function leastAllocated(pod: Pod, info: NodeInfo): number {
  const after = plus(info.scored, scoringRequests(pod));
  const shares = ['cpu', 'memory'].flatMap((name) => {
    const has = info.capacity[name] ?? 0;
    const used = after[name] ?? 0;
    return has === 0 ? [] : [used > has ? 0 : Math.trunc(((has - used) * MAX) / has)];
  });
  return shares.length === 0 ? 0 : shares.reduce((sum, share) => sum + share, 0) / shares.length;
}

/** How evenly cpu and memory are used with the pod, compared with how evenly they are used without it. */
function balance(pod: Pod, info: NodeInfo): number {
  const evenness = (used: Readonly<Record<string, number>>): number => {
    const shares = ['cpu', 'memory'].flatMap((name) => ((info.capacity[name] ?? 0) === 0 ? [] : [Math.min(1, (used[name] ?? 0) / (info.capacity[name] ?? 1))]));
    const deviation = shares.length === 2 ? Math.abs(((shares[0] ?? 0) - (shares[1] ?? 0)) / 2) : 0;
    return Math.trunc((1 - deviation) * MAX);
  };
  return MAX / 2 + Math.trunc((MAX / 2 + evenness(plus(info.scored, scoringRequests(pod))) - evenness(info.scored)) / 2);
}

function imageLocality(pod: Pod, info: NodeInfo, all: readonly NodeInfo[]): number {
  const containers = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const sum = containers.reduce((bytes, container) => {
    const name = imageName(container.image ?? '');
    const holds = (other: NodeInfo) => other.node.status?.images?.find((image) => image.names?.includes(name));
    const size = holds(info)?.sizeBytes ?? 0;
    return size === 0 ? bytes : bytes + Math.trunc((size * all.filter((other) => holds(other) !== undefined).length) / all.length);
  }, 0);
  const most = IMAGE_MAX_BYTES_PER_CONTAINER * containers.length;
  const bounded = Math.min(Math.max(sum, IMAGE_MIN_BYTES), most);
  return Math.trunc((MAX * (bounded - IMAGE_MIN_BYTES)) / (most - IMAGE_MIN_BYTES));
}

function imageName(image: string): string {
  return image.lastIndexOf(':') <= image.lastIndexOf('/') ? `${image}:latest` : image;
}
