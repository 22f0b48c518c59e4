import type { Pod, PodCondition } from '../../../proto/kube/types.ts';
import { timeMs, timeText } from '../../../base/time.ts';

/** One of the two conditions that a resize shows itself by. */
export interface ResizeCondition {
  readonly reason: string;
  readonly message: string;
  /** Generation of the spec that it is about, which may be older than the pod's. */
  readonly observedGeneration: number;
  /** Wall clock, when the reason last changed. */
  readonly sinceMs: number;
}

/** Null: there is no such condition. */
export interface ResizeConditions {
  readonly pending: ResizeCondition | null;
  readonly inProgress: ResizeCondition | null;
}

export const noConditions: ResizeConditions = { pending: null, inProgress: null };

export type PendingReason = 'Deferred' | 'Infeasible';

/** `news`: worth an Event. */
export function pend(
  before: ResizeConditions,
  reason: PendingReason,
  message: string,
  generation: number,
  nowMs: number,
): { conditions: ResizeConditions; news: boolean } {
  const old = before.pending;
  const news = old === null || old.reason !== reason || old.observedGeneration !== generation;
  return { conditions: { ...before, pending: renewed(old, reason, message, generation, nowMs) }, news };
}

/**
 * The resize is being put into effect; with `reason` and `message`: in vain. A condition that is there keeps the
 * generation it was made for, and its words until it is taken away.
 */
export function progress(
  before: ResizeConditions,
  reason: string,
  message: string,
  generation: number,
  nowMs: number,
): { conditions: ResizeConditions; news: boolean; generation: number } {
  const old = before.inProgress;
  const next =
    old === null
      ? renewed(null, reason, message, generation, nowMs)
      : reason === '' && message === ''
        ? old
        : renewed(old, reason, message, old.observedGeneration, nowMs);
  const news = old === null || old.reason !== next.reason || old.message !== next.message;
  return { conditions: { ...before, inProgress: next }, news, generation: next.observedGeneration };
}

function renewed(old: ResizeCondition | null, reason: string, message: string, observedGeneration: number, nowMs: number): ResizeCondition {
  return { reason, message, observedGeneration, sinceMs: old !== null && old.reason === reason ? old.sinceMs : nowMs };
}

/** What the last process told: who has waited longer goes on being first. */
export function conditionsFrom(pod: Pod): ResizeConditions {
  const read = (type: string): ResizeCondition | null => {
    const told = pod.status?.conditions?.find((condition) => condition.type === type && condition.status === 'True');
    if (told === undefined) return null;
    const { reason = '', message = '', observedGeneration = 0 } = told;
    return { reason, message, observedGeneration, sinceMs: timeMs(told.lastTransitionTime) };
  };
  return { pending: read('PodResizePending'), inProgress: read('PodResizeInProgress') };
}

/** As the API has them. */
export function conditionsList({ pending, inProgress }: ResizeConditions): PodCondition[] {
  const told = (type: string, condition: ResizeCondition | null): PodCondition[] =>
    condition === null
      ? []
      : [
          {
            type,
            status: 'True',
            ...(condition.reason === '' ? {} : { reason: condition.reason }),
            ...(condition.message === '' ? {} : { message: condition.message }),
            ...(condition.observedGeneration === 0 ? {} : { observedGeneration: condition.observedGeneration }),
            lastProbeTime: timeText(condition.sinceMs),
            lastTransitionTime: timeText(condition.sinceMs),
          },
        ];
  return [...told('PodResizePending', pending), ...told('PodResizeInProgress', inProgress)];
}
