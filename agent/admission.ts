import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Pod } from '../proto/kube/types.ts';
import { admit, earlyProblem, generalProblems, lateProblem, verdictOf } from './core/admit.ts';
import type { AdmitInput } from './core/admit.ts';
import { keyOf } from './core/containers.ts';
import { isCritical } from './core/evict-storage.ts';
import type { PressureCondition } from './core/evict-thresholds.ts';
import { podsToPreempt } from './core/preempt.ts';
import type { Verdict } from './core/status.ts';
import type { EventTarget, Events, NodeInfo, Pods } from './seams.ts';

export interface AdmissionOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly events: Events;
  readonly node: Pick<NodeInfo, 'node'>;
  readonly pods: () => Pick<Pods, 'evict'>;
  /** The other pods that hold something of the node, at the size they hold. */
  readonly others: (pod: Pod) => readonly Pod[];
  readonly allowedUnsafeSysctls: readonly string[];
  readonly pressures: () => readonly PressureCondition[];
  readonly hasApparmor: boolean;
  readonly declaredFeatures: () => readonly string[];
  /** `TaintTolerationComparisonOperators`. */
  readonly comparesTaints?: boolean;
  /** `PodLevelResources` is off. */
  readonly refusesPodResources?: boolean;
  /** `InPlacePodVerticalScalingSchedulerPreemption`. */
  readonly schedulerPreempts?: boolean;
  /** A pod had to go for a critical one that lacked this resource most of all. */
  readonly preempted: (resource: string) => void;
  /** Aborted when the agent ends. */
  readonly signal: AbortSignal;
}

const message = 'Preempted in order to admit critical pod';
const condition = { type: 'DisruptionTarget', reason: 'TerminationByKubelet', message: 'Pod was preempted by Kubelet to accommodate a critical pod.' };
/** Labels of the node that have just changed come by the watch, maybe after the pod that was scheduled for them. */
const labelsLagMs = 2000;
const forgetMs = 60_000;

/** Whether a pod may run here; makes room for critical ones by ending others. */
export class Admission {
  readonly #options: AdmissionOptions;
  /** Pods that end for a critical one: what they hold is as good as free. */
  readonly #leaving = new Set<string>();
  readonly #misplacedSinceMs = new Map<string, number>();

  constructor(options: AdmissionOptions) {
    this.#options = options;
  }

  /** `later`: ask again in a moment. The Node must be known. */
  admit(pod: Pod): Verdict | null | 'later' {
    const input = this.#input(pod);
    if (input === null) return 'later';
    const problem = earlyProblem(input);
    if (problem !== null) return problem;
    const reasons = generalProblems(input);
    if (reasons.length === 0) return lateProblem(input);
    if (!isCritical(pod)) return this.#misplaced(pod, verdictOf(reasons[0]));
    // A critical pod is not refused for want of resources.
    const other = reasons.find((reason) => reason.missing === undefined);
    if (other !== undefined) return verdictOf(other);
    return this.#preempt(pod, input);
  }

  /**
   * As for a pod that is there and wants another size. Others make room for a critical one, unless the scheduler does
   * so (`InPlacePodVerticalScalingSchedulerPreemption`); until they are gone it is told what is missing.
   */
  resize(pod: Pod): Verdict | null {
    const input = this.#input(pod);
    if (input === null) return { reason: 'InvalidNodeInfo', message: 'Kubelet cannot get node info.' };
    const verdict = admit(input);
    if (verdict === null || this.#options.schedulerPreempts === true || !isCritical(pod) || earlyProblem(input) !== null) return verdict;
    if (generalProblems(input).some((reason) => reason.missing === undefined) || lateProblem(input) !== null) return verdict;
    const preempted = this.#preempt(pod, input);
    return preempted === 'later' ? verdict : preempted;
  }

  #input(pod: Pod): AdmitInput | null {
    const { allowedUnsafeSysctls, hasApparmor, declaredFeatures, comparesTaints, refusesPodResources, others, pressures } = this.#options;
    const node = this.#options.node.node();
    if (node === undefined) return null;
    const gates = { comparesTaints, refusesPodResources };
    return { pod, node, others: others(pod), allowedUnsafeSysctls, hasApparmor, declaredFeatures: declaredFeatures(), ...gates, pressures: pressures() };
  }

  #misplaced(pod: Pod, verdict: Verdict | null): Verdict | null | 'later' {
    const { uid = '' } = pod.metadata;
    if (verdict?.reason !== 'NodeAffinity') return verdict;
    const nowMs = this.#options.clock.monoMs();
    // Of pods that were let in or deleted meanwhile.
    for (const [other, atMs] of this.#misplacedSinceMs) if (other !== uid && nowMs - atMs > forgetMs) this.#misplacedSinceMs.delete(other);
    const sinceMs = this.#misplacedSinceMs.get(uid) ?? nowMs;
    this.#misplacedSinceMs.set(uid, sinceMs);
    if (nowMs - sinceMs < labelsLagMs) return 'later';
    this.#misplacedSinceMs.delete(uid);
    return verdict;
  }

  /** Ends what is in the way; until that is gone the pod waits. */
  #preempt(pod: Pod, input: AdmitInput): Verdict | null | 'later' {
    const { log } = this.#options;
    const present = new Set(input.others.map((other) => other.metadata.uid ?? ''));
    for (const uid of this.#leaving) if (!present.has(uid)) this.#leaving.delete(uid);
    const others = input.others.filter((other) => !this.#leaving.has(other.metadata.uid ?? ''));
    const missing = generalProblems({ ...input, others }).flatMap((reason) => (reason.missing === undefined ? [] : [reason.missing]));
    if (missing.length === 0) return 'later';
    const plan = podsToPreempt(pod, others, missing);
    if ('problem' in plan) {
      const text = `Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to preempt: ${plan.problem}`;
      return { reason: 'UnexpectedAdmissionError', message: text };
    }
    for (const victim of plan.victims) {
      const key = keyOf(victim);
      log.info('Preempting pod to free up resources', { pod: `${key.namespace}/${key.name}`, podUID: key.uid, requestingPod: pod.metadata.name ?? '' });
      this.#leaving.add(key.uid);
      void this.#end({ apiVersion: 'v1', kind: 'Pod', ...key }, missing[0]?.resource ?? '');
    }
    return 'later';
  }

  async #end(target: EventTarget, resource: string): Promise<void> {
    const { events, log, pods, preempted, signal } = this.#options;
    events.event(target, 'Warning', 'Preempting', message);
    try {
      await pods().evict(target.uid, { reason: 'Preempting', message, graceMs: null, condition }, signal);
      preempted(resource);
    } catch (error) {
      if (!signal.aborted) log.error('Failed to evict pod', { pod: `${target.namespace ?? ''}/${target.name}`, err: messageOf(error) });
    }
  }
}
