import type { Pod, PodStatus } from '../../proto/kube/types.ts';
import { timeMs } from '../../base/time.ts';

/**
 * How long a pod took to start, as the "Pod startup latency SLI" of sig-scalability has it: from its creation until
 * all containers are seen to run in what the API server tells, less pulling images and init containers.
 */
export interface StartLatency {
  readonly totalMs: number;
  readonly sliMs: number;
}

/** A stretch of time, wall clock. */
export interface Stretch {
  readonly fromMs: number;
  readonly toMs: number;
}

/** Whether every app container runs. */
export function allStarted(status: PodStatus | undefined): boolean {
  const told = status?.containerStatuses ?? [];
  return told.length > 0 && told.every(({ state }) => timeMs(state?.running?.startedAt) > 0);
}

/** A pod that had to wait for the scheduler is not counted. */
export function wasUnschedulable(pod: Pod): boolean {
  return (pod.status?.conditions ?? []).some(({ type, status }) => type === 'PodScheduled' && status === 'False');
}

/** Pods with volumes that must be mounted from elsewhere stand outside of the SLI. */
export function isStateful(pod: Pod): boolean {
  return (pod.spec.volumes ?? []).some(
    ({ secret, configMap, downwardAPI, emptyDir, projected }) => (secret ?? configMap ?? downwardAPI ?? emptyDir ?? projected) === undefined,
  );
}

/** Time that is covered by any of the stretches, which may lie over each other. */
export function coveredMs(stretches: readonly Stretch[]): number {
  let sum = 0;
  let endMs = Number.NEGATIVE_INFINITY;
  for (const { fromMs, toMs } of stretches.toSorted((a, b) => a.fromMs - b.fromMs)) {
    if (toMs > endMs) sum += toMs - Math.max(fromMs, endMs);
    endMs = Math.max(endMs, toMs);
  }
  return sum;
}

export function startLatency(pod: Pod, pulls: readonly Stretch[], seenMs: number): StartLatency {
  const totalMs = seenMs - timeMs(pod.metadata.creationTimestamp);
  const inits = (pod.status?.initContainerStatuses ?? []).map(({ state }) => {
    const { startedAt, finishedAt } = state?.terminated ?? {};
    return Math.max(0, timeMs(finishedAt) - timeMs(startedAt));
  });
  return { totalMs, sliMs: totalMs - coveredMs(pulls) - inits.reduce((sum, each) => sum + each, 0) };
}
