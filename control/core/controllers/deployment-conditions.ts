import type { Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet } from '../../../proto/kube/types.ts';
import { timeMs } from './pods.ts';

/** Stands for "no limit" in progressDeadlineSeconds and revisionHistoryLimit. */
export const UNLIMITED = 2147483647;

export function deploymentCondition(status: DeploymentStatus, type: string): DeploymentCondition | undefined {
  return status.conditions?.find((condition) => condition.type === type);
}

/** Puts a condition in; one with the same status and reason stays as it is, transition times change with the status. */
export function withCondition(
  status: DeploymentStatus,
  type: string,
  value: { status: 'True' | 'False' | 'Unknown'; reason: string; message: string },
  now: string,
): DeploymentStatus {
  const before = deploymentCondition(status, type);
  if (before?.status === value.status && before.reason === value.reason) return status;
  const condition: DeploymentCondition = {
    type,
    ...value,
    lastUpdateTime: now,
    lastTransitionTime: before?.status === value.status ? (before.lastTransitionTime ?? now) : now,
  };
  return { ...withoutCondition(status, type), conditions: [...(withoutCondition(status, type).conditions ?? []), condition] };
}

export function withoutCondition(status: DeploymentStatus, type: string): DeploymentStatus {
  return { ...status, conditions: (status.conditions ?? []).filter((condition) => condition.type !== type) };
}

export function hasProgressDeadline(deployment: Deployment): boolean {
  const seconds = deployment.spec?.progressDeadlineSeconds;
  return seconds !== undefined && seconds !== null && seconds !== UNLIMITED;
}

/** Everything wanted is updated and available, and nothing old runs. */
export function isComplete(deployment: Deployment, status: DeploymentStatus): boolean {
  const wanted = deployment.spec?.replicas ?? 1;
  return (
    (status.updatedReplicas ?? 0) === wanted &&
    (status.replicas ?? 0) === wanted &&
    (status.availableReplicas ?? 0) === wanted &&
    (status.observedGeneration ?? 0) >= (deployment.metadata.generation ?? 0)
  );
}

/** More new, ready or available pods than before, or fewer old ones. */
function progresses(before: DeploymentStatus, after: DeploymentStatus): boolean {
  const old = (status: DeploymentStatus): number => (status.replicas ?? 0) - (status.updatedReplicas ?? 0);
  return (
    (after.updatedReplicas ?? 0) > (before.updatedReplicas ?? 0) ||
    old(after) < old(before) ||
    (after.readyReplicas ?? 0) > (before.readyReplicas ?? 0) ||
    (after.availableReplicas ?? 0) > (before.availableReplicas ?? 0)
  );
}

function hasTimedOut(deployment: Deployment, status: DeploymentStatus, nowMs: number): boolean {
  const condition = deploymentCondition(status, 'Progressing');
  if (condition === undefined || condition.reason === 'NewReplicaSetAvailable') return false;
  if (condition.reason === 'ProgressDeadlineExceeded') return true;
  return timeMs(condition.lastUpdateTime) + (deployment.spec?.progressDeadlineSeconds ?? 0) * 1000 < nowMs;
}

/** What the Progressing condition says after `after` was counted; `deployment.status` is what was known before. */
export function progressStatus(
  deployment: Deployment,
  after: DeploymentStatus,
  newReplicaSet: ReplicaSet | undefined,
  nowMs: number,
  now: string,
): DeploymentStatus {
  const before = deployment.status ?? {};
  if (!hasProgressDeadline(deployment)) return withoutCondition(after, 'Progressing');
  const current = deploymentCondition(before, 'Progressing');
  const wasComplete = (after.replicas ?? 0) === (after.updatedReplicas ?? 0) && current?.reason === 'NewReplicaSetAvailable';
  if (wasComplete) return after;
  const subject = newReplicaSet === undefined ? `Deployment "${deployment.metadata.name}"` : `ReplicaSet "${newReplicaSet.metadata.name}"`;
  if (isComplete(deployment, after)) {
    return withCondition(after, 'Progressing', { status: 'True', reason: 'NewReplicaSetAvailable', message: `${subject} has successfully progressed.` }, now);
  }
  if (progresses(before, after)) {
    const kept = current?.status === 'True' ? (current.lastTransitionTime ?? now) : now;
    const condition = {
      type: 'Progressing',
      status: 'True',
      reason: 'ReplicaSetUpdated',
      message: `${subject} is progressing.`,
      lastUpdateTime: now,
      lastTransitionTime: kept,
    };
    const rest = withoutCondition(after, 'Progressing');
    return { ...rest, conditions: [...(rest.conditions ?? []), condition] };
  }
  if (hasTimedOut(deployment, after, nowMs)) {
    return withCondition(after, 'Progressing', { status: 'False', reason: 'ProgressDeadlineExceeded', message: `${subject} has timed out progressing.` }, now);
  }
  return after;
}

/** When the progress deadline must be looked at again, in milliseconds from now. */
export function progressCheckAfterMs(deployment: Deployment, status: DeploymentStatus, nowMs: number): number | undefined {
  const current = deploymentCondition(status, 'Progressing');
  if (!hasProgressDeadline(deployment) || current === undefined) return undefined;
  if (isComplete(deployment, status) || current.reason === 'ProgressDeadlineExceeded' || current.reason === 'NewReplicaSetAvailable') return undefined;
  const dueMs = timeMs(current.lastUpdateTime) + (deployment.spec?.progressDeadlineSeconds ?? 0) * 1000;
  return Math.max(1000, dueMs - nowMs + 1000);
}

/** A failure to make pods, as one of the ReplicaSets reports it; the newest one speaks first. */
export function withReplicaFailure(status: DeploymentStatus, replicaSets: readonly ReplicaSet[], newReplicaSet: ReplicaSet | undefined): DeploymentStatus {
  const failureOf = (replicaSet: ReplicaSet | undefined) => replicaSet?.status?.conditions?.find((condition) => condition.type === 'ReplicaFailure');
  const failure = failureOf(newReplicaSet) ?? replicaSets.map(failureOf).find((found) => found !== undefined);
  if (failure === undefined) return withoutCondition(status, 'ReplicaFailure');
  const before = deploymentCondition(status, 'ReplicaFailure');
  if (before !== undefined && before.status === failure.status && before.reason === failure.reason) return status;
  const rest = withoutCondition(status, 'ReplicaFailure');
  return { ...rest, conditions: [...(rest.conditions ?? []), { ...failure, lastUpdateTime: failure.lastTransitionTime }] };
}
