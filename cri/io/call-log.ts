import { rpcStatuses } from '../errors.ts';
import type { ConnectionEvent, Cut, Side, Stamp } from '../core/connection.ts';
import type { ByteBudget, WireMessage } from '../core/grpc-messages.ts';
import type { Header } from '../core/hpack.ts';
import {
  redact,
  statusMessage,
  type RecordedCall,
  type RecordedEntry,
  type RecordedMessage,
  type RecordedOpening,
  type RecordedStatus,
  type RecordedTime,
  type RunningCall,
} from '../core/recording.ts';
import { decodeMessage, inflate, knownMethod } from './messages.ts';

/** Of one direction of a call that is unknown here, or that goes on and on. */
const MAX_HELD = 16;
/** Of calls that run for long: so many at once, and none whose request is larger, for they are held as objects then. */
const MAX_RUNNING = 100;
const MAX_RUNNING_BYTES = 256 * 1024;
/** Request headers that say nothing, or more than a recording should. */
const USUAL = /^(:|content-type$|te$|grpc-accept-encoding$)/;
const SECRET = /authorization|cookie|token/i;
/** HTTP/2's error codes that gRPC uses. */
const CUT_NAMES: Readonly<Record<number, string>> = { 0: 'no error', 2: 'internal error', 7: 'refused', 8: 'cancelled', 11: 'enhance your calm' };

export interface CallLogOptions {
  readonly budget: ByteBudget;
  readonly withSecrets: boolean;
  readonly write: (entry: RecordedEntry) => void;
  /** Whether anybody wants to know just now; calls that end unwanted are not put together. */
  readonly wanted: () => boolean;
}

interface OpenCall {
  readonly call: number;
  readonly connection: number;
  readonly stream: number;
  readonly path: string;
  readonly service: string;
  readonly method: string;
  readonly known: boolean;
  readonly streams: boolean;
  readonly start: RecordedTime;
  readonly metadata: readonly Header[];
  readonly encodings: Record<Side, string>;
  readonly held: Readonly<Record<Side, WireMessage[]>>;
  /** Answers with gRPC's status in them, where no trailers come after. */
  headers: readonly Header[];
  /** Once they were told. */
  requests: readonly RecordedMessage[] | null;
  /** Whether they stand in an opening. */
  isOpened: boolean;
  before: number;
}

export function recordedTime(at: Stamp): RecordedTime {
  return { wall: new Date(at.wallMs).toISOString(), monoMs: Number(at.monoMs.toFixed(3)) };
}

function value(headers: readonly Header[], name: string): string | undefined {
  return headers.find(([key]) => key === name)?.[1];
}

/** Makes records of calls from what decoders read along; holds a call's messages until it ends. */
export class CallLog {
  readonly #options: CallLogOptions;
  readonly #open = new Map<string, OpenCall>();
  /** Of those, the ones whose answers are many. */
  readonly #streams = new Set<OpenCall>();
  calls = 0;

  constructor(options: CallLogOptions) {
    this.#options = options;
  }

