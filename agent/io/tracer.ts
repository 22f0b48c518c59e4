import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { connect, type ClientHttp2Session, type IncomingHttpHeaders } from 'node:http2';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { RpcError, type Interceptor } from '../../cri/mod.ts';
import { encodeSpans, endpointOf, isSampled, traceparentOf, type FinishedSpan, type SpanContext, type SpanKind } from '../core/tracing.ts';

export interface SpanOptions {
  readonly kind?: SpanKind;
  readonly attributes?: Readonly<Record<string, string | number>>;
  /** From another process; absent: what goes on here already. */
  readonly parent?: SpanContext | null;
}

/** Begins spans around work (`tracing` of the configuration). */
export interface Tracer {
  /** Runs `work` as a span; what it begins itself is below it. `set` adds attributes that are known later. */
  span<T>(name: string, options: SpanOptions, work: (set: (attributes: Readonly<Record<string, string | number>>) => void) => Promise<T>): Promise<T>;
  /** The `traceparent` to send on; null: nothing is traced. */
  traceparent(): string | null;
  /** Sends what has ended until `signal` is aborted, and once more then. */
  run(signal: AbortSignal): Promise<void>;
}

/** As OpenTelemetry's batch processor: sent when so many wait, or after so long; the rest is dropped. */
const batchMax = 512;
const queueMax = 2_048;
const periodMs = 5_000;
const sendMs = 10_000;
const defaultEndpoint = 'localhost:4317';
const exportPath = '/opentelemetry.proto.collector.trace.v1.TraceService/Export';

/** Nothing is traced, and nothing is paid for it. */
export const noTracer: Tracer = {
  span: (_name, _options, work) => work(() => undefined),
  traceparent: () => null,
  run: async (signal) => {
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }));
  },
};

/** The tracer that a configuration asks for. */
export function openTracer(tracing: unknown, options: Pick<TracerOptions, 'clock' | 'log' | 'hostname'>): Tracer {
  if (tracing === null || tracing === undefined) return noTracer;
  const { endpoint, samplingRatePerMillion } = tracing as { endpoint?: string | null; samplingRatePerMillion?: number | null };
  return createTracer({ ...options, endpoint: endpoint ?? null, perMillion: samplingRatePerMillion ?? 0 });
}

export interface TracerOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** `tracing.endpoint`. */
  readonly endpoint?: string | null;
  /** `tracing.samplingRatePerMillion`; traces that others began keep their own decision. */
  readonly perMillion: number;
  readonly hostname: string;
}

