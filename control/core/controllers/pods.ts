import type { ContainerStatus, Pod } from '../../../proto/kube/types.ts';

/** Milliseconds since 1970 of an API time; 0 when it is absent. */
export function timeMs(time: string | null | undefined): number {
  return time ? Date.parse(time) : 0;
}

export function podCondition(pod: Pod, type: string): { status: string; lastTransitionTime?: string | null; reason?: string; message?: string } | undefined {
  return pod.status?.conditions?.find((condition) => condition.type === type);
}

export function isPodReady(pod: Pod): boolean {
  return podCondition(pod, 'Ready')?.status === 'True';
}

export function isPodTerminal(pod: Pod): boolean {
  return pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
}

/** Counts against a replica count: not finished and not being deleted. */
export function isPodActive(pod: Pod): boolean {
  return !isPodTerminal(pod) && !pod.metadata.deletionTimestamp;
}

/** When the pod has been Ready long enough, or 0 when it is not Ready. */
export function availableAtMs(pod: Pod, minReadySeconds: number): number {
  const ready = podCondition(pod, 'Ready');
  if (ready?.status !== 'True') return 0;
  return timeMs(ready.lastTransitionTime) + minReadySeconds * 1000 || 1;
}

export function isPodAvailable(pod: Pod, minReadySeconds: number, nowMs: number): boolean {
  if (!isPodReady(pod)) return false;
  return minReadySeconds === 0 || (availableAtMs(pod, minReadySeconds) <= nowMs && timeMs(podCondition(pod, 'Ready')?.lastTransitionTime) > 0);
}

export function containerStatuses(pod: Pod): readonly ContainerStatus[] {
  return pod.status?.containerStatuses ?? [];
}
