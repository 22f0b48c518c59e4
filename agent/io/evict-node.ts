import { untilAborted } from '../../base/abort.ts';
import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { nodeReclaims, rankPods } from '../core/evict-rank.ts';
import { isCritical } from '../core/evict-storage.ts';
import { isNear, lookAtPressure, noPressure, resourceOf, thresholdsMet, withContainerFs } from '../core/evict-thresholds.ts';
import type { DiskLayout, Observations, PressureCondition, StarvedResource, Threshold } from '../core/evict-thresholds.ts';
import { evictionWords } from '../core/evict-words.ts';
import { isTerminalPhase } from '../core/status-phase.ts';
import type { Events, EventTarget, Pods } from '../seams.ts';
import type { EvictionMeasure } from './evict-measure.ts';

export interface NodeEvictionOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly events: Events;
  readonly pods: Pick<Pods, 'list' | 'mayRun' | 'evict' | 'synced'> & { holdsDisk(uid: string): boolean };
  readonly measure: Pick<EvictionMeasure, 'layout' | 'quick' | 'all' | 'pods'>;
  /** What may go before a pod has to: dead containers, images that nobody uses. */
  readonly reclaim: { containers(signal: AbortSignal): Promise<void>; images(signal: AbortSignal): Promise<void> };
  readonly node: () => EventTarget;
  readonly thresholds: readonly Threshold[];
  /** How long a condition holds after it was last seen. */
  readonly transitionMs: number;
  /** Upper bound of the grace of pods evicted for a soft threshold. */
  readonly maxPodGraceSeconds: number;
  /** Called when a condition has come or gone. */
  readonly onChange: () => void;
  readonly evicted: (signal: string) => void;
  readonly statsAge: (signal: string, ageMs: number) => void;
}

const periodMs = 10_000;
/** Upstream's kernel notification comes within a second; the kernel's own files cost next to nothing. */
const watchMs = 1000;
const hardGraceMs = 1000;
const cleanupMs = 30_000;
const cleanupPollMs = 1000;

/** Node-pressure eviction: keeps the node alive when memory, disk, inodes or process IDs run out, one pod at a time. */
export class NodeEviction {
  readonly #options: NodeEvictionOptions;
  #state = noPressure;
  #conditions: readonly PressureCondition[] = [];
  #thresholds: readonly Threshold[];
  #layout: DiskLayout | null = null;
  readonly #evicting = new Set<string>();

  constructor(options: NodeEvictionOptions) {
    this.#options = options;
    this.#thresholds = options.thresholds;
  }

  /** In the order in which they came up. */
  conditions(): readonly PressureCondition[] {
    return this.#conditions;
  }

