import { untilAborted } from '../../base/abort.ts';
import { BugError } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import {
  endMessage,
  endReason,
  readShutdownState,
  shutdownGraceSeconds,
  shutdownGroups,
  shutdownMs,
  shutdownStateText,
  shutdownTrouble,
  shuttingDownVerdict,
} from '../core/node-shutdown.ts';
import type { ShutdownGroup, ShutdownPeriod, ShutdownState } from '../core/node-shutdown.ts';
import { isTerminalPhase } from '../core/status-phase.ts';
import type { Verdict } from '../core/status.ts';
import type { EventTarget, Events, Pods } from '../seams.ts';
import type { Logind } from './logind.ts';

export interface ShutdownOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** By rising priority; none: nothing is followed. */
  readonly periods: readonly ShutdownPeriod[];
  readonly openLogind: (signal: AbortSignal) => Promise<Logind>;
  readonly pods: Pick<Pods, 'list' | 'mayRun' | 'evict'> & {
    /** Whether anything of the pod is still mounted or on disk. */
    readonly isClean: (uid: string) => Promise<boolean>;
  };
  readonly events: Events;
  readonly target: () => EventTarget;
  /** The Ready condition has changed. */
  readonly onChange: () => void;
  readonly state: { readonly read: () => Promise<string | null>; readonly write: (text: string) => Promise<void> };
  /** For the metrics; null: not yet. */
  readonly onState: (state: ShutdownState) => void;
}

const reconnectMs = 1000;
/** logind reads its configuration anew after it was told to: it is looked at so often, with growing pauses. */
const delayTries = 5;
const firstDelayPauseMs = 100;
const cleanPauseMs = 200;

/** Follows logind: when the machine is about to end, ends the pods in the order of their priorities while logind waits. */
export class NodeShutdown {
  readonly #options: ShutdownOptions;
  #shuttingDown = false;
  #lock: AsyncDisposable | null = null;

  constructor(options: ShutdownOptions) {
    this.#options = options;
  }

  /** Why no pod is taken now, or null. */
  admit(): Verdict | null {
    return this.#shuttingDown ? shuttingDownVerdict : null;
  }

  /** What the Ready condition says of it, or null. */
  trouble(): string | null {
    return this.#shuttingDown ? shutdownTrouble : null;
  }

  /** Runs until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { periods, clock, log } = this.#options;
    if (periods.length > 0) await this.#restore();
    try {
      if (periods.length === 0) return await untilAborted(signal);
      for (let told = false; ;) {
        try {
          await this.#follow(signal);
          told = false;
        } catch (error) {
          if (signal.aborted) break;
          if (!told) log.error('Unable to watch the node for shutdown events', { err: messageOf(error) });
          told = true;
        }
        await clock.sleep(reconnectMs, signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      await this.#release();
    }
  }

  /** One connection, from the inhibitor on until it is lost. */
  async #follow(signal: AbortSignal): Promise<void> {
    const { openLogind, log, onChange, events, target } = this.#options;
    await using logind = await openLogind(signal);
    await this.#ensureDelay(logind, signal);
    const told = createQueue();
    await logind.follow((begins) => told.push(begins), signal);
    await this.#inhibit(logind);
    log.info('Shutdowns of this machine are waited for', { periods: this.#options.periods.length });
    void logind.ended.then(() => told.end());
    const gone = new AbortController();
    using over = new DisposableStack();
    over.defer(() => gone.abort());
    signal.addEventListener('abort', () => told.end(), { once: true, signal: gone.signal });
    for (;;) {
      const begins = await told.next();
      if (begins === null) return;
      events.event(target(), 'Normal', 'NodeShutdown', `Shutdown manager detected shutdown ${begins ? 'event' : 'cancellation'}`);
      log.info('Shutdown manager detected new shutdown event', { event: begins ? 'shutdown' : 'cancelled' });
      this.#shuttingDown = begins;
      onChange();
      if (!begins) await this.#inhibit(logind);
      else {
        await this.#endPods(signal);
        await this.#release();
        log.info('Shutdown manager completed processing shutdown event, node will shutdown shortly');
      }
    }
  }

  async #inhibit(logind: Logind): Promise<void> {
    const lock = await logind.inhibit();
    await this.#release();
    this.#lock = lock;
  }

