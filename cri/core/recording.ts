/** The file format's version: a reader refuses what is newer. */
export const RECORDING_VERSION = 1;

/** Times as they are written: RFC 3339 with milliseconds, and milliseconds on the recorder's clock that never jumps. */
export interface RecordedTime {
  readonly wall: string;
  readonly monoMs: number;
}

export interface RecordingHeader {
  readonly type: 'recording';
  readonly version: number;
  readonly recorder: string;
  readonly startedAt: RecordedTime;
  /** The sockets between which it was made. */
  readonly listen: string;
  readonly upstream: string;
  /** False when environment values, credentials and raw bytes were left in. */
  readonly redacted: boolean;
}

export interface RecordedConnection {
  readonly type: 'connection';
  readonly connection: number;
  readonly at: RecordedTime;
  /** `blind`: from here on its calls are not known, for this reason. */
  readonly event: 'open' | 'close' | 'blind';
  readonly reason?: string;
}

/** A message: its fields; or its size and, where they are kept, its bytes. */
export type RecordedMessage =
  | { readonly fields: object; readonly sizeBytes: number; readonly raw?: string; readonly unknownFields?: true }
  | { readonly sizeBytes: number; readonly raw?: string; readonly withheld?: true; readonly skipped?: true };

export interface RecordedStatus {
  readonly code: number;
  readonly name: string;
  readonly message: string;
}

interface OfCall {
  /** Counts up within the file's recording; the same for all records of one call. */
  readonly call: number;
  readonly connection: number;
  readonly stream: number;
  /** `runtime.v1.RuntimeService`. */
  readonly service: string;
  readonly method: string;
  readonly start: RecordedTime;
}

/** A call of which messages are written as they come, because it may last. */
export interface RecordedOpening extends OfCall {
  readonly type: 'opening';
  readonly requests: readonly RecordedMessage[];
}

export interface RecordedStreamMessage {
  readonly type: 'message';
  readonly call: number;
  readonly at: RecordedTime;
  readonly message: RecordedMessage;
}

/** A call that has ended, or that was open when recording stopped (`end` null). */
export interface RecordedCall extends OfCall {
  readonly type: 'call';
  readonly end: RecordedTime | null;
  readonly requestMetadata?: Readonly<Record<string, string>>;
  readonly requests: readonly RecordedMessage[];
  /** Without those that stand in records of their own before this one. */
  readonly responses: readonly RecordedMessage[];
  readonly responsesBefore?: number;
  /** The runtime's answer; null when the call was cut off. */
  readonly status: RecordedStatus | null;
  readonly cut?: string;
  readonly trailers?: Readonly<Record<string, string>>;
}

/** Of a feed, in no recording: a call that has not ended after a second, told once. It comes again, as a call, when it ends. */
export interface RunningCall extends OfCall {
  readonly type: 'running';
  readonly requests: readonly RecordedMessage[];
}

/** The last record of a recording that stopped by itself. */
export interface RecordedStop {
  readonly type: 'stop';
  readonly at: RecordedTime;
  readonly reason: 'full' | 'ended';
  readonly calls: number;
  /** Connections of which some calls are missing. */
  readonly blindConnections: number;
}

export type RecordedEntry = RecordingHeader | RecordedConnection | RecordedOpening | RecordedStreamMessage | RecordedCall | RecordedStop;

function isTime(value: unknown): boolean {
  const { wall, monoMs } = (value ?? {}) as Partial<RecordedTime>;
  return typeof wall === 'string' && typeof monoMs === 'number';
}

/** Whether a line of a recording has what its kind must have; kinds that are not known here are let pass. */
export function isEntry(value: unknown): value is RecordedEntry {
  if (value === null || typeof value !== 'object') return false;
  const entry = value as Readonly<Record<string, unknown>>;
  const isOfCall = (): boolean =>
    typeof entry['method'] === 'string' && typeof entry['service'] === 'string' && isTime(entry['start']) && Array.isArray(entry['requests']);
  switch (entry['type']) {
    case 'recording':
      return typeof entry['version'] === 'number' && isTime(entry['startedAt']);
    case 'connection':
    case 'stop':
      return isTime(entry['at']);
    case 'message':
      return isTime(entry['at']) && typeof entry['message'] === 'object' && entry['message'] !== null;
    case 'opening':
      return isOfCall();
    case 'call':
      return isOfCall() && Array.isArray(entry['responses']) && entry['status'] !== undefined && (entry['end'] === null || isTime(entry['end']));
    default:
      return typeof entry['type'] === 'string';
  }
}

/** What stands in place of what is not written. */
export const WITHHELD = '(withheld)';
/** `kubectl apply` keeps the whole object here, environment and all. */
const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';
const CREDENTIALS = new Set(['username', 'password', 'auth', 'identityToken', 'registryToken']);

/**
 * A message without environment values, registry credentials and a runtime's verbose information (which repeats both);
 * everything else as it was. Command lines, output of ExecSync and other annotations stay: they are what a recording is for.
 */
export function redact(message: object): object {
  return redactIn(message, '') as object;
}

function redactIn(value: unknown, key: string): unknown {
  if (Array.isArray(value)) {
    if (key === 'envs') return value.map((entry: object) => ({ ...entry, ...('value' in entry ? { value: WITHHELD } : {}) }));
    return value.map((entry) => redactIn(entry, key));
  }
  if (value === null || typeof value !== 'object') return value;
  const out: Record<string, unknown> = {};
  for (const [name, inner] of Object.entries(value)) {
    if (key === 'auth' && CREDENTIALS.has(name)) out[name] = WITHHELD;
    else if (key === 'info' && typeof inner === 'string') out[name] = WITHHELD;
    else if (key === 'annotations' && name === LAST_APPLIED) out[name] = WITHHELD;
    else out[name] = redactIn(inner, name);
  }
  return out;
}

/** gRPC's `grpc-message`: percent-encoded UTF-8, and left as it is where that is wrong. */
export function statusMessage(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
