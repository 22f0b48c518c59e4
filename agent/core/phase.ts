import { assert } from '../../base/assert.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { Verdict } from './status.ts';
import { isStatic } from './static-pod.ts';
import { isTerminalPhase } from './status-phase.ts';
import { timeMs } from '../../base/time.ts';

/**
 * The life of a pod on this node. It only ever moves to the right:
 *
 *   waiting ──► starting ──► running ──► terminating ──► terminated ──► gone
 *      │            └───────────────────────▲                ▲
 *      └─────────────────────────────────────────────────────┘
 *
 * waiting      nothing has been asked of the runtime; admission has not answered, or refuses for now
 * starting     sandbox and containers are being made; some app container has not run yet
 * running      every app container has run at least once; restarts happen here
 * terminating  containers are being stopped; nothing may be started any more
 * terminated   nothing runs; volumes and cgroups go, the last status is written, the object stays until it is deleted
 * gone         nothing is left to do for this UID; the worker ends
 */
export type PodLife =
  | { readonly phase: 'waiting' }
  | { readonly phase: 'starting' }
  | { readonly phase: 'running' }
  | { readonly phase: 'terminating'; readonly end: PodEnd }
  | { readonly phase: 'terminated'; readonly end: PodEnd; readonly cleaned: boolean }
  | { readonly phase: 'gone' };

/** Why and how a pod ends. */
export interface PodEnd {
  readonly cause: 'deleted' | 'removed' | 'completed' | 'deadline' | 'evicted' | 'rejected' | 'orphan';
  /** Whole seconds for everything; null: each container's own rule. */
  readonly graceSeconds: number | null;
  /** When the end began, monotonic, so that a second look does not give a second whole grace period. */
  readonly sinceMs: number;
  readonly verdict: Verdict | null;
}

const order = ['waiting', 'starting', 'running', 'terminating', 'terminated', 'gone'] as const;

/** Moves on; moving back is a defect of ours. */
export function advance(from: PodLife, to: PodLife): PodLife {
  const step = order.indexOf(to.phase) - order.indexOf(from.phase);
  const shortened = from.phase === 'terminating' && to.phase === 'terminating';
  const cleaned = from.phase === 'terminated' && to.phase === 'terminated';
  assert(step > 0 || shortened || cleaned || (step === 0 && from.phase === to.phase), `a pod's life went from ${from.phase} back to ${to.phase}`);
  return to;
}

/** Whether containers may be started in this part of life. */
export function mayStart(life: PodLife): boolean {
  return life.phase === 'waiting' || life.phase === 'starting' || life.phase === 'running';
}

/** Whether anything of the pod may still run. */
export function mayRun(life: PodLife): boolean {
  return life.phase !== 'terminated' && life.phase !== 'gone';
}

/** The node ends a pod. */
export interface Eviction {
  /** Null: the pod's own. */
  readonly graceMs: number | null;
  readonly verdict: Verdict;
}

export interface EndInput {
  /** What the source wants; undefined when the source no longer has it. */
  readonly pod: Pod | undefined;
  /** The last known object, for a pod that its source has dropped. */
  readonly known: Pod | undefined;
  readonly eviction: Eviction | null;
  /** Start time as told to the API server. */
  readonly startTime: string | undefined;
  /** Wall clock, for the deadline alone: it stands in the API by that clock. */
  readonly nowMs: number;
  readonly monoMs: number;
}

const orphanGraceSeconds = 1;

/** Why the pod is to end now, if it is, before anything of the runtime is looked at. */
export function endOf(input: EndInput): PodEnd | null {
  const { pod, known, nowMs, monoMs } = input;
  if (input.eviction !== null) return { cause: 'evicted', graceSeconds: seconds(input.eviction.graceMs), sinceMs: monoMs, verdict: input.eviction.verdict };
  if (pod === undefined) {
    if (known === undefined) return { cause: 'orphan', graceSeconds: orphanGraceSeconds, sinceMs: monoMs, verdict: null };
    return {
      cause: 'removed',
      graceSeconds: known.metadata.deletionGracePeriodSeconds ?? known.spec.terminationGracePeriodSeconds ?? 30,
      sinceMs: monoMs,
      verdict: null,
    };
  }
  if (pod.metadata.deletionTimestamp !== undefined)
    return { cause: 'deleted', graceSeconds: pod.metadata.deletionGracePeriodSeconds ?? null, sinceMs: monoMs, verdict: null };
  if (isTerminalPhase(pod.status?.phase)) return { cause: 'completed', graceSeconds: null, sinceMs: monoMs, verdict: null };
  const deadlineMs = deadlineOf(pod, input.startTime);
  if (deadlineMs !== null && nowMs >= deadlineMs) return { cause: 'deadline', graceSeconds: null, sinceMs: monoMs, verdict: deadlineVerdict };
  return null;
}

const seconds = (ms: number | null): number | null => (ms === null ? null : Math.ceil(ms / 1000));

export const deadlineVerdict: Verdict = { reason: 'DeadlineExceeded', message: 'Pod was active on the node longer than the specified deadline' };

/** When activeDeadlineSeconds run out, wall clock; null when there is no such limit. */
export function deadlineOf(pod: Pod, startTime: string | undefined): number | null {
  const seconds = pod.spec.activeDeadlineSeconds;
  const startMs = timeMs(startTime);
  return seconds === undefined || startMs === 0 ? null : startMs + seconds * 1000;
}

/** What is left of the grace when this is not the first try; undefined: each container's own rule. */
export function graceLeftSeconds(end: PodEnd, monoMs: number): number | undefined {
  if (end.graceSeconds === null) return undefined;
  return Math.max(0, end.graceSeconds - Math.floor(Math.max(0, monoMs - end.sinceMs) / 1000));
}

/**
 * Whether upstream runs no probe any more while the pod ends. Of a pod that ends for the node's own reasons it keeps
 * the phase that is to come, and its probers stop at a terminal one: readiness stays what it was
 * (kubernetes/kubernetes#124648).
 */
export function endsUnprobed(end: PodEnd): boolean {
  return end.cause === 'evicted' || end.cause === 'deadline' || end.cause === 'completed';
}

/** A second delete counts from its own moment. It brings the end forward; it never puts it off. */
export function shorten(end: PodEnd, other: PodEnd): PodEnd {
  if (other.graceSeconds === null) return end;
  const { graceSeconds, sinceMs } = other;
  if (end.graceSeconds !== null && sinceMs + graceSeconds * 1000 >= end.sinceMs + end.graceSeconds * 1000) return end;
  return { ...end, graceSeconds, sinceMs };
}

/** A static pod whose file went and came back while it was ending: the end is finished, and another worker begins anew. */
export function wasPutBack(pod: Pod, end: PodEnd): boolean {
  return end.cause === 'removed' && isStatic(pod);
}
