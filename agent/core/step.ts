import type { ResizeWork } from './resize/plan.ts';
import type { ContainerKind, EventText } from './types.ts';

/** Why a container is killed: decides whose grace period counts. */
export type KillReason = 'pod' | 'liveness' | 'startup' | 'changed' | 'unknown' | 'post-start' | 'resize' | 'restart-all';

/** One container to stop: preStop inside the grace, then the runtime's stop with what is left of it. */
export interface Kill {
  readonly containerId: string;
  readonly name: string;
  /** Seconds: grace periods are whole seconds everywhere in Kubernetes. */
  readonly graceSeconds: number;
  /** Names of containers that must have ended before this one is signalled, as long as the grace lasts. */
  readonly after: readonly string[];
  /** Whether its preStop hook is to run; never for a container that does not run. */
  readonly preStop: boolean;
  /** Text of the Killing event. */
  readonly message: string;
}

/** One thing to do. Steps are done in order; the executor decides nothing but how long it has taken. */
export type Step =
  | { readonly kind: 'tell'; readonly event: EventText }
  /** All at once; the order among them stands in `after`. */
  | { readonly kind: 'kill'; readonly kills: readonly Kill[] }
  /** What may run beside the container that counts. A failure keeps containers of that name from being started, and does not end the plan. */
  | { readonly kind: 'kill-beside'; readonly kills: readonly Kill[] }
  | { readonly kind: 'stop-sandbox'; readonly sandboxId: string }
  /** `mayStay`: a failure does not end the plan. */
  | { readonly kind: 'remove-container'; readonly containerId: string; readonly name: string; readonly keepLogs: boolean; readonly mayStay?: true }
  | { readonly kind: 'create-sandbox'; readonly attempt: number }
  /** A failure does not end the plan. */
  | { readonly kind: 'resize'; readonly sandboxId: string; readonly work: ResizeWork }
  /** `sandboxId` null: the one the same plan creates. `attempt` null: the first, or one more than the logs on disk show. */
  | {
      readonly kind: 'start-container';
      readonly name: string;
      readonly containerKind: ContainerKind;
      readonly sandboxId: string | null;
      readonly sandboxAttempt: number;
      readonly attempt: number | null;
      /**
       * Containers of its name that were made and not started. A process that was killed may have asked for that, and
       * it may still come: they go when the new one is there, so that no number is used twice, and before it starts.
       */
      readonly replaces: readonly string[];
      /** Ephemeral containers: the container whose processes are to be seen. */
      readonly targetId: string | null;
      /** A failure of an init container ends the plan; of others it does not. */
      readonly endsPlan: boolean;
    };

/** A container that may not start now, and the words for its waiting state. */
export interface Held {
  readonly name: string;
  readonly reason: string;
  readonly message: string;
}

export interface Plan {
  readonly steps: readonly Step[];
  /** Containers that wait for a back-off. */
  readonly held: readonly Held[];
  /** Containers whose back-off grows with this plan, with the end of the run that failed. */
  readonly grows: readonly { readonly key: string; readonly endedAtMs: number }[];
  /** Wall-clock moment at which to plan again although nothing happened. */
  readonly wakeAtMs: number | null;
}

/** The plan as one line, for the log and for golden tests. */
export function planText(plan: Plan): string {
  const parts = plan.steps.map((step) => {
    switch (step.kind) {
      case 'tell':
        return `tell ${step.event.reason}`;
      case 'kill':
      case 'kill-beside':
        return `kill ${step.kills.map((kill) => `${kill.name}(${kill.graceSeconds}s)`).join(',')}`;
      case 'stop-sandbox':
        return 'stop-sandbox';
      case 'remove-container':
        return `remove ${step.name}`;
      case 'resize':
        return `resize ${[...new Set([...step.work.memory, ...step.work.cpu].map((each) => each.name)), ...(step.work.ofPod || step.work.podLevel ? ['pod'] : [])].join(',')}`;
      case 'create-sandbox':
        return `create-sandbox #${step.attempt}`;
      case 'start-container':
        return `start ${step.name}${step.attempt === null ? '' : ` #${step.attempt}`}`;
    }
  });
  parts.push(...plan.held.map((held) => `hold ${held.name} ${held.reason}`));
  return parts.length === 0 ? 'nothing' : parts.join('; ');
}