  take(connection: number, event: ConnectionEvent, at: Stamp): void {
    if (event.kind === 'blind') {
      this.#options.write({ type: 'connection', connection, at: recordedTime(at), event: 'blind', reason: event.reason });
      for (const call of this.#open.values()) if (call.connection === connection) this.#finish(call, null, [], 'no longer followed');
      return;
    }
    const key = `${connection}/${event.stream}`;
    if (event.kind === 'begin') {
      this.#open.set(key, this.#begin(connection, event.stream, event.headers, at));
      return;
    }
    const call = this.#open.get(key);
    if (call === undefined) {
      if (event.kind === 'message') this.#release(event.message);
    } else if (event.kind === 'answer') {
      call.headers = event.headers;
      call.encodings.server = value(event.headers, 'grpc-encoding') ?? '';
    } else if (event.kind === 'message') this.#message(call, event.from, event.message, at);
    else this.#finish(call, at, event.trailers, cutText(event.cut));
  }

  /** How the streams that are open now began, for somebody who comes late. */
  openings(): RecordedOpening[] {
    return this.#streams
      .values()
      .filter(({ before }) => before > 0)
      .map((call) => this.#opening(call))
      .toArray();
  }

  /** Calls that began before that moment and have not ended, those that were not told yet; streams run as long as they like. */
  running(beforeWallMs: number): RunningCall[] {
    const found: RunningCall[] = [];
    for (const call of this.#open.values()) {
      // In the order in which they began.
      if (Date.parse(call.start.wall) > beforeWallMs || found.length === MAX_RUNNING) break;
      if (call.streams || !call.known || call.requests !== null || call.held.client.length === 0) continue;
      if (call.held.client.some(({ sizeBytes }) => sizeBytes > MAX_RUNNING_BYTES)) continue;
      call.requests = this.#recorded(call, 'client');
      found.push({ type: 'running', ...identity(call), requests: call.requests });
    }
    return found;
  }

  /** Writes what is still open; nothing more comes. */
  end(): void {
    for (const call of this.#open.values()) this.#finish(call, null, [], '');
  }

  #begin(connection: number, stream: number, headers: readonly Header[], at: Stamp): OpenCall {
    const path = value(headers, ':path') ?? '';
    const [, service = '', method = ''] = path.split('/');
    const known = knownMethod(path);
    const call: OpenCall = {
      call: ++this.calls,
      connection,
      stream,
      path,
      service,
      method,
      known: known !== null,
      streams: known?.streams ?? false,
      start: recordedTime(at),
      metadata: headers.filter(([name]) => !USUAL.test(name)),
      encodings: { client: value(headers, 'grpc-encoding') ?? '', server: '' },
      held: { client: [], server: [] },
      headers: [],
      requests: null,
      isOpened: false,
      before: 0,
    };
    if (call.streams) this.#streams.add(call);
    return call;
  }

  #message(call: OpenCall, from: Side, message: WireMessage, at: Stamp): void {
    if (call.streams && from === 'server') {
      call.before += 1;
      if (!this.#options.wanted()) {
        this.#release(message);
        return;
      }
      if (!call.isOpened) this.#options.write(this.#opening(call));
      this.#options.write({ type: 'message', call: call.call, at: recordedTime(at), message: this.#one(call, from, message) });
      return;
    }
    const held = call.held[from];
    if (held.length < MAX_HELD) held.push(message);
    else {
      this.#release(message);
      held.push({ ...message, bytes: null });
      // Beyond this they are a number only.
      if (held.length > 4 * MAX_HELD) held.length = 4 * MAX_HELD;
    }
  }

  #finish(call: OpenCall, end: Stamp | null, trailers: readonly Header[], cut: string): void {
    this.#open.delete(`${call.connection}/${call.stream}`);
    this.#streams.delete(call);
    if (!this.#options.wanted()) {
      for (const side of ['client', 'server'] as const) for (const message of call.held[side]) this.#release(message);
      return;
    }
    const status = statusOf(trailers.length > 0 ? trailers : call.headers);
    const metadata = plain(call.metadata);
    const rest = plain(trailers.filter(([name]) => !USUAL.test(name) && name !== 'grpc-status' && name !== 'grpc-message'));
    const record: RecordedCall = {
      type: 'call',
      ...identity(call),
      end: end === null ? null : recordedTime(end),
      ...(metadata === null ? {} : { requestMetadata: metadata }),
      requests: call.isOpened ? [] : (call.requests ?? this.#recorded(call, 'client')),
      responses: this.#recorded(call, 'server'),
      ...(call.before > 0 ? { responsesBefore: call.before } : {}),
      status,
      ...(status === null && cut !== '' ? { cut } : {}),
      ...(rest === null ? {} : { trailers: rest }),
    };
    for (const side of ['client', 'server'] as const) for (const message of call.held[side]) this.#release(message);
    this.#options.write(record);
  }

  #opening(call: OpenCall): RecordedOpening {
    call.requests ??= this.#recorded(call, 'client');
    call.isOpened = true;
    return { type: 'opening', ...identity(call), requests: call.requests };
  }

  #release(message: WireMessage): void {
    if (message.bytes !== null) this.#options.budget.give(message.sizeBytes);
  }

  #recorded(call: OpenCall, side: Side): RecordedMessage[] {
    const messages = call.held[side].map((message) => this.#one(call, side, message));
    call.held[side].length = 0;
    return messages;
  }

  /** A message as it is written; what it held is given back. */
  #one(call: OpenCall, side: Side, message: WireMessage): RecordedMessage {
    const { sizeBytes } = message;
    if (message.bytes === null) return { sizeBytes, skipped: true };
    this.#release(message);
    const bytes = message.compressed ? inflate(message.bytes, call.encodings[side]) : message.bytes;
    const { withSecrets } = this.#options;
    const kept = (raw: Uint8Array): RecordedMessage => (withSecrets ? { sizeBytes, raw: Buffer.from(raw).toString('base64') } : { sizeBytes, withheld: true });
    if (bytes === null || !call.known) return kept(bytes ?? message.bytes);
    const { json, raw } = decodeMessage(call.path, side, bytes);
    if (json === undefined) return kept(bytes);
    const fields = withSecrets ? json : redact(json);
    if (raw === undefined) return { fields, sizeBytes };
    return withSecrets ? { fields, sizeBytes, raw: raw.toString('base64') } : { fields, sizeBytes, unknownFields: true };
  }
}

function identity({
  call,
  connection,
  stream,
  service,
  method,
  start,
}: OpenCall): Pick<RecordedCall, 'call' | 'connection' | 'stream' | 'service' | 'method' | 'start'> {
  return { call, connection, stream, service, method, start };
}

function plain(headers: readonly Header[]): Record<string, string> | null {
  if (headers.length === 0) return null;
  return Object.fromEntries(headers.map(([name, text]) => [name, SECRET.test(name) ? '(withheld)' : text]));
}

function statusOf(headers: readonly Header[]): RecordedStatus | null {
  const text = value(headers, 'grpc-status');
  if (text === undefined) return null;
  const code = Number(text);
  return { code, name: rpcStatuses[code] ?? 'Unknown', message: statusMessage(value(headers, 'grpc-message') ?? '') };
}

function cutText(cut: Cut | null): string {
  if (cut === null) return 'ended without a status';
  if (cut.by === 'close') return 'the connection was closed';
  return `${cut.by === 'client' ? 'the caller' : 'the runtime'} reset it: ${CUT_NAMES[cut.code] ?? `code ${cut.code}`}`;
}
