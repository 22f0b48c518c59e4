import type { RecordedMessage, RecordedStatus } from './recording.ts';
import type { TimelineCall } from './timeline.ts';

/** What the page is told first. */
export interface WebHello {
  readonly version: string;
  /** A recording's path, or the socket that the tap listens on. */
  readonly name: string;
  /** The runtime's socket. */
  readonly upstream: string;
  readonly live: boolean;
  /** Whether there is a tap that can be told to break calls. */
  readonly canBreak: boolean;
}

/** A call as it goes to the page, in the order of `TimelineCall`'s fields. */
export type WireCall = readonly [
  id: number,
  method: string,
  sandbox: string,
  container: string,
  other: string,
  connection: number,
  startMs: number,
  endMs: number | null,
  outcome: string,
  message: string,
  sizeBytes: number,
  answers: number,
];

/** One event of the stream that the page reads. */
export interface WebEvent {
  readonly hello?: WebHello;
  /** Calls that are new, or have changed: the later one counts. */
  readonly calls?: readonly WireCall[];
  /** What is to be known beside the calls: connections that are not followed, a recording that was full. */
  readonly notes?: readonly string[];
  /** So many older calls are not shown. */
  readonly left?: number;
  /** The recording has been read to its end. */
  readonly whole?: true;
}

/** Both sides of a call, as `call/ID` answers. */
export interface WebCallBodies {
  readonly service: string;
  readonly method: string;
  /** In the recording. */
  readonly call: number;
  readonly connection: number;
  readonly stream: number;
  readonly requests: readonly RecordedMessage[];
  readonly responses: readonly RecordedMessage[];
  /** Answers that are not among them. */
  readonly moreResponses: number;
  readonly status: RecordedStatus | null;
  readonly cut: string;
  readonly requestMetadata: Readonly<Record<string, string>>;
  readonly trailers: Readonly<Record<string, string>>;
}

/** A fault that is armed, as the page shows it. */
export interface WebFault {
  readonly number: number;
  readonly text: string;
  readonly matched: number;
  readonly fired: number;
}

export function toWire(call: TimelineCall): WireCall {
  const { id, method, sandbox, container, other, connection, startMs, endMs, outcome, message, sizeBytes, answers } = call;
  return [id, method, sandbox, container, other, connection, startMs, endMs, outcome, message, sizeBytes, answers];
}

/** @param same gives equal texts one place in memory */
export function fromWire(wire: WireCall, same: (text: string) => string): TimelineCall {
  const [id, method, sandbox, container, other, connection, startMs, endMs, outcome, message, sizeBytes, answers] = wire;
  return {
    id,
    method: same(method),
    sandbox: same(sandbox),
    container: same(container),
    other: same(other),
    connection,
    startMs,
    endMs,
    outcome: same(outcome),
    message: same(message),
    sizeBytes,
    answers,
  };
}
