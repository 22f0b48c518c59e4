import type { Pod } from '../../proto/kube/types.ts';
import { durationMs } from '../../base/duration.ts';
import type { KubeletConfiguration } from './config.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import type { Verdict } from './status.ts';

/* Graceful node shutdown: KEP-2000, by priority KEP-2712. */

export interface ShutdownPeriod {
  readonly priority: number;
  readonly seconds: number;
}

export interface ShutdownGroup extends ShutdownPeriod {
  readonly pods: readonly Pod[];
}

/** What an admission is refused with while the node shuts down. */
export const shuttingDownVerdict: Verdict = { reason: 'NodeShutdown', message: 'Pod was rejected as the node is shutting down.' };
export const endReason = 'Terminated';
export const endMessage = 'Pod was terminated in response to imminent node shutdown.';
/** Part of the Ready condition's message. */
export const shutdownTrouble = 'node is shutting down';
/** Below `--root-dir`. */
export const stateFile = 'graceful_node_shutdown_state';

const systemCriticalPriority = 2_000_000_000;

/** The periods of a shutdown by rising priority; none: shutdowns are not waited for. */
export function shutdownPeriods(config: KubeletConfiguration): readonly ShutdownPeriod[] {
  if (!gateEnabled(config.featureGates, 'GracefulNodeShutdown')) return [];
  const byPriority = gateEnabled(config.featureGates, 'GracefulNodeShutdownBasedOnPodPriority') ? config.shutdownGracePeriodByPodPriority : [];
  const periods = byPriority.length > 0 ? byPriority.map(({ priority, shutdownGracePeriodSeconds: seconds }) => ({ priority, seconds })) : twoPeriods(config);
  return periods.toSorted((left, right) => left.priority - right.priority);
}

/** All pods but the critical ones get what is left of the whole period, then those get theirs. */
function twoPeriods(config: KubeletConfiguration): ShutdownPeriod[] {
  const [wholeMs, criticalMs] = [durationMs(config.shutdownGracePeriod), durationMs(config.shutdownGracePeriodCriticalPods)];
  if (wholeMs === 0 || criticalMs > wholeMs) return [];
  const seconds = (ms: number): number => Math.trunc(ms / 1000);
  return [
    { priority: 0, seconds: seconds(wholeMs - criticalMs) },
    { priority: systemCriticalPriority, seconds: seconds(criticalMs) },
  ];
}

/** For how long a shutdown must be put off. */
export function shutdownMs(periods: readonly ShutdownPeriod[]): number {
  return periods.reduce((sum, { seconds }) => sum + seconds, 0) * 1000;
}

/** Each pod in the last period that begins at or below its priority; those below all of them in the first. */
export function shutdownGroups(periods: readonly ShutdownPeriod[], pods: readonly Pod[]): ShutdownGroup[] {
  const groupOf = (pod: Pod): number =>
    Math.max(
      0,
      periods.findLastIndex(({ priority }) => priority <= (pod.spec.priority ?? 0)),
    );
  return periods.map((period, index) => ({ ...period, pods: pods.filter((pod) => groupOf(pod) === index) }));
}

/** What a pod gets to stop: what its group has, or less where it asks for less itself. */
export function shutdownGraceSeconds(group: ShutdownPeriod, pod: Pod): number {
  return Math.min(group.seconds, pod.spec.terminationGracePeriodSeconds ?? group.seconds);
}

/** When the last shutdown began and ended; Go's zero time until it has. */
export interface ShutdownState {
  readonly startMs: number | null;
  readonly endMs: number | null;
}

const zeroTime = '0001-01-01T00:00:00Z';

/** The state as upstream's file has it, so that either kubelet reads the other's. */
export function shutdownStateText({ startMs, endMs }: ShutdownState): string {
  const text = (ms: number | null): string => (ms === null ? zeroTime : new Date(ms).toISOString());
  return JSON.stringify({ startTime: text(startMs), endTime: text(endMs) });
}

/** Throws SyntaxError for what is no JSON. */
export function readShutdownState(text: string): ShutdownState {
  const { startTime, endTime } = JSON.parse(text) as { startTime?: string; endTime?: string };
  const ms = (time: string | undefined): number | null => {
    const at = time === undefined || time === zeroTime ? Number.NaN : Date.parse(time);
    return Number.isNaN(at) ? null : at;
  };
  return { startMs: ms(startTime), endMs: ms(endTime) };
}

/** logind puts a shutdown off only for as long as it is told to itself. */
export function logindConfiguration(delayMs: number): string {
  return `# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=${Math.round(delayMs / 1000)}\n`;
}
