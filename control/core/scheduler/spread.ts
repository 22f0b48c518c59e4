import type { LabelSelector, Pod, TopologySpreadConstraint } from '../../../proto/kube/types.ts';
import { selectorMatches } from '../controllers/selector.ts';
import { nodeAffinityMatches, untoleratedTaint } from './node-rules.ts';
import type { NodeInfo } from './state.ts';

/** What pods without constraints of their own are spread by, softly. */
const DEFAULT_CONSTRAINTS: readonly { maxSkew: number; topologyKey: string }[] = [
  { maxSkew: 3, topologyKey: 'kubernetes.io/hostname' },
  { maxSkew: 5, topologyKey: 'topology.kubernetes.io/zone' },
];

/** Pods of the same group that are not on their way out. */
function countMatching(info: NodeInfo, pod: Pod, selects: (other: Pod) => boolean): number {
  let count = 0;
  for (const other of info.pods.values()) {
    if (other.metadata.namespace === pod.metadata.namespace && !other.metadata.deletionTimestamp && selects(other)) count++;
  }
  return count;
}

function selects(constraint: TopologySpreadConstraint, pod: Pod, other: Pod): boolean {
  if (!selectorMatches(constraint.labelSelector, other.metadata.labels)) return false;
  return (constraint.matchLabelKeys ?? []).every(
    (key) => pod.metadata.labels?.[key] === undefined || pod.metadata.labels[key] === other.metadata.labels?.[key],
  );
}

/** Whether a node's pods count for a constraint, by its node inclusion policies. */
function counts(constraint: TopologySpreadConstraint, pod: Pod, info: NodeInfo): boolean {
  if ((constraint.nodeAffinityPolicy ?? 'Honor') === 'Honor' && !nodeAffinityMatches(pod, info.node)) return false;
  return (constraint.nodeTaintsPolicy ?? 'Ignore') === 'Ignore' || untoleratedTaint(info.node, pod) === undefined;
}

export interface HardConstraint {
  constraint: TopologySpreadConstraint;
  matching: ReadonlyMap<string, number>;
  fewest: number;
  /** 1 when the pod counts itself. */
  self: number;
}

/** Counts once per decision what the DoNotSchedule constraints look at. */
export function hardConstraints(pod: Pod, nodes: readonly NodeInfo[]): HardConstraint[] {
  const hard = (pod.spec.topologySpreadConstraints ?? []).filter((constraint) => constraint.whenUnsatisfiable === 'DoNotSchedule');
  return hard.map((constraint) => {
    const matching = new Map<string, number>();
    for (const info of nodes) {
      const hasAllKeys = hard.every((other) => info.node.metadata.labels?.[other.topologyKey] !== undefined);
      const domain = info.node.metadata.labels?.[constraint.topologyKey];
      if (!hasAllKeys || domain === undefined || !counts(constraint, pod, info)) continue;
      matching.set(domain, (matching.get(domain) ?? 0) + countMatching(info, pod, (other) => selects(constraint, pod, other)));
    }
    const fewest = matching.size < (constraint.minDomains ?? 1) ? 0 : Math.min(...matching.values());
    return { constraint, matching, fewest: Number.isFinite(fewest) ? fewest : 0, self: selects(constraint, pod, pod) ? 1 : 0 };
  });
}

export function spreadRefusal(hard: readonly HardConstraint[], info: NodeInfo): { reason: string; hopeless: boolean } | undefined {
  for (const { constraint, matching, fewest, self } of hard) {
    const domain = info.node.metadata.labels?.[constraint.topologyKey];
    if (domain === undefined) return { reason: "node(s) didn't match pod topology spread constraints (missing required label)", hopeless: true };
    if ((matching.get(domain) ?? 0) + self - fewest > constraint.maxSkew)
      return { reason: "node(s) didn't match pod topology spread constraints", hopeless: false };
  }
  return undefined;
}

/**
 * Lower is better spread: for each soft constraint the pods of the same group in the node's domain, weighed by how many
 * domains there are. Absent when there is nothing to spread by.
 */
export function spreadCosts(
  pod: Pod,
  feasible: readonly NodeInfo[],
  all: readonly NodeInfo[],
  groupSelectors: readonly LabelSelector[],
): Map<NodeInfo, number> | undefined {
  const own = pod.spec.topologySpreadConstraints ?? [];
  const soft = own
    .filter((constraint) => constraint.whenUnsatisfiable === 'ScheduleAnyway')
    .map((constraint) => ({
      key: constraint.topologyKey,
      maxSkew: constraint.maxSkew,
      matches: (other: Pod) => selects(constraint, pod, other),
    }));
  const byDefault = own.length === 0 && groupSelectors.length > 0;
  if (byDefault) {
    const matches = (other: Pod): boolean => groupSelectors.every((selector) => selectorMatches(selector, other.metadata.labels));
    soft.push(...DEFAULT_CONSTRAINTS.map(({ topologyKey, maxSkew }) => ({ key: topologyKey, maxSkew, matches })));
  }
  if (soft.length === 0) return undefined;
  const costs = new Map<NodeInfo, number>(feasible.map((info) => [info, 0]));
  for (const { key, maxSkew, matches } of soft) {
    const domains = new Set(feasible.flatMap((info) => info.node.metadata.labels?.[key] ?? []));
    if (domains.size === 0) continue;
    const matching = new Map<string, number>();
    for (const info of all) {
      const domain = info.node.metadata.labels?.[key];
      if (domain !== undefined && domains.has(domain)) matching.set(domain, (matching.get(domain) ?? 0) + countMatching(info, pod, matches));
    }
    const weight = Math.log(domains.size + 2);
    for (const info of feasible) {
      const domain = info.node.metadata.labels?.[key];
      if (domain !== undefined) costs.set(info, (costs.get(info) ?? 0) + (matching.get(domain) ?? 0) * weight + (maxSkew - 1));
    }
  }
  return costs;
}
