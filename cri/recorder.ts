import type { Clock } from '../base/clock.ts';
import {
  redact,
  RECORDING_VERSION,
  type RecordedCall,
  type RecordedEntry,
  type RecordedMessage,
  type RecordedStatus,
  type RecordedTime,
} from './core/recording.ts';
import { plainJson } from './core/plain-json.ts';
import { withoutDefaults } from './core/without-defaults.ts';
import { RpcError } from './errors.ts';
import { methodShape } from './shape.ts';
import type { CallOptions, Interceptor, RuntimeCall } from './transport.ts';

interface RecorderOptions {
  readonly clock: Clock;
  readonly recorder: string;
  readonly write: (entry: RecordedEntry) => void;
}

function messageOf(type: string, message: object): RecordedMessage {
  const fields = redact(plainJson(withoutDefaults(type, message)) as object);
  return { fields, sizeBytes: JSON.stringify(fields).length };
}

function statusOf(error: unknown): RecordedStatus {
  if (error instanceof RpcError) return { code: error.grpcCode, name: error.status, message: error.description };
  return { code: 2, name: 'Unknown', message: error instanceof Error ? error.message : String(error) };
}

/**
 * Records what goes over the seam, without a socket: the same entries as a tap writes, redacted the same way. There is one
 * connection; sizes are those of the text. The header is written at once.
 */
export function recorder({ clock, recorder: name, write }: RecorderOptions): Interceptor {
  const now = (): RecordedTime => ({ wall: new Date(clock.nowMs()).toISOString(), monoMs: Number(clock.monoMs().toFixed(3)) });
  let calls = 0;
  write({ type: 'recording', version: RECORDING_VERSION, recorder: name, startedAt: now(), listen: '', upstream: '', redacted: true });

  const begin = (call: RuntimeCall): Omit<RecordedCall, 'type' | 'end' | 'responses' | 'status'> => ({
    call: ++calls,
    connection: 1,
    stream: 2 * calls - 1,
    service: `runtime.v1.${call.service}`,
    method: call.method,
    start: now(),
    requests: [messageOf(methodShape(call.service, call.method).requestType, call.request)],
  });
  const ok: RecordedStatus = { code: 0, name: 'OK', message: '' };

  return {
    async call(call: RuntimeCall, options: CallOptions, next) {
      const begun = begin(call);
      const end = (responses: RecordedMessage[], status: RecordedStatus | null, cut?: string): void =>
        write({ type: 'call', ...begun, end: now(), responses, status, ...(cut === undefined ? {} : { cut }) });
      try {
        const answer = await next(call, options);
        end([messageOf(methodShape(call.service, call.method).responseType, answer)], ok);
        return answer;
      } catch (error) {
        if (options.signal?.aborted === true) end([], null, 'the caller reset it: cancelled');
        else end([], statusOf(error));
        throw error;
      }
    },
    async *stream(call: RuntimeCall, options: CallOptions, next) {
      const { requests, ...begun } = begin(call);
      let before = 0;
      const end = (status: RecordedStatus | null, cut?: string): void =>
        write({
          type: 'call',
          ...begun,
          end: now(),
          requests: before > 0 ? [] : requests,
          responses: [],
          ...(before > 0 ? { responsesBefore: before } : {}),
          status,
          ...(cut === undefined ? {} : { cut }),
        });
      let whole = false;
      try {
        for await (const message of next(call, options)) {
          if (before === 0) write({ type: 'opening', ...begun, requests });
          before += 1;
          write({ type: 'message', call: begun.call, at: now(), message: messageOf(methodShape(call.service, call.method).responseType, message) });
          yield message;
        }
        whole = true;
        end(ok);
      } catch (error) {
        whole = true;
        if (options.signal?.aborted === true) end(null, 'the caller reset it: cancelled');
        else end(statusOf(error));
        throw error;
      } finally {
        if (!whole) end(null, 'the caller reset it: cancelled');
      }
    },
  };
}