  /** Runs until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, log, thresholds } = this.#options;
    try {
      if (thresholds.length === 0) return await untilAborted(signal);
      for (;;) {
        let evicted: Pod | null = null;
        try {
          evicted = await this.pass(signal);
        } catch (error) {
          if (signal.aborted) throw error;
          log.error('Eviction manager: failed to synchronize', { err: messageOf(error) });
        }
        try {
          await (evicted === null ? this.#rest(signal) : this.#cleanup(evicted, signal));
        } catch (error) {
          if (signal.aborted || error instanceof BugError) throw error;
          log.error('Eviction manager: failed to watch the thresholds', { err: messageOf(error) });
          await clock.sleep(watchMs, signal);
        }
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** One look at the node, and what follows from it. Answers the pod that was evicted. */
  async pass(signal: AbortSignal): Promise<Pod | null> {
    const { clock, log, events, measure, transitionMs } = this.#options;
    if (!this.#options.pods.synced()) return null;
    const observations = await this.#look(signal);
    const seenMs = clock.monoMs();
    const step = lookAtPressure(this.#state, this.#thresholds, observations, transitionMs, seenMs);
    this.#state = step.state;
    this.#tell(step.conditions);
    const [threshold] = step.act;
    if (threshold === undefined) return null;
    const resource = resourceOf(threshold.signal);
    log.info('Eviction manager: attempting to reclaim', { resourceName: resource });
    events.event(this.#options.node(), 'Warning', 'EvictionThresholdMet', `Attempting to reclaim ${resource}`);
    if (await this.#reclaimed(threshold, resource, signal)) return null;
    log.info('Eviction manager: must evict pod(s) to reclaim', { resourceName: resource });
    const active = this.#active();
    if (active.length === 0) {
      log.error('Eviction manager: eviction thresholds have been met, but no pods are active to evict');
      return null;
    }
    const uses = await measure.pods(active, resource, signal);
    const useOf = (pod: Pod): ReturnType<typeof uses.get> => uses.get(pod.metadata.uid ?? '');
    const ranked = rankPods(active, useOf, threshold.signal, this.#layout ?? 'one');
    log.info('Eviction manager: pods ranked for eviction', { pods: ranked.slice(0, 10).map(nameOf).join(' '), count: ranked.length });
    for (const each of step.act) if (observations.has(each.signal)) this.#options.statsAge(each.signal, clock.monoMs() - seenMs);
    const victim = ranked.find((pod) => !this.#isKept(pod));
    if (victim === undefined) {
      log.info('Eviction manager: unable to evict any pods from the node');
      return null;
    }
    const words = evictionWords(resource, victim, useOf(victim), step.act, observations);
    await this.#evict(victim, threshold, words, signal);
    return victim;
  }

  async #look(signal: AbortSignal): Promise<Observations> {
    const { measure, thresholds } = this.#options;
    const observations = await measure.all(signal);
    const layout = await measure.layout(signal);
    if (layout !== null && this.#layout === null) {
      this.#layout = layout;
      this.#thresholds = withContainerFs(thresholds, layout);
    }
    return observations;
  }

  #tell(conditions: readonly PressureCondition[]): void {
    const changed = conditions.length !== this.#conditions.length || conditions.some((each) => !this.#conditions.includes(each));
    this.#conditions = conditions;
    if (changed) this.#options.onChange();
  }

  /** Takes away what belongs to nobody; true: that was enough. */
  async #reclaimed(threshold: Threshold, resource: StarvedResource, signal: AbortSignal): Promise<boolean> {
    const { log, reclaim } = this.#options;
    const kinds = nodeReclaims(threshold.signal, this.#layout ?? 'one');
    if (kinds.length === 0) return false;
    for (const kind of kinds) {
      try {
        await reclaim[kind](signal);
      } catch (error) {
        if (hasCode(error, 'aborted')) throw error;
        log.warn('Eviction manager: unexpected error when attempting to reduce resource pressure', { resourceName: resource, err: messageOf(error) });
      }
    }
    if (thresholdsMet(this.#thresholds, await this.#look(signal), true).length > 0) return false;
    log.info('Eviction manager: able to reduce resource pressure without evicting pods.', { resourceName: resource });
    return true;
  }

  #active(): Pod[] {
    const { pods } = this.#options;
    for (const uid of this.#evicting) if (!pods.mayRun(uid)) this.#evicting.delete(uid);
    return pods.list().filter((pod) => {
      const { uid = '', deletionTimestamp } = pod.metadata;
      return pods.mayRun(uid) && !this.#evicting.has(uid) && (!isTerminalPhase(pod.status?.phase) || deletionTimestamp !== undefined);
    });
  }

  #isKept(pod: Pod): boolean {
    if (!isCritical(pod)) return false;
    this.#options.log.error('Eviction manager: cannot evict a critical pod', { pod: nameOf(pod) });
    return true;
  }

  async #evict(pod: Pod, threshold: Threshold, words: ReturnType<typeof evictionWords>, signal: AbortSignal): Promise<void> {
    const { clock, log, events, pods, maxPodGraceSeconds } = this.#options;
    const { name = '', namespace = '', uid = '' } = pod.metadata;
    const { message, annotations } = words;
    const ownSeconds = pod.spec.terminationGracePeriodSeconds ?? maxPodGraceSeconds;
    const graceMs = threshold.graceMs === 0 ? hardGraceMs : Math.max(1, Math.min(maxPodGraceSeconds, ownSeconds)) * 1000;
    const target: EventTarget = { apiVersion: 'v1', kind: 'Pod', namespace, name, uid };
    events.event(target, 'Warning', 'Evicted', message, annotations);
    this.#evicting.add(uid);
    const condition = { type: 'DisruptionTarget', reason: 'TerminationByKubelet', message };
    const done = new AbortController();
    // The kill is waited for as long as upstream does; a pod that takes longer goes on ending.
    const timer = clock.after(Math.max(10_000, graceMs * 1.5), () => done.abort());
    try {
      await pods.evict(uid, { reason: 'Evicted', message, graceMs, condition }, AbortSignal.any([signal, done.signal]));
      log.info('Eviction manager: pod is evicted successfully', { pod: nameOf(pod) });
    } catch (error) {
      if (signal.aborted || !(error instanceof OpError)) throw error;
      events.event(target, 'Warning', 'ExceededGracePeriod', 'Container runtime did not kill the pod within specified grace period.');
      log.error('Eviction manager: pod failed to evict', { pod: nameOf(pod), err: messageOf(error) });
    } finally {
      timer[Symbol.dispose]();
    }
    this.#options.evicted(threshold.signal);
  }

  /** Until the next pass; memory and process IDs are read each second while they are close to a threshold. */
  async #rest(signal: AbortSignal): Promise<void> {
    const { clock, log, measure } = this.#options;
    const untilMs = clock.monoMs() + periodMs;
    while (clock.monoMs() < untilMs) {
      const quick = await measure.quick();
      if (!isNear(this.#thresholds, quick)) return await clock.sleep(Math.max(0, untilMs - clock.monoMs()), signal);
      const crossed = thresholdsMet(this.#thresholds, quick, false).find((threshold) => !this.#state.sinceMs.has(threshold));
      if (crossed !== undefined) {
        log.info('Eviction: a threshold was crossed', { signal: crossed.signal });
        return;
      }
      await clock.sleep(watchMs, signal);
    }
  }

  /** What a pod used is free only when its volumes and containers are gone. */
  async #cleanup(pod: Pod, signal: AbortSignal): Promise<void> {
    const { clock, pods, log } = this.#options;
    const { uid = '' } = pod.metadata;
    const untilMs = clock.monoMs() + cleanupMs;
    while (clock.monoMs() < untilMs) {
      await clock.sleep(cleanupPollMs, signal);
      if (pods.mayRun(uid) || pods.holdsDisk(uid)) continue;
      log.info('Eviction manager: pods successfully cleaned up', { pods: nameOf(pod) });
      return;
    }
    log.info('Eviction manager: timed out waiting for pods to be cleaned up', { pods: nameOf(pod) });
  }
}

function nameOf(pod: Pod): string {
  return `${pod.metadata.namespace ?? ''}/${pod.metadata.name ?? ''}`;
}
