import type { IdentityBook, Subject } from './identity.ts';
import type { RecordedCall, RecordedMessage } from './recording.ts';
import { shown } from './shown.ts';

export interface CallSummary {
  readonly call: number;
  readonly connection: number;
  readonly stream: number;
  readonly service: string;
  readonly method: string;
  readonly start: string;
  /** Null while it has no end. */
  readonly durationMs: number | null;
  readonly sandbox: string;
  readonly container: string;
  readonly other: string;
  /** The pod's; empty where `sandbox` is. */
  readonly uid: string;
  /** gRPC's name of the status; `cut` when it ended without one, `open` when it has not ended. */
  readonly outcome: string;
  readonly message: string;
}

export function fieldsOf(message: RecordedMessage | undefined): Readonly<Record<string, unknown>> {
  return message !== undefined && 'fields' in message ? (message.fields as Readonly<Record<string, unknown>>) : {};
}

/** What a call says in one line; teaches `book` what the call tells of ids. */
export function summarize(call: RecordedCall, book: IdentityBook): CallSummary {
  const request = fieldsOf(call.requests[0]);
  if (call.status?.code === 0) for (const response of call.responses) book.learn(call.method, request, fieldsOf(response));
  const subject: Subject = book.subject(call.method, request);
  return {
    call: call.call,
    connection: call.connection,
    stream: call.stream,
    service: call.service,
    method: call.method,
    start: call.start.wall,
    durationMs: call.end === null ? null : Number((call.end.monoMs - call.start.monoMs).toFixed(3)),
    ...subject,
    outcome: call.end === null ? 'open' : (call.status?.name ?? 'cut'),
    message: call.status === null ? (call.cut ?? '') : call.status.code === 0 ? '' : call.status.message,
  };
}

/** `12:04:01.118     312.4 ms  RunPodSandbox  default/web#0  OK`. */
export function summaryLine(summary: CallSummary): string {
  const duration = summary.durationMs === null ? '–' : `${summary.durationMs.toFixed(1)} ms`;
  const subject = [summary.sandbox, summary.container].filter((part) => part !== '').join('/') || summary.other;
  const end = summary.message === '' ? summary.outcome : `${summary.outcome}: ${summary.message}`;
  return shown(`${summary.start.slice(11, 23)} ${duration.padStart(12)}  ${summary.method.padEnd(20)} ${subject === '' ? '' : `${subject}  `}${end}`);
}
