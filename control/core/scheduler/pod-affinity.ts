import type { Pod, PodAffinityTerm } from '../../../proto/kube/types.ts';
import { selectorMatches } from '../controllers/selector.ts';
import type { NodeInfo } from './state.ts';

/** Labels of namespaces, for terms that choose namespaces by label. */
export type NamespaceLabels = ReadonlyMap<string, Readonly<Record<string, string>>>;

type Side = 'podAffinity' | 'podAntiAffinity';

const required = (pod: Pod, side: Side): PodAffinityTerm[] => pod.spec.affinity?.[side]?.requiredDuringSchedulingIgnoredDuringExecution ?? [];

/** Whether a term that `owner` carries speaks of `other`. */
export function termSelects(term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: NamespaceLabels): boolean {
  const namespace = other.metadata.namespace ?? '';
  const named = term.namespaces ?? [];
  const byDefault = named.length === 0 && term.namespaceSelector === undefined;
  const inScope =
    (byDefault && namespace === owner.metadata.namespace) ||
    named.includes(namespace) ||
    (term.namespaceSelector !== undefined && selectorMatches(term.namespaceSelector, namespaces.get(namespace) ?? {}));
  if (!inScope || !selectorMatches(term.labelSelector, other.metadata.labels)) return false;
  const same = (term.matchLabelKeys ?? []).every(
    (key) => owner.metadata.labels?.[key] === undefined || owner.metadata.labels[key] === other.metadata.labels?.[key],
  );
  const different = (term.mismatchLabelKeys ?? []).every(
    (key) => owner.metadata.labels?.[key] === undefined || owner.metadata.labels[key] !== other.metadata.labels?.[key],
  );
  return same && different;
}

/** Whether no pod of the cluster has any (anti-)affinity and neither has this one: then nothing needs to be counted. */
export function hasAffinity(pod: Pod): boolean {
  return pod.spec.affinity?.podAffinity !== undefined || pod.spec.affinity?.podAntiAffinity !== undefined;
}

const pairOf = (key: string, info: NodeInfo): string | undefined => {
  const value = info.node.metadata.labels?.[key];
  return value === undefined ? undefined : `${key}=${value}`;
};

export interface AffinityRules {
  /** Topology pairs that pods already there keep this pod out of. */
  existingAnti: ReadonlySet<string>;
  /** Topology pairs that the pod's own anti-affinity rules out. */
  ownAnti: ReadonlySet<string>;
  /** For each required affinity term the pairs that fulfil it; absent: fulfilled everywhere the key exists. */
  affinity: readonly { key: string; pairs: ReadonlySet<string> | undefined }[];
}

/** Counts once per decision what required pod (anti-)affinity allows. */
export function affinityRules(pod: Pod, nodes: readonly NodeInfo[], namespaces: NamespaceLabels): AffinityRules {
  const existingAnti = new Set<string>();
  const ownAnti = new Set<string>();
  const terms = required(pod, 'podAffinity');
  const pairs = terms.map(() => new Set<string>());
  for (const info of nodes) {
    for (const other of info.pods.values()) {
      for (const term of required(other, 'podAntiAffinity')) {
        const pair = pairOf(term.topologyKey, info);
        if (pair !== undefined && termSelects(term, other, pod, namespaces)) existingAnti.add(pair);
      }
      for (const term of required(pod, 'podAntiAffinity')) {
        const pair = pairOf(term.topologyKey, info);
        if (pair !== undefined && termSelects(term, pod, other, namespaces)) ownAnti.add(pair);
      }
      // All terms must speak of the same pod, as upstream has it.
      if (terms.length > 0 && terms.every((term) => termSelects(term, pod, other, namespaces))) {
        for (const [index, term] of terms.entries()) {
          const pair = pairOf(term.topologyKey, info);
          if (pair !== undefined) pairs[index]?.add(pair);
        }
      }
    }
  }
  // The first pod of a group that wants to be near its own kind may go anywhere.
  const first = pairs.every((set) => set.size === 0) && terms.every((term) => termSelects(term, pod, pod, namespaces));
  return { existingAnti, ownAnti, affinity: terms.map((term, index) => ({ key: term.topologyKey, pairs: first ? undefined : pairs[index] })) };
}

/** The reason a node is refused, in upstream's words. */
export function affinityRefusal(rules: AffinityRules, info: NodeInfo): { reason: string; hopeless: boolean } | undefined {
  const labels = info.node.metadata.labels ?? {};
  const has = (set: ReadonlySet<string>): boolean => set.size > 0 && Object.entries(labels).some(([key, value]) => set.has(`${key}=${value}`));
  const near = rules.affinity.every(({ key, pairs }) => labels[key] !== undefined && (pairs === undefined || pairs.has(`${key}=${labels[key]}`)));
  if (!near) return { reason: "node(s) didn't match pod affinity rules", hopeless: true };
  if (has(rules.ownAnti)) return { reason: "node(s) didn't match pod anti-affinity rules", hopeless: false };
  if (has(rules.existingAnti)) return { reason: "node(s) didn't satisfy existing pods anti-affinity rules", hopeless: false };
  return undefined;
}

/** Sums of preferred terms by topology pair: the pod's own, and those of the pods already there about this one. */
export function affinityWeights(pod: Pod, nodes: readonly NodeInfo[], namespaces: NamespaceLabels): Map<string, number> {
  const weights = new Map<string, number>();
  const add = (pair: string | undefined, weight: number): void => {
    if (pair !== undefined) weights.set(pair, (weights.get(pair) ?? 0) + weight);
  };
  const sides: readonly [Side, number][] = [
    ['podAffinity', 1],
    ['podAntiAffinity', -1],
  ];
  for (const info of nodes) {
    for (const other of info.pods.values()) {
      for (const [side, sign] of sides) {
        for (const { podAffinityTerm, weight } of pod.spec.affinity?.[side]?.preferredDuringSchedulingIgnoredDuringExecution ?? []) {
          if (termSelects(podAffinityTerm, pod, other, namespaces)) add(pairOf(podAffinityTerm.topologyKey, info), sign * weight);
        }
        for (const { podAffinityTerm, weight } of other.spec.affinity?.[side]?.preferredDuringSchedulingIgnoredDuringExecution ?? []) {
          if (termSelects(podAffinityTerm, other, pod, namespaces)) add(pairOf(podAffinityTerm.topologyKey, info), sign * weight);
        }
      }
      for (const term of required(other, 'podAffinity')) {
        if (termSelects(term, other, pod, namespaces)) add(pairOf(term.topologyKey, info), 1);
      }
    }
  }
  return weights;
}
