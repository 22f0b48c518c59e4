import { type Clock, rfc3339 } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';

/** What an Event is about. */
export interface Subject {
  apiVersion: string;
  kind: string;
  namespace: string;
  name: string;
  uid: string;
  resourceVersion?: string;
}

export interface EventText {
  type: 'Normal' | 'Warning';
  reason: string;
  message: string;
}

/** Writes Events under one component's name; never makes its caller wait or fail. */
export interface Recorder {
  event(subject: Subject, text: EventText): void;
}

interface Series {
  name: string;
  namespace: string;
  count: number;
}

const REMEMBERED_SERIES = 1024;
const WAITING_EVENTS = 1000;
const MESSAGE_LIMIT = 1024;

export function subjectOf(object: KubeObject, apiVersion: string, kind: string): Subject {
  const { namespace = '', name = '', uid = '', resourceVersion } = object.metadata;
  return { apiVersion, kind, namespace, name, uid, ...(resourceVersion === undefined ? {} : { resourceVersion }) };
}

/** An Event that repeats raises the count of the first one instead of adding another. */
export function createRecorder(component: string, api: KubeApi, clock: Clock, log: Log, signal: AbortSignal): Recorder {
  const series = new Map<string, Series>();
  let waiting = 0;
  let last = Promise.resolve();
  let lastStampNs = 0n;

  const write = async (subject: Subject, text: EventText, nowMs: number): Promise<void> => {
    const namespace = subject.namespace === '' ? 'default' : subject.namespace;
    const key = [subject.uid, subject.name, subject.kind, text.type, text.reason, text.message].join('|');
    const known = series.get(key);
    const timestamp = rfc3339(nowMs);
    if (known !== undefined) {
      known.count++;
      const ref = { group: '', version: 'v1', resource: 'events', namespace, name: known.name };
      try {
        await api.patch(ref, 'merge', { count: known.count, lastTimestamp: timestamp }, {}, signal);
        return;
      } catch {
        // The first one has expired: this starts a new series.
        series.delete(key);
      }
    }
    let stampNs = BigInt(nowMs) * 1_000_000n;
    if (stampNs <= lastStampNs) stampNs = lastStampNs + 1n;
    lastStampNs = stampNs;
    const name = `${subject.name}.${stampNs.toString(16)}`;
    await api.create(
      { group: '', version: 'v1', resource: 'events', namespace },
      {
        apiVersion: 'v1',
        kind: 'Event',
        metadata: { name, namespace },
        involvedObject: subject,
        ...text,
        message: text.message.slice(0, MESSAGE_LIMIT),
        source: { component },
        firstTimestamp: timestamp,
        lastTimestamp: timestamp,
        count: 1,
        reportingComponent: component,
        reportingInstance: '',
      } as KubeObject,
      {},
      signal,
    );
    series.set(key, { name, namespace, count: 1 });
    if (series.size > REMEMBERED_SERIES) {
      for (const oldest of series.keys()) {
        series.delete(oldest);
        break;
      }
    }
  };

  return {
    event(subject, text) {
      if (waiting >= WAITING_EVENTS || signal.aborted) return;
      const nowMs = clock.nowMs();
      waiting++;
      last = last
        .then(() => write(subject, text, nowMs))
        .catch((error: unknown) => {
          if (!signal.aborted) log.debug(2, 'event not written', { reason: text.reason, object: subject.name, err: messageOf(error) });
        })
        .finally(() => {
          waiting--;
        });
    },
  };
}
