import { callFields } from './call-fields.ts';
import { fieldsOf } from './call-line.ts';
import { PodCalls, type PodCall } from './pod-calls.ts';
import type { RecordedCall, RecordedEntry, RecordedMessage, RecordedOpening } from './recording.ts';
import { shown } from './shown.ts';

/** A call with all that is known of it, its words as they may be printed; or one answer of a stream of events, which reads as a call of its own. */
export interface SeenCall extends Pick<
  PodCall,
  'sandboxAttempt' | 'container' | 'other' | 'startMs' | 'endMs' | 'outcome' | 'message' | 'request' | 'answer' | 'answers'
> {
  readonly kind: 'call' | 'event';
  readonly call: number;
  readonly connection: number;
  readonly service: string;
  /** With its service's last word where that is not the CRI's: `Containers/Get`. */
  readonly method: string;
  /** What the caller calls itself; empty when it does not. */
  readonly caller: string;
  /** `namespace/name`, without an attempt; empty for what is about no pod. */
  readonly pod: string;
  /** `namespace/name`, with a number where the name came again for another pod. */
  readonly group: string;
  readonly hasFailed: boolean;
  readonly requests: readonly RecordedMessage[];
  readonly responses: readonly RecordedMessage[];
}

/** Streams that are remembered until they end. */
const MAX_OPEN = 1_000;

/** Makes calls of entries, of a recording or a feed, in the order in which they end. Remembers what ids stand for, and no call. */
export class SeenCalls {
  readonly #pods = new PodCalls();
  readonly #open = new Map<number, RecordedOpening>();
  #shiftMs = 0;

  take(entry: RecordedEntry): SeenCall | null {
    const call = this.#pods.take(entry);
    switch (entry.type) {
      case 'recording':
        this.#shiftMs = Date.parse(entry.startedAt.wall) - entry.startedAt.monoMs;
        this.#open.clear();
        return null;
      case 'opening':
        if (this.#open.size < MAX_OPEN) this.#open.set(entry.call, entry);
        return null;
      case 'message': {
        const opening = this.#open.get(entry.call);
        return opening?.method === 'GetContainerEvents' ? this.#event(opening, entry.message, entry.at.monoMs) : null;
      }
      case 'call': {
        const opening = this.#open.get(entry.call);
        this.#open.delete(entry.call);
        return call === null ? null : seen(call, entry, opening?.requests ?? entry.requests);
      }
      default:
        return null;
    }
  }

  #event(opening: RecordedOpening, message: RecordedMessage, monoMs: number): SeenCall {
    const answer = fieldsOf(message);
    const { metadata } = (answer['podSandboxStatus'] ?? {}) as { metadata?: { namespace?: string; name?: string; attempt?: number } };
    const statuses = (answer['containersStatuses'] ?? []) as { id?: string; metadata?: { name?: string; attempt?: number } }[];
    const container = statuses.find(({ id }) => id === answer['containerId'])?.metadata;
    const pod = metadata?.name === undefined ? '' : shown(`${metadata.namespace ?? ''}/${metadata.name}`);
    return {
      ...{ kind: 'event', call: opening.call, connection: opening.connection, service: opening.service, method: opening.method, caller: '' },
      ...{ pod, group: pod, sandboxAttempt: metadata === undefined ? null : (metadata.attempt ?? 0) },
      container: container === undefined ? '' : shown(`${container.name ?? ''}#${container.attempt ?? 0}`),
      other: '',
      startMs: this.#shiftMs + monoMs,
      endMs: this.#shiftMs + monoMs,
      ...{ outcome: 'event', message: '', hasFailed: false, request: fieldsOf(opening.requests[0]), answer, answers: 1 },
      requests: opening.requests,
      responses: [message],
    };
  }
}

function seen(call: PodCall, entry: RecordedCall, requests: readonly RecordedMessage[]): SeenCall {
  const { pod, outcome, ...rest } = call;
  return {
    kind: 'call',
    ...{
      call: entry.call,
      connection: entry.connection,
      service: rest.service,
      method: shown(rest.method),
      caller: shown(entry.requestMetadata?.['user-agent'] ?? ''),
    },
    ...{ pod: pod === null ? '' : shown(`${pod.namespace}/${pod.name}`), group: shown(pod?.key ?? ''), sandboxAttempt: rest.sandboxAttempt },
    ...{ container: shown(rest.container), other: shown(rest.other), startMs: rest.startMs, endMs: rest.endMs, outcome, message: shown(rest.message) },
    hasFailed: outcome !== 'OK' && outcome !== 'open',
    ...{ request: rest.request, answer: rest.answer, answers: rest.answers, requests, responses: entry.responses },
  };
}

/** Whether it is of the runtime's own interface, and not of what else the runtime serves on the same socket. */
export function isCri(call: Pick<SeenCall, 'service'>): boolean {
  return call.service.startsWith('runtime.v1.');
}

/** What matters of it, in short parts. */
export function partsOf(call: SeenCall): string[] {
  const told = callFields(call.method, call.request, call.answer, call.outcome === 'OK' || call.kind === 'event');
  // What is named needs no id.
  const id = call.request['containerId'] ?? call.request['podSandboxId'];
  const parts = call.pod === '' ? told : told.filter((part) => part !== String(id).slice(0, 12) && !part.startsWith('pod.uid='));
  if (call.kind === 'call' && call.answers > 1) parts.push(`${call.answers} answers`);
  // An image that the table has said already needs no second word.
  return parts.length === 0 && call.other !== '' && call.pod === '' ? [call.other] : parts.map(shown);
}

/** As it is printed with `--json`. */
export function plainCall(call: SeenCall): Record<string, unknown> {
  const { requests: _requests, responses: _responses, request: _request, answer: _answer, startMs, endMs, group: _group, ...rest } = call;
  return {
    ...rest,
    start: new Date(startMs).toISOString(),
    durationMs: endMs === null ? null : Number((endMs - startMs).toFixed(3)),
    fields: partsOf(call),
  };
}
