import type { Pod, ReplicaSet, ReplicaSetStatus } from '../../../proto/kube/types.ts';
import { semanticEqual, withoutZeros } from './equal.ts';
import { availableAtMs, containerStatuses, isPodActive, isPodAvailable, isPodReady, podCondition, timeMs } from './pods.ts';
import { mapMatches } from './selector.ts';

/** How many pods one step may make or delete. */
const BURST_REPLICAS = 500;

export interface ReplicaSetObserved {
  replicaSet: ReplicaSet;
  /** Pods the ReplicaSet controls, the ending ones too. */
  pods: readonly Pod[];
  /** Pods of all ReplicaSets of the same owner; those that share a node with others go first. */
  related: readonly Pod[];
  nowMs: number;
}

export interface ReplicaSetPlan {
  create: number;
  remove: readonly Pod[];
}

export function planReplicas(observed: ReplicaSetObserved): ReplicaSetPlan {
  const { replicaSet, pods, related, nowMs } = observed;
  if (replicaSet.metadata.deletionTimestamp) return { create: 0, remove: [] };
  const active = pods.filter(isPodActive);
  const missing = (replicaSet.spec.replicas ?? 1) - active.length;
  if (missing >= 0) return { create: Math.min(missing, BURST_REPLICAS), remove: [] };
  return { create: 0, remove: leastValuable(active, related, nowMs).slice(0, Math.min(-missing, BURST_REPLICAS)) };
}

const PHASE_ORDER: Record<string, number> = { Pending: 0, Unknown: 1, Running: 2 };

/** Active pods in the order in which they are given up. */
export function leastValuable(active: readonly Pod[], related: readonly Pod[], nowMs: number): Pod[] {
  const onNode = new Map<string, number>();
  for (const pod of related.filter(isPodActive)) {
    const node = pod.spec.nodeName ?? '';
    onNode.set(node, (onNode.get(node) ?? 0) + 1);
  }
  const rank = (pod: Pod): number => onNode.get(pod.spec.nodeName ?? '') ?? 0;
  return active.toSorted((a, b) => {
    const assigned = Number(Boolean(a.spec.nodeName)) - Number(Boolean(b.spec.nodeName));
    if (assigned !== 0) return assigned;
    const phase = (PHASE_ORDER[a.status?.phase ?? ''] ?? 0) - (PHASE_ORDER[b.status?.phase ?? ''] ?? 0);
    if (phase !== 0) return phase;
    const ready = Number(isPodReady(a)) - Number(isPodReady(b));
    if (ready !== 0) return ready;
    const cost = deletionCost(a) - deletionCost(b);
    if (cost !== 0) return cost;
    const crowded = rank(b) - rank(a);
    if (crowded !== 0) return crowded;
    if (isPodReady(a)) {
      const readyFor = younger(timeMs(podCondition(a, 'Ready')?.lastTransitionTime), timeMs(podCondition(b, 'Ready')?.lastTransitionTime), nowMs);
      if (readyFor !== 0) return readyFor;
      if (podCondition(a, 'Ready')?.lastTransitionTime !== podCondition(b, 'Ready')?.lastTransitionTime) return byUid(a, b);
    }
    const restarts = maxRestarts(b) - maxRestarts(a);
    if (restarts !== 0) return restarts;
    const age = younger(timeMs(a.metadata.creationTimestamp), timeMs(b.metadata.creationTimestamp), nowMs);
    return age !== 0 ? age : byUid(a, b);
  });
}

function byUid(a: Pod, b: Pod): number {
  return (a.metadata.uid ?? '') < (b.metadata.uid ?? '') ? -1 : 1;
}

/** Ages are compared by their powers of two, so that not always the same pod is hit. */
function younger(aMs: number, bMs: number, nowMs: number): number {
  if (aMs === bMs) return 0;
  const magnitude = (atMs: number): number => {
    const ageMs = nowMs - atMs;
    return ageMs <= 0 ? -1 : Math.floor(Math.log2(ageMs * 1e6));
  };
  return magnitude(aMs) - magnitude(bMs);
}

function deletionCost(pod: Pod): number {
  const text = pod.metadata.annotations?.['controller.kubernetes.io/pod-deletion-cost'] ?? '';
  return /^(0|-?[1-9]\d{0,9})$/.test(text) ? Number(text) : 0;
}

function maxRestarts(pod: Pod): number {
  return Math.max(0, ...containerStatuses(pod).map((container) => container.restartCount));
}

/** A failure to make or delete pods, as the status shows it. */
export interface ReplicaFailure {
  reason: 'FailedCreate' | 'FailedDelete';
  message: string;
}

export interface ReplicaSetStatusPlan {
  /** Absent when the status already says all this. */
  status?: ReplicaSetStatus;
  /** When the next pod becomes available without any further event. */
  checkAfterMs?: number;
}

export function planReplicaSetStatus(
  replicaSet: ReplicaSet,
  pods: readonly Pod[],
  failure: ReplicaFailure | undefined,
  nowMs: number,
  now: string,
): ReplicaSetStatusPlan {
  const before: ReplicaSetStatus = replicaSet.status ?? { replicas: 0 };
  const active = pods.filter(isPodActive);
  const minReadySeconds = replicaSet.spec.minReadySeconds ?? 0;
  const ready = active.filter(isPodReady);
  const conditions = failureConditions(before, failure, now);
  const status: ReplicaSetStatus = {
    replicas: active.length,
    fullyLabeledReplicas: active.filter((pod) => mapMatches(replicaSet.spec.template?.metadata?.labels, pod.metadata.labels)).length,
    readyReplicas: ready.length,
    availableReplicas: ready.filter((pod) => isPodAvailable(pod, minReadySeconds, nowMs)).length,
    terminatingReplicas: pods.filter((pod) => pod.metadata.deletionTimestamp && pod.status?.phase !== 'Succeeded' && pod.status?.phase !== 'Failed').length,
    observedGeneration: replicaSet.metadata.generation,
    ...(conditions.length === 0 ? {} : { conditions }),
  };
  const pending = ready.map((pod) => availableAtMs(pod, minReadySeconds) - nowMs).filter((waitMs) => waitMs > 0);
  const checkAfterMs = minReadySeconds > 0 && pending.length > 0 ? Math.min(...pending) + 1 : undefined;
  return {
    ...(sameStatus(before, status) ? {} : { status: withoutZeros(status, ['fullyLabeledReplicas', 'readyReplicas', 'availableReplicas']) }),
    ...(checkAfterMs === undefined ? {} : { checkAfterMs }),
  };
}

function failureConditions(before: ReplicaSetStatus, failure: ReplicaFailure | undefined, now: string): NonNullable<ReplicaSetStatus['conditions']> {
  const others = (before.conditions ?? []).filter((condition) => condition.type !== 'ReplicaFailure');
  if (failure === undefined) return others;
  const known = (before.conditions ?? []).find((condition) => condition.type === 'ReplicaFailure');
  return [...others, known ?? { type: 'ReplicaFailure', status: 'True', lastTransitionTime: now, ...failure }];
}

function sameStatus(a: ReplicaSetStatus, b: ReplicaSetStatus): boolean {
  const counts = (status: ReplicaSetStatus): number[] => [
    status.replicas,
    status.fullyLabeledReplicas ?? 0,
    status.readyReplicas ?? 0,
    status.availableReplicas ?? 0,
    status.terminatingReplicas ?? -1,
    status.observedGeneration ?? 0,
  ];
  return semanticEqual(counts(a), counts(b)) && semanticEqual(a.conditions, b.conditions);
}
