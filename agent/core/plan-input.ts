import type { Container, Pod, PodStatus } from '../../proto/kube/types.ts';
import type { Backoff, BackoffRules } from './backoff.ts';
import type { killOne } from './plan-kill.ts';
import type { PodAllocation } from './resize/allocation.ts';
import type { ResizeWork } from './resize/plan.ts';
import type { ContainerFacts, PodFacts, ProbeResults } from './types.ts';

/** All that a decision rests on. */
export interface PlanInput {
  /** As it was allocated. */
  readonly pod: Pod;
  readonly facts: PodFacts;
  readonly probes: ProbeResults;
  readonly nowMs: number;
  /** By `backOffKey` of the container. */
  readonly backoffs: Readonly<Record<string, Backoff | undefined>>;
  readonly rules: BackoffRules;
  /** What was told last. */
  readonly old: PodStatus;
  /** Which sizes are in effect; undefined: not known, and nothing is resized. */
  readonly actuated?: PodAllocation | undefined;
}

/** What is to happen to containers, before back-off and sandbox have their say. */
export interface Intent {
  /** In the order in which they are to be started. */
  readonly start: Container[];
  readonly startEphemeral: Container[];
  readonly kill: { container: Container; facts: ContainerFacts; step: ReturnType<typeof killOne> }[];
  /** Everything is over: stop what runs, and the sandbox. */
  killPod: boolean;
  readonly resize: ResizeWork;
}
