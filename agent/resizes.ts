import type { Clock } from '../base/clock.ts';
import { messageOf } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Container, Pod, PodCondition } from '../proto/kube/types.ts';
import { keyOf } from './core/containers.ts';
import { allocationOf, heldPod, withAllocation } from './core/resize/allocation.ts';
import type { PodAllocation } from './core/resize/allocation.ts';
import { requirementsOf, sizesOf } from './core/resize/amounts.ts';
import type { Sizes } from './core/resize/amounts.ts';
import { conditionsFrom, conditionsList, noConditions, pend, progress } from './core/resize/conditions.ts';
import type { ResizeConditions } from './core/resize/conditions.ts';
import { compareWaiting, refusal } from './core/resize/decide.ts';
import { isResizing } from './core/resize/plan.ts';
import { resizeWords } from './core/resize/words.ts';
import type { Verdict } from './core/status.ts';
import type { EventText, PodFacts } from './core/types.ts';
import type { AllocationFile } from './io/allocation-file.ts';
import type { ResizeMetrics, ResizeTrigger } from './io/resize-metrics.ts';

export interface ResizesOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** What pods were given (`allocated_pods_state`). */
  readonly allocated: AllocationFile;
  /** What was put into effect (`actuated_pods_state`). */
  readonly actuated: AllocationFile;
  /** What admission says of a pod at its new size, beside all others that hold something. */
  readonly admit: (pod: Pod) => Verdict | null;
  readonly podOf: (uid: string) => Pod | undefined;
  /** Whether the pod was taken and has not ended. */
  readonly holds: (uid: string) => boolean;
  /** Whether the agent has any duty left for the pod. */
  readonly isKnown: (uid: string) => boolean;
  /** Whether all pods are known: before that nothing can be said of room. */
  readonly synced: () => boolean;
  readonly swaps: boolean;
  /** Whether CPUs and memory are given for good. */
  readonly statics?: { readonly cpu: boolean; readonly memory: boolean };
  readonly metrics?: Pick<ResizeMetrics, 'requested' | 'infeasible' | 'accepted' | 'resolved'>;
  readonly tell: (pod: Pod, event: EventText) => void;
  /** The pod is to be looked at: it may be resized, or has something to tell. */
  readonly kick: (uid: string) => void;
}

const firstRetryMs = 30_000;
const retryMs = 180_000;

/**
 * What each pod has been given, and who waits for more. A pod runs at the size it was allocated; a change of its spec
 * is a wish that is granted when the node has room, in the order of `compareWaiting`, and is on disk before it is acted on.
 */
export class Resizes {
  readonly #options: ResizesOptions;
  readonly #conditions = new Map<string, ResizeConditions>();
  #waiting: string[] = [];
  /** Specs as they were last wished for, of pods that have one allocated. */
  readonly #wished = new Map<string, Pod>();
  #triedMs: number | null = null;

  constructor(options: ResizesOptions) {
    this.#options = options;
  }

  /** The pod as it is to run. */
  allocatedPod(pod: Pod): Pod {
    const allocation = this.#options.allocated.get(keyOf(pod).uid);
    return allocation === undefined ? pod : withAllocation(pod, allocation);
  }

