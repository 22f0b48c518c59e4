import { rfc3339, type Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import { ApiError, isApiError } from '../../base/kubeapi/errors.ts';
import { Limiter } from '../../base/kubeapi/limiter.ts';
import { coreEvents } from '../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Event } from '../../proto/kube/types.ts';
import { EventCorrelator, type EventPlan, type ToldEvent } from '../core/events.ts';
import type { Events } from '../seams.ts';

export interface EventsApiOptions {
  clock: Clock;
  rng: Rng;
  log: Log;
  api: KubeApi;
  nodeName: string;
  /** `eventRecordQPS` and `eventBurst`: how fast Events are written; 0 is no bound. */
  qps?: number;
  burst?: number;
}

export interface EventsApi extends Events {
  /** Sends until `signal` is aborted; what waits then is lost. */
  run(signal: AbortSignal): Promise<void>;
  /** Waiting to be sent. */
  readonly waiting: number;
  /** Not sent: over the budget, the queue was full, or the API server refused. */
  readonly dropped: number;
}

/** Upstream's broadcaster holds 1,000. */
const queueMax = 1_000;
const tries = 12;
const retryMs = 10_000;
const callTimeoutMs = 10_000;

interface Told extends ToldEvent {
  readonly atMs: number;
  readonly annotations: Readonly<Record<string, string>> | undefined;
}

/** Tells Events, one at a time and in order. Telling never waits: when the API server is slow the newest are dropped. */
export function createEventsApi(options: EventsApiOptions): EventsApi {
  const { clock, log } = options;
  const correlator = new EventCorrelator();
  const limiter = options.qps === undefined || options.qps <= 0 ? null : new Limiter(options.qps, options.burst ?? options.qps, clock);
  const queue: Told[] = [];
  let dropped = 0;
  let wake: () => void = () => undefined;

  const sendOne = async (told: Told, signal: AbortSignal): Promise<void> => {
    const plan = correlator.observe(told, told.atMs);
    if (plan === null) {
      dropped++;
      return;
    }
    for (let attempt = 1; ; attempt++) {
      try {
        await limiter?.take(signal);
        return await send(options, correlator, told, plan, signal);
      } catch (error) {
        if (signal.aborted) return;
        const isRefused = error instanceof ApiError && error.code >= 400 && error.code < 500 && error.code !== 429;
        if (isRefused || attempt >= tries) {
          dropped++;
          log.error(isRefused ? 'Server rejected event (will not retry!)' : 'Unable to write event (retry limit exceeded!)', {
            err: messageOf(error),
            reason: told.reason,
            object: told.target.name,
          });
          return;
        }
        // The first pause is of a random length, so that many nodes do not come back at once.
        await clock.sleep(attempt === 1 ? options.rng.float() * retryMs : retryMs, signal).catch(() => undefined);
      }
    }
  };

  return {
    event(target, type, reason, message, annotations) {
      log.info('Event occurred', {
        object: target.namespace === undefined ? target.name : `${target.namespace}/${target.name}`,
        fieldPath: target.fieldPath ?? '',
        kind: target.kind,
        apiVersion: target.apiVersion,
        type,
        reason,
        message,
      });
      if (queue.length >= queueMax) {
        dropped++;
        return;
      }
      queue.push({ target, type, reason, message, annotations, atMs: clock.nowMs() });
      wake();
    },
    get waiting() {
      return queue.length;
    },
    get dropped() {
      return dropped;
    },
    async run(signal) {
      while (!signal.aborted) {
        const told = queue.shift();
        if (told !== undefined) {
          await sendOne(told, signal);
          continue;
        }
        const { promise, resolve } = Promise.withResolvers<void>();
        wake = resolve;
        const stop = (): void => resolve();
        signal.addEventListener('abort', stop, { once: true });
        await promise;
        signal.removeEventListener('abort', stop);
      }
    },
  };
}

async function send(options: EventsApiOptions, correlator: EventCorrelator, told: Told, plan: EventPlan, signal: AbortSignal): Promise<void> {
  const { api } = options;
  const namespace = told.target.namespace ?? 'default';
  const call = { timeoutMs: callTimeoutMs };
  if (plan.existing !== null) {
    const patch = { count: plan.count, lastTimestamp: rfc3339(told.atMs), message: plan.message };
    try {
      await api.patch<Event>(coreEvents(namespace, plan.existing), 'strategic', patch, call, signal);
      return correlator.sent(plan, plan.existing);
    } catch (error) {
      if (!isApiError(error, 404)) throw error;
      correlator.lost(plan);
    }
  }
  const event = eventOf(options, told, plan, namespace);
  await api.create<Event>(coreEvents(namespace), event, call, signal);
  correlator.sent(plan, event.metadata.name ?? '');
}

function eventOf({ nodeName, rng }: EventsApiOptions, { target, type, reason, atMs, annotations }: Told, plan: EventPlan, namespace: string): Event {
  // Upstream's names end in the time in nanoseconds, in hex; below the millisecond ours is chance.
  const nanos = BigInt(atMs) * 1_000_000n + BigInt(rng.int(1_000_000));
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name: `${target.name}.${nanos.toString(16)}`, namespace, ...(annotations === undefined ? {} : { annotations: { ...annotations } }) },
    involvedObject: { ...target, ...(target.uid === '' ? { uid: undefined } : {}) },
    reason,
    message: plan.message,
    source: { component: 'kubelet', host: nodeName },
    firstTimestamp: rfc3339(plan.firstMs),
    lastTimestamp: rfc3339(atMs),
    count: plan.count,
    type,
    reportingComponent: 'kubelet',
    reportingInstance: nodeName,
  };
}