/** Sends spans by OTLP over gRPC, in plain text as upstream does. */
export function createTracer({ clock, log, endpoint, perMillion, hostname }: TracerOptions): Tracer {
  const current = new AsyncLocalStorage<SpanContext>();
  const queue: FinishedSpan[] = [];
  let dropped = 0;
  let wake: () => void = () => undefined;
  const collector = new Collector(endpointOf(endpoint ?? defaultEndpoint) ?? defaultEndpoint);
  const resource = { 'service.name': 'kubelet', 'host.name': hostname };
  const ended = (span: FinishedSpan): void => {
    if (!span.sampled) return;
    if (queue.length >= queueMax) dropped += 1;
    else queue.push(span);
    if (queue.length >= batchMax) wake();
  };
  const nowNs = (): bigint => BigInt(Math.round(clock.nowMs() * 1000)) * 1000n;

  const flush = async (signal: AbortSignal): Promise<void> => {
    while (queue.length > 0) {
      const batch = queue.splice(0, batchMax);
      try {
        await collector.send(encodeSpans(batch, resource, 'k8s.io/kubernetes/pkg/kubelet'), signal);
      } catch (error) {
        if (!signal.aborted) log.debug(2, 'Spans could not be sent', { count: batch.length, dropped, err: messageOf(error) });
        return;
      }
    }
  };

  return {
    async span(name, { kind = 'internal', attributes = {}, parent }, work) {
      const above = parent === undefined ? current.getStore() : (parent ?? undefined);
      const traceId = above?.traceId ?? randomBytes(16).toString('hex');
      const context: SpanContext = { traceId, spanId: randomBytes(8).toString('hex'), sampled: above?.sampled ?? isSampled(traceId, perMillion) };
      const startNs = nowNs();
      const startMs = clock.monoMs();
      const all: Record<string, string | number> = { ...attributes };
      let error: string | null = null;
      try {
        return await current.run(context, () => work((more) => void Object.assign(all, more)));
      } catch (cause) {
        error = messageOf(cause);
        throw cause;
      } finally {
        const endNs = startNs + BigInt(Math.round((clock.monoMs() - startMs) * 1000)) * 1000n;
        ended({ ...context, parentSpanId: above?.spanId ?? '', name, kind, startNs, endNs, attributes: all, error });
      }
    },
    traceparent() {
      const context = current.getStore();
      return context === undefined ? null : traceparentOf(context);
    },
    async run(signal) {
      while (!signal.aborted) {
        const woken = new AbortController();
        wake = () => woken.abort();
        await clock.sleep(periodMs, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
        if (!signal.aborted) await flush(signal);
      }
      await flush(AbortSignal.timeout(1_000));
      collector.close();
    },
  };
}

/** One gRPC method over one HTTP/2 connection, which is made anew after it broke. */
class Collector {
  readonly #endpoint: string;
  #session: ClientHttp2Session | null = null;

  constructor(endpoint: string) {
    this.#endpoint = endpoint;
  }

  close(): void {
    this.#session?.destroy();
    this.#session = null;
  }

  /** Throws OpError `unavailable`, or `failed` with the collector's words. */
  async send(message: Uint8Array, signal: AbortSignal): Promise<void> {
    const doing = `send spans to ${this.#endpoint}`;
    const body = Buffer.alloc(5 + message.length);
    body.writeUInt32BE(message.length, 1);
    body.set(message, 5);
    const session = this.#open();
    await new Promise<void>((resolve, reject) => {
      const fail = (cause: Error): void => {
        this.close();
        reject(new OpError('unavailable', doing, cause.message, { cause }));
      };
      if (session.destroyed) return fail(new Error('the connection is closed'));
      session.once('error', fail);
      const stream = session.request(
        { ':method': 'POST', ':path': exportPath, 'content-type': 'application/grpc', te: 'trailers', 'user-agent': 'nodelet' },
        { signal: AbortSignal.any([signal, AbortSignal.timeout(sendMs)]) },
      );
      let status: string | undefined;
      let words: string | undefined;
      const take = (headers: IncomingHttpHeaders): void => {
        status ??= headers['grpc-status']?.toString();
        words ??= headers['grpc-message']?.toString();
      };
      stream.on('response', take).on('trailers', take).on('error', fail).resume();
      stream.on('close', () => {
        session.off('error', fail);
        if (status === '0') resolve();
        else reject(new OpError('failed', doing, `gRPC status ${status ?? 'missing'} ${words ?? ''}`));
      });
      stream.end(body);
    });
  }

  #open(): ClientHttp2Session {
    if (this.#session !== null && !this.#session.destroyed) return this.#session;
    const session = connect(`http://${this.#endpoint}`);
    session.on('error', () => undefined);
    session.unref();
    this.#session = session;
    return session;
  }
}

/** gRPC's codes as OpenTelemetry writes them: `NotFound` is NOT_FOUND. */
function canonical(status: string): string {
  return status === 'Canceled' ? 'CANCELLED' : status.replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
}

/** Calls to the runtime as spans, whose trace the runtime goes on with. */
export function traceCalls(tracer: Tracer): Interceptor {
  return {
    call: (call, options, next) => {
      const service = `runtime.v1.${call.service}`;
      const name = `${service}/${call.method}`;
      const attributes = { 'rpc.system.name': 'grpc', 'rpc.method': name };
      return tracer.span(name, { kind: 'client', attributes }, async (set) => {
        const traceparent = tracer.traceparent();
        let status = 'OK';
        try {
          return await next(call, traceparent === null ? options : { ...options, headers: { traceparent } });
        } catch (error) {
          status = error instanceof RpcError ? canonical(error.status) : 'UNKNOWN';
          throw error;
        } finally {
          set({ 'rpc.response.status_code': status });
        }
      });
    },
  };
}
