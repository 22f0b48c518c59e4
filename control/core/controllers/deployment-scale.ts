import type { Deployment, ReplicaSet } from '../../../proto/kube/types.ts';
import { fenceposts } from './intstr.ts';
import { timeMs } from './pods.ts';

export const REVISION = 'deployment.kubernetes.io/revision';
export const REVISION_HISTORY = 'deployment.kubernetes.io/revision-history';
export const DESIRED_REPLICAS = 'deployment.kubernetes.io/desired-replicas';
export const MAX_REPLICAS = 'deployment.kubernetes.io/max-replicas';

export const wantedOf = (deployment: Deployment): number => deployment.spec?.replicas ?? 1;
export const sizeOf = (replicaSet: ReplicaSet): number => replicaSet.spec?.replicas ?? 1;
export const sumOf = (replicaSets: readonly ReplicaSet[], of: (replicaSet: ReplicaSet) => number): number =>
  replicaSets.reduce((sum, replicaSet) => sum + of(replicaSet), 0);
export const availableOf = (replicaSet: ReplicaSet): number => replicaSet.status?.availableReplicas ?? 0;

export function isRolling(deployment: Deployment): boolean {
  return (deployment.spec?.strategy?.type ?? 'RollingUpdate') === 'RollingUpdate';
}

function limits(deployment: Deployment): { surge: number; unavailable: number } {
  const rolling = deployment.spec?.strategy?.rollingUpdate;
  return fenceposts(rolling?.maxSurge, rolling?.maxUnavailable, wantedOf(deployment));
}

export function maxSurge(deployment: Deployment): number {
  return isRolling(deployment) ? limits(deployment).surge : 0;
}

export function maxUnavailable(deployment: Deployment): number {
  if (!isRolling(deployment) || wantedOf(deployment) === 0) return 0;
  return Math.min(limits(deployment).unavailable, wantedOf(deployment));
}

export function byAge(a: ReplicaSet, b: ReplicaSet): number {
  return timeMs(a.metadata.creationTimestamp) - timeMs(b.metadata.creationTimestamp) || compareText(a.metadata.name ?? '', b.metadata.name ?? '');
}

function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

/** How large the new ReplicaSet may be now, with `all` (the new one among them) as they are. */
export function newSize(deployment: Deployment, all: readonly ReplicaSet[], current: number): number {
  const wanted = wantedOf(deployment);
  if (!isRolling(deployment)) return wanted;
  const free = wanted + maxSurge(deployment) - sumOf(all, sizeOf);
  return free <= 0 ? current : current + Math.min(free, wanted - current);
}

/** Whether the new ReplicaSet alone carries the Deployment. */
export function isSaturated(deployment: Deployment, replicaSet: ReplicaSet | undefined): boolean {
  if (replicaSet === undefined) return false;
  const wanted = wantedOf(deployment);
  return sizeOf(replicaSet) === wanted && replicaSet.metadata.annotations?.[DESIRED_REPLICAS] === String(wanted) && availableOf(replicaSet) === wanted;
}

/** Whether the user changed the number of replicas since a ReplicaSet was last sized. */
export function isScalingEvent(deployment: Deployment, all: readonly ReplicaSet[]): boolean {
  return all.some((replicaSet) => {
    const desired = countAnnotation(replicaSet, DESIRED_REPLICAS);
    return sizeOf(replicaSet) > 0 && desired !== undefined && desired !== wantedOf(deployment);
  });
}

function countAnnotation(replicaSet: ReplicaSet, key: string): number | undefined {
  const text = replicaSet.metadata.annotations?.[key];
  return text !== undefined && /^\d{1,10}$/.test(text) && Number(text) <= 2147483647 ? Number(text) : undefined;
}

/** Sizes for all active ReplicaSets when a Deployment is scaled in the middle of a rollout: in proportion, leftovers to the largest. */
export function proportionalSizes(deployment: Deployment, active: readonly ReplicaSet[]): Map<ReplicaSet, number> {
  const wanted = wantedOf(deployment);
  const allowed = wanted > 0 ? wanted + maxSurge(deployment) : 0;
  const toAdd = allowed - sumOf(active, sizeOf);
  const newerFirst = toAdd > 0 ? -1 : 1;
  const sorted = active.toSorted((a, b) => sizeOf(b) - sizeOf(a) || newerFirst * byAge(a, b));
  const sizes = new Map<ReplicaSet, number>();
  let added = 0;
  for (const replicaSet of sorted) {
    const share = toAdd === 0 || toAdd === added || sizeOf(replicaSet) === 0 ? 0 : clampShare(fraction(deployment, replicaSet), toAdd - added);
    sizes.set(replicaSet, sizeOf(replicaSet) + share);
    added += share;
  }
  const largest = sorted[0];
  if (largest !== undefined && toAdd !== 0) sizes.set(largest, Math.max(0, (sizes.get(largest) ?? 0) + toAdd - added));
  return sizes;
}

function clampShare(share: number, left: number): number {
  return left > 0 ? Math.min(share, left) : Math.max(share, left);
}

function fraction(deployment: Deployment, replicaSet: ReplicaSet): number {
  const size = sizeOf(replicaSet);
  const wanted = wantedOf(deployment);
  if (wanted === 0) return -size;
  const maxBefore = countAnnotation(replicaSet, MAX_REPLICAS) || (deployment.status?.replicas ?? 0);
  if (maxBefore === 0) return 0;
  return roundAwayFromZero((size * (wanted + maxSurge(deployment))) / maxBefore) - size;
}

function roundAwayFromZero(value: number): number {
  return value < 0 ? -Math.round(-value) : Math.round(value);
}

/**
 * New sizes of old ReplicaSets in one step of a rolling update: first what is not available anyway, then as much as
 * leaves enough pods available.
 */
export function shrinkOld(deployment: Deployment, old: readonly ReplicaSet[], fresh: ReplicaSet): Map<ReplicaSet, number> {
  const sizes = new Map<ReplicaSet, number>();
  const minAvailable = wantedOf(deployment) - maxUnavailable(deployment);
  const freshUnavailable = sizeOf(fresh) - availableOf(fresh);
  const room = sumOf([...old, fresh], sizeOf) - minAvailable - freshUnavailable;
  if (sumOf(old, sizeOf) === 0 || room <= 0) return sizes;
  const oldest = old.toSorted(byAge);
  let cleaned = 0;
  for (const replicaSet of oldest) {
    const unhealthy = Math.min(room - cleaned, sizeOf(replicaSet) - availableOf(replicaSet));
    if (unhealthy <= 0) continue;
    cleaned += unhealthy;
    sizes.set(replicaSet, sizeOf(replicaSet) - unhealthy);
  }
  let spare = sumOf([...old, fresh], availableOf) - minAvailable;
  for (const replicaSet of oldest) {
    const size = sizes.get(replicaSet) ?? sizeOf(replicaSet);
    const less = Math.min(size, spare);
    if (less <= 0) continue;
    spare -= less;
    sizes.set(replicaSet, size - less);
  }
  return sizes;
}