  /** The pod as others must reckon with it. */
  heldPod(pod: Pod): Pod {
    return heldPod(this.allocatedPod(pod), this.#options.actuated.get(keyOf(pod).uid));
  }

  actuated(uid: string): PodAllocation | undefined {
    return this.#options.actuated.get(uid);
  }

  /** The node has taken the pod: it gets what it was taken with. What an earlier process gave it stands. */
  take(pod: Pod): void {
    const { allocated, actuated } = this.#options;
    const { uid } = keyOf(pod);
    if (allocated.get(uid) === undefined) allocated.set(uid, allocationOf(pod));
    if (actuated.get(uid) === undefined) actuated.set(uid, allocationOf(this.allocatedPod(pod)));
  }

  /** A pod that was there before this process. */
  adopt(pod: Pod): void {
    const { uid } = keyOf(pod);
    this.#recall(pod);
    if (this.#options.allocated.get(uid) !== undefined && this.allocatedPod(pod) !== pod) this.#push(uid);
  }

  /** The newest wish for a pod has come: is it another size? */
  wished(uid: string): void {
    const pod = this.#options.podOf(uid);
    if (pod === undefined || this.#options.allocated.get(uid) === undefined) return;
    this.#recall(pod);
    this.#options.metrics?.requested(this.#wished.get(uid) ?? this.allocatedPod(pod), pod);
    this.#wished.set(uid, pod);
    if (this.allocatedPod(pod) === pod) return this.#unpend(uid, 'reverted');
    this.#push(uid);
    this.retry('pod_updated');
  }

  /** Something has become free. */
  freed(trigger: ResizeTrigger = 'pod_terminated'): void {
    if (this.#waiting.length > 0) this.retry(trigger);
  }

  forget(uid: string): void {
    this.#options.allocated.delete(uid);
    this.#options.actuated.delete(uid);
    this.#resolved(uid, 'terminated');
    this.#wished.delete(uid);
    this.#conditions.delete(uid);
    this.#waiting = this.#waiting.filter((each) => each !== uid);
  }

  /** Resolves when all that was granted is on disk. */
  async saved(): Promise<void> {
    await Promise.all([this.#options.allocated.saved(), this.#options.actuated.saved()]);
  }

  /** Of every pod that is being resized or waits for it. */
  all(): [Pod | undefined, ResizeConditions][] {
    return [...this.#conditions].map(([uid, conditions]) => [this.#options.podOf(uid), conditions]);
  }

  conditions(uid: string): PodCondition[] {
    return conditionsList(this.#conditions.get(uid) ?? noConditions);
  }

  /** Says whether the pod is between two sizes, and tells when it no longer is. */
  look(allocated: Pod, facts: PodFacts): void {
    const { clock, actuated } = this.#options;
    const { uid } = keyOf(allocated);
    const before = this.#conditions.get(uid) ?? noConditions;
    if (isResizing(allocated, facts, actuated.get(uid))) {
      this.#conditions.set(uid, progress(before, '', '', allocated.metadata.generation ?? 0, clock.nowMs()).conditions);
      return;
    }
    if (before.inProgress === null) return;
    this.#conditions.set(uid, { ...before, inProgress: null });
    this.#event(allocated, 'Normal', 'ResizeCompleted', resizeWords('Pod resize completed', allocated, before.inProgress.observedGeneration));
    this.freed('pod_resized');
  }

  /** The resize could not be put into effect now. */
  failed(allocated: Pod, message: string): void {
    const { uid } = keyOf(allocated);
    const { conditions, news, generation } = progress(
      this.#conditions.get(uid) ?? noConditions,
      'Error',
      message,
      allocated.metadata.generation ?? 0,
      this.#options.clock.nowMs(),
    );
    this.#conditions.set(uid, conditions);
    if (news) this.#event(allocated, 'Warning', 'ResizeError', resizeWords('Pod resize error', allocated, generation, message));
  }

  /** A container is made or updated with these sizes; resolves when that is on disk. */
  async actuate(pod: Pod, name: string, sizes: Sizes): Promise<void> {
    const { actuated } = this.#options;
    const { uid } = keyOf(pod);
    const before = actuated.get(uid) ?? allocationOf(pod);
    actuated.set(uid, { ...before, containers: new Map([...before.containers, [name, requirementsOf(sizes)]]) });
    await actuated.saved();
  }

  /** A container is about to be made at the size it was allocated. */
  async make(pod: Pod, container: Container): Promise<void> {
    await this.actuate(pod, container.name, sizesOf(container.resources, pod.spec.resources));
  }

  /** Pod-level resources are in effect: all of them, or those of one kind. */
  async actuatePod(pod: Pod, only?: 'cpu' | 'memory'): Promise<void> {
    const { actuated } = this.#options;
    const { uid } = keyOf(pod);
    const before = actuated.get(uid) ?? allocationOf(pod);
    const wanted = pod.spec.resources;
    if (wanted === undefined) return;
    const list = (had: Record<string, string> | undefined, now: Record<string, string> | undefined): Record<string, string> =>
      only === undefined ? { ...now } : { ...had, ...(now?.[only] === undefined ? {} : { [only]: now[only] }) };
    const limits = list(before.pod?.limits, wanted.limits);
    const requests = list(before.pod?.requests, wanted.requests);
    actuated.set(uid, {
      ...before,
      pod: { ...(Object.keys(limits).length === 0 ? {} : { limits }), ...(Object.keys(requests).length === 0 ? {} : { requests }) },
    });
    await actuated.saved();
  }

  /** Tries those that wait, now and then, although nothing was seen to become free. Forgets pods that went while no agent ran. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    try {
      for (;;) {
        await clock.sleep(this.#triedMs === null ? firstRetryMs : Math.max(1, this.#triedMs + retryMs - clock.monoMs()), signal);
        this.#options.allocated.retain(this.#options.isKnown);
        this.#options.actuated.retain(this.#options.isKnown);
        this.retry('periodic_retry');
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Grants what can be granted, in order; what was given by then counts for the next. */
  retry(trigger: ResizeTrigger): void {
    const { clock, podOf, synced, kick, allocated } = this.#options;
    if (!synced()) return;
    this.#triedMs = clock.monoMs();
    const waiting = this.#waiting
      .flatMap((uid) => {
        const desired = podOf(uid);
        if (desired === undefined || allocated.get(uid) === undefined) return [];
        return [{ uid, desired, allocated: this.allocatedPod(desired), sinceMs: this.#conditions.get(uid)?.pending?.sinceMs ?? null }];
      })
      .toSorted(compareWaiting);
    this.#waiting = waiting.map(({ uid }) => uid);
    for (const { uid, desired } of waiting) {
      const before = this.#conditions.get(uid);
      this.#try(uid, desired, trigger);
      if (this.#conditions.get(uid) !== before) kick(uid);
    }
  }

  #try(uid: string, desired: Pod, trigger: ResizeTrigger): void {
    const { clock, allocated, admit, holds, swaps, log, statics = { cpu: false, memory: false } } = this.#options;
    const given = this.allocatedPod(desired);
    if (given === desired || !holds(uid)) return this.#unpend(uid, given === desired ? 'reverted' : 'terminated');
    const generation = desired.metadata.generation ?? 0;
    const nowMs = clock.nowMs();
    const asked = { desired, allocated: given, swaps, statics };
    // Admission makes room for a critical pod: not for a size that it can never have.
    const refused = refusal({ ...asked, admission: null }) ?? refusal({ ...asked, admission: admit(desired) });
    const before = this.#conditions.get(uid) ?? noConditions;
    if (refused === null) {
      allocated.set(uid, allocationOf(desired));
      allocated.saved().catch((error: unknown) => log.error('Failed to save the allocation of a pod', { podUID: uid, err: messageOf(error) }));
      if (before.pending?.reason === 'Deferred') this.#options.metrics?.accepted(trigger);
      this.#unpend(uid, 'accepted');
      this.#conditions.set(uid, progress(noConditions, '', '', generation, nowMs).conditions);
      this.#event(desired, 'Normal', 'ResizeStarted', resizeWords('Pod resize started', desired, generation));
      return;
    }
    const { reason, message } = refused;
    const { conditions, news } = pend(before, reason, message, generation, nowMs);
    if (news || before.pending?.message !== message) this.#conditions.set(uid, conditions);
    if (news) this.#event(desired, 'Warning', `Resize${reason}`, resizeWords(`Pod resize ${reason}`, desired, generation, message));
    // What never fits is not tried again until it is asked for anew.
    if (reason !== 'Infeasible') return;
    this.#options.metrics?.infeasible(refused.detail);
    this.#drop(uid);
  }

  /** What the last process told stands until this one knows better. */
  #recall(pod: Pod): void {
    const { uid } = keyOf(pod);
    if (!this.#conditions.has(uid)) this.#conditions.set(uid, conditionsFrom(pod));
  }

  #push(uid: string): void {
    if (!this.#waiting.includes(uid)) this.#waiting.push(uid);
  }

  #drop(uid: string): void {
    this.#waiting = this.#waiting.filter((each) => each !== uid);
  }

  /** Tells for how long a resize waited that does so no more. */
  #resolved(uid: string, resolution: 'accepted' | 'reverted' | 'terminated'): void {
    const pending = this.#conditions.get(uid)?.pending;
    if (pending?.reason === 'Deferred') this.#options.metrics?.resolved(this.#options.podOf(uid), resolution, this.#options.clock.nowMs() - pending.sinceMs);
  }

  #unpend(uid: string, resolution: 'accepted' | 'reverted' | 'terminated'): void {
    this.#drop(uid);
    this.#resolved(uid, resolution);
    const before = this.#conditions.get(uid);
    if (before !== undefined && before.pending !== null) this.#conditions.set(uid, { ...before, pending: null });
  }

  #event(pod: Pod, type: EventText['type'], reason: string, message: string): void {
    this.#options.tell(pod, { type, reason, message });
  }
}
