import { summarize } from './call-line.ts';
import { IdentityBook } from './identity.ts';
import type { RecordedCall, RecordedEntry, RecordedMessage, RecordedOpening, RecordingHeader } from './recording.ts';
import type { TimelineCall } from './timeline.ts';

/** Open streams that are remembered. */
const MAX_OPEN = 1_000;

interface Section {
  readonly wallMs: number;
  readonly monoMs: number;
}

/** Makes calls of a timeline from a recording's entries, or from those of a feed. */
export class TimelineCalls {
  readonly #book = new IdentityBook();
  readonly #open = new Map<number, TimelineCall>();
  #section: Section = { wallMs: 0, monoMs: 0 };
  #next = 0;

  /** How many calls there were so far; the next one's id. */
  get count(): number {
    return this.#next;
  }

  /** The call that an entry of a stream is about, by the number in the recording. */
  openCall(call: number): TimelineCall | undefined {
    return this.#open.get(call);
  }

  /** The call that an entry makes or changes; null where nothing is to be shown again. */
  take(entry: RecordedEntry): TimelineCall | null {
    switch (entry.type) {
      case 'recording':
        this.#begin(entry);
        return null;
      case 'opening':
        return this.#opening(entry);
      case 'message': {
        const call = this.#open.get(entry.call);
        if (call === undefined) return null;
        call.answers += 1;
        call.sizeBytes += entry.message.sizeBytes;
        // The page is told of the first, second, fourth, eighth …: a stream of thousands is one bar.
        return (call.answers & (call.answers - 1)) === 0 ? call : null;
      }
      case 'call':
        return this.#ended(entry);
      default:
        return null;
    }
  }

  #begin(header: RecordingHeader): void {
    this.#section = { wallMs: Date.parse(header.startedAt.wall), monoMs: header.startedAt.monoMs };
    this.#open.clear();
  }

  #at(monoMs: number): number {
    return this.#section.wallMs + (monoMs - this.#section.monoMs);
  }

  #opening(entry: RecordedOpening): TimelineCall {
    const call = this.#made({ ...entry, type: 'call', end: null, responses: [], status: null });
    if (this.#open.size < MAX_OPEN) this.#open.set(entry.call, call);
    return call;
  }

  #ended(entry: RecordedCall): TimelineCall {
    const opened = this.#open.get(entry.call);
    if (opened === undefined) return this.#made(entry);
    this.#open.delete(entry.call);
    const { outcome, message } = summarize(entry, this.#book);
    opened.endMs = entry.end === null ? null : this.#at(entry.end.monoMs);
    opened.outcome = outcome;
    opened.message = message;
    opened.answers += entry.responses.length;
    opened.sizeBytes += sizeOf(entry.responses);
    return opened;
  }

  #made(entry: RecordedCall): TimelineCall {
    const { method, sandbox, container, other, connection, outcome, message } = summarize(entry, this.#book);
    const call: TimelineCall = {
      id: this.#next,
      method: entry.service.startsWith('runtime.v1.') ? method : `${entry.service.slice(entry.service.lastIndexOf('.') + 1)}/${method}`,
      sandbox,
      container,
      other,
      connection,
      startMs: this.#at(entry.start.monoMs),
      endMs: entry.end === null ? null : this.#at(entry.end.monoMs),
      outcome,
      message,
      sizeBytes: sizeOf(entry.requests) + sizeOf(entry.responses),
      answers: entry.responses.length,
    };
    this.#next += 1;
    return call;
  }
}

function sizeOf(messages: readonly RecordedMessage[]): number {
  return messages.reduce((sum, message) => sum + message.sizeBytes, 0);
}