  async #release(): Promise<void> {
    const lock = this.#lock;
    this.#lock = null;
    await lock?.[Symbol.asyncDispose]();
  }

  async #ensureDelay(logind: Logind, signal: AbortSignal): Promise<void> {
    const { periods, clock } = this.#options;
    const wantedMs = shutdownMs(periods);
    let haveMs = await logind.delayMs(signal);
    if (haveMs >= wantedMs) return;
    await logind.askForDelay(wantedMs, signal);
    for (let tries = 0; tries < delayTries; tries += 1) {
      await clock.sleep(firstDelayPauseMs * 2 ** tries, signal);
      haveMs = await logind.delayMs(signal);
      if (haveMs >= wantedMs) return;
    }
    throw new OpError('failed', 'put shutdowns off', `logind waits ${haveMs / 1000} s, and ${wantedMs / 1000} s are asked for`);
  }

  async #endPods(signal: AbortSignal): Promise<void> {
    const { clock, pods, periods } = this.#options;
    const startMs = clock.nowMs();
    await this.#keep({ startMs, endMs: null });
    const active = pods.list().filter((pod) => !isTerminalPhase(pod.status?.phase) && pods.mayRun(pod.metadata.uid ?? ''));
    for (const group of shutdownGroups(periods, active)) {
      if (signal.aborted) break;
      if (group.pods.length > 0) await this.#endGroup(group, signal);
    }
    await this.#keep({ startMs, endMs: clock.nowMs() });
  }

  /** Until all of them are ended and cleaned up, or their time is over. */
  async #endGroup(group: ShutdownGroup, signal: AbortSignal): Promise<void> {
    const { clock, log, pods } = this.#options;
    const late = new AbortController();
    const stop = AbortSignal.any([signal, late.signal]);
    using _deadline = clock.after(group.seconds * 1000, () => late.abort());
    const endOne = async (pod: Pod): Promise<void> => {
      const uid = pod.metadata.uid ?? '';
      const graceMs = shutdownGraceSeconds(group, pod) * 1000;
      const condition = { type: 'DisruptionTarget', reason: 'TerminationByKubelet', message: endMessage };
      try {
        await pods.evict(uid, { reason: endReason, message: endMessage, graceMs, condition }, stop);
        // A CSI driver is in a later group: it must still be there for what it has mounted.
        while (!(await pods.isClean(uid))) await clock.sleep(cleanPauseMs, stop);
      } catch (error) {
        if (error instanceof BugError) throw error;
        // One pod that cannot be ended keeps none of the others from their end.
        if (!hasCode(error, 'aborted') && !stop.aborted)
          return log.error('Shutdown manager failed killing pod', { pod: `${pod.metadata.namespace}/${pod.metadata.name}`, err: messageOf(error) });
        log.warn('Shutdown manager pod killing time out', { pod: `${pod.metadata.namespace}/${pod.metadata.name}`, gracePeriod: group.seconds });
      }
    };
    await Promise.all(group.pods.map(endOne));
  }

  async #keep(state: ShutdownState): Promise<void> {
    const { log, state: file, onState } = this.#options;
    onState(state);
    try {
      await file.write(shutdownStateText(state));
    } catch (error) {
      log.error('Failed to store graceful shutdown state', { err: messageOf(error) });
    }
  }

  async #restore(): Promise<void> {
    const { log, state, onState } = this.#options;
    try {
      const text = await state.read();
      if (text !== null) onState(readShutdownState(text));
    } catch (error) {
      log.error('Failed to load graceful shutdown state', { err: messageOf(error) });
    }
  }
}

interface Queue {
  push(begins: boolean): void;
  end(): void;
  /** The next that was told; null when nothing more will be. */
  next(): Promise<boolean | null>;
}

function createQueue(): Queue {
  const told: (boolean | null)[] = [];
  let wake: () => void = () => undefined;
  const add = (each: boolean | null): void => {
    told.push(each);
    wake();
  };
  return {
    push: add,
    end: () => add(null),
    async next() {
      while (told.length === 0) await new Promise<void>((resolve) => (wake = resolve));
      return told.shift() ?? null;
    },
  };
}
