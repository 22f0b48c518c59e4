import type { Container, ContainerStateTerminated, ContainerStatus, Pod } from '../../proto/kube/types.ts';
import { isSidecar, restartsAfter } from './containers.ts';
import { restartingAll } from './restart-all.ts';

export type PodPhase = 'Pending' | 'Running' | 'Succeeded' | 'Failed';

export function isTerminalPhase(phase: string | undefined): boolean {
  return phase === 'Succeeded' || phase === 'Failed';
}

interface Counts {
  running: number;
  waiting: number;
  unknown: number;
  stopped: number;
  stoppedForGood: number;
  succeeded: number;
  initPending: number;
  initFailedForGood: number;
  sidecarPending: number;
}

/**
 * The phase, from the container statuses alone. `stopped` means that nothing of the pod will ever run again, so that
 * ended containers decide even where the restart policy would start them again.
 */
export function phaseOf(pod: Pod, statuses: readonly ContainerStatus[], stopped: boolean, initialized: boolean): PodPhase {
  const byName = new Map(statuses.map((status) => [status.name, status]));
  const counts: Counts = {
    running: 0,
    waiting: 0,
    unknown: 0,
    stopped: 0,
    stoppedForGood: 0,
    succeeded: 0,
    initPending: 0,
    initFailedForGood: 0,
    sidecarPending: 0,
  };
  for (const container of pod.spec.initContainers ?? []) {
    if (isSidecar(container)) countSidecar(counts, byName.get(container.name));
    else countInit(counts, pod, container, byName.get(container.name));
  }
  for (const container of pod.spec.containers) countApp(counts, pod, container, byName.get(container.name));
  if (counts.initFailedForGood > 0) return 'Failed';
  if (counts.initPending > 0 || (counts.sidecarPending > 0 && !initialized) || counts.waiting > 0) return 'Pending';
  if (counts.unknown > 0) return 'Pending';
  if (counts.running > 0) return 'Running';
  if (counts.stopped === 0) return 'Pending';
  if (!stopped && counts.stopped !== counts.stoppedForGood) return 'Running';
  return counts.stopped === counts.succeeded ? 'Succeeded' : 'Failed';
}

function countInit(counts: Counts, pod: Pod, container: Container, status: ContainerStatus | undefined): void {
  const ended = status?.state?.terminated ?? (status?.state?.waiting === undefined ? undefined : status.lastState?.terminated);
  if (ended === undefined) counts.initPending += 1;
  else if (ended.exitCode !== 0 && !runsAgain(pod, container, ended)) counts.initFailedForGood += 1;
}

function runsAgain(pod: Pod, container: Container, ended: ContainerStateTerminated): boolean {
  return ended.reason === restartingAll || restartsAfter(container, pod.spec, ended.exitCode);
}

/** Sidecars that ended or restart do not count: only their first start holds the pod back. */
function countSidecar(counts: Counts, status: ContainerStatus | undefined): void {
  const state = status?.state;
  if (status === undefined) counts.unknown += 1;
  else if (state?.running !== undefined) {
    if (status.started !== true) counts.sidecarPending += 1;
    counts.running += 1;
  } else if (state?.terminated !== undefined) return;
  else if (state?.waiting !== undefined) {
    if (status.lastState?.terminated !== undefined) return;
    counts.sidecarPending += 1;
    counts.waiting += 1;
  } else {
    counts.sidecarPending += 1;
    counts.unknown += 1;
  }
}

function countApp(counts: Counts, pod: Pod, container: Container, status: ContainerStatus | undefined): void {
  const state = status?.state;
  if (state?.running !== undefined) {
    counts.running += 1;
    return;
  }
  const ended = state?.terminated ?? (state?.waiting === undefined ? undefined : status?.lastState?.terminated);
  if (ended !== undefined) {
    counts.stopped += 1;
    if (!runsAgain(pod, container, ended)) counts.stoppedForGood += 1;
    // A clean end that already waits for its next run is no success of the pod.
    if (ended.exitCode === 0 && state?.terminated !== undefined) counts.succeeded += 1;
  } else if (state?.waiting !== undefined) counts.waiting += 1;
  else counts.unknown += 1;
}
