import type { Container, Probe } from '../../proto/kube/types.ts';
import type { ProbeKind, ProbeOutcome } from './types.ts';

/** A probe's numbers, with the API server's defaults where none are given. */
export interface ProbeTiming {
  readonly initialDelayMs: number;
  readonly periodMs: number;
  readonly timeoutMs: number;
  readonly successThreshold: number;
  readonly failureThreshold: number;
}

/** No timer waits longer. */
const longestMs = 2 ** 31 - 1;

export function timingOf(probe: Probe): ProbeTiming {
  return {
    initialDelayMs: (probe.initialDelaySeconds ?? 0) * 1000,
    periodMs: (probe.periodSeconds || 10) * 1000,
    timeoutMs: Math.min((probe.timeoutSeconds || 1) * 1000, longestMs),
    successThreshold: probe.successThreshold || 1,
    failureThreshold: probe.failureThreshold || 3,
  };
}

export const probeKinds: readonly ProbeKind[] = ['startup', 'readiness', 'liveness'];

export function probeOf(container: Container, kind: ProbeKind): Probe | undefined {
  if (kind === 'startup') return container.startupProbe;
  return kind === 'readiness' ? container.readinessProbe : container.livenessProbe;
}

/** What is known of one probe of one container. */
export interface ProbeCounter {
  /** What the thresholds let through last. */
  readonly outcome: ProbeOutcome;
  /** The newest result, and how many times in a row it came. */
  readonly last: 'success' | 'failure' | null;
  readonly run: number;
  /** A liveness or startup probe that failed is not run again on this container: it will be killed. */
  readonly held: boolean;
}

export function newCounter(outcome: ProbeOutcome = 'unknown'): ProbeCounter {
  return { outcome, last: null, run: 0, held: false };
}

/** One more result. */
export function counted(counter: ProbeCounter, kind: ProbeKind, timing: ProbeTiming, result: 'success' | 'failure'): ProbeCounter {
  const run = counter.last === result ? counter.run + 1 : 1;
  const threshold = result === 'success' ? timing.successThreshold : timing.failureThreshold;
  if (run < threshold) return { ...counter, last: result, run };
  const held = result === 'failure' && kind !== 'readiness';
  return { outcome: result, last: result, run: held ? 0 : run, held };
}

/**
 * Whether the pod has to be looked at again. A container that is not known to be ready is not ready, and one that is
 * not known to be alive is alive: first results that say so change nothing.
 */
export function isNews(kind: ProbeKind, before: ProbeOutcome, after: ProbeOutcome): boolean {
  if (kind === 'startup') return before !== after;
  const word = kind === 'readiness' ? 'success' : 'failure';
  return (before === word) !== (after === word);
}

/** How long after its first failure a container that has just started is asked again whether it is ready; then twice as long. */
const youngRetryMs = 250;
const youngMs = 2_000;

/**
 * When the next run is due, counted from the start of the last one; 0 is at once. A server needs a moment to listen
 * after its process runs: upstream asks a new container again at each of the status changes around its start, and
 * so a container that comes up in 300 ms is not unready for a whole period.
 */
export function nextDelayMs(counter: ProbeCounter, kind: ProbeKind, timing: ProbeTiming, ageMs: number, tookMs: number): number {
  const isYoung = kind === 'readiness' && counter.outcome !== 'success' && ageMs < youngMs;
  const periodMs = isYoung ? Math.min(youngRetryMs * 2 ** Math.max(0, counter.run - 1), timing.periodMs) : timing.periodMs;
  return Math.max(0, periodMs - tookMs);
}

export const probeTitle: Readonly<Record<ProbeKind, string>> = { startup: 'Startup', readiness: 'Readiness', liveness: 'Liveness' };
