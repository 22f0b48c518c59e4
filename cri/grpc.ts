import {
  Client,
  credentials,
  Metadata,
  status as grpcStatus,
  type CallOptions as GrpcOptions,
  type ClientReadableStream,
  type ServiceError,
} from '@grpc/grpc-js';
import { fromJSON, type MethodDefinition, type ServiceDefinition } from '@grpc/proto-loader';
import { assert } from '../base/assert.ts';
import { realClock, type Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import api from '../proto/cri/api.json' with { type: 'json' };
import { rpcError, RpcError } from './errors.ts';
import type { CallOptions, RuntimeCall, Transport } from './transport.ts';

type Method = MethodDefinition<object, object>;

/** How messages look on this side of the wire; proto/cri/types.ts is generated for exactly this. */
export const grpcLoading = { keepCase: false, longs: String, enums: String, defaults: true, oneofs: true };

/*
 * The kubelet's own settings, where gRPC for Node has others: 16 MiB in one message, a new try at a dead socket
 * at least every 3 s (120 s by default), no keepalive (Go servers close connections that ping often).
 */
export const grpcChannel = {
  'grpc.max_receive_message_length': 16 * 1024 * 1024,
  'grpc.max_send_message_length': -1,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.min_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 3_000,
  'grpc.enable_channelz': 0,
  'grpc.enable_retries': 0,
  'grpc.default_authority': 'localhost',
};

/** `unix:///run/x.sock` or a bare path → what gRPC dials. Throws OpError `invalid`. */
export function dialTarget(endpoint: string): string {
  const path = endpoint.startsWith('unix:') ? endpoint.slice('unix:'.length).replace(/^\/\/(?=\/)/, '') : endpoint;
  if (!path.startsWith('/'))
    throw new OpError('invalid', 'container runtime endpoint', `"${endpoint}" is not a unix socket`, {
      advice: 'write unix:///run/containerd/containerd.sock',
    });
  return `unix:${path}`;
}

let definitions: ReadonlyMap<string, Method> | undefined;

/** The descriptors cost some tens of milliseconds: made at first use, once, before there is a pod. */
function methodOf(call: RuntimeCall): Method {
  if (definitions === undefined) {
    const loaded = fromJSON(api as unknown as Parameters<typeof fromJSON>[0], grpcLoading);
    const found = new Map<string, Method>();
    for (const service of ['RuntimeService', 'ImageService']) {
      for (const [name, method] of Object.entries(loaded[`runtime.v1.${service}`] as ServiceDefinition)) found.set(`${service}/${name}`, method);
    }
    definitions = found;
  }
  const method = definitions.get(`${call.service}/${call.method}`);
  assert(method !== undefined, `cri: no method ${call.service}/${call.method}`);
  return method;
}

function metadataOf(headers: CallOptions['headers']): Metadata {
  const metadata = new Metadata();
  for (const [name, value] of Object.entries(headers ?? {})) metadata.set(name, value);
  return metadata;
}

class GrpcTransport implements Transport {
  readonly #client: Client;
  readonly #clock: Clock;

  constructor(endpoint: string, clock: Clock) {
    this.#client = new Client(dialTarget(endpoint), credentials.createInsecure(), grpcChannel);
    this.#clock = clock;
  }

  #options(timeoutMs: number): GrpcOptions {
    return Number.isFinite(timeoutMs) ? { deadline: this.#clock.nowMs() + timeoutMs } : {};
  }

  call(call: RuntimeCall, { timeoutMs, signal, headers }: CallOptions): Promise<object> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(rpcError(grpcStatus.CANCELLED, call.method, 'stopped by the caller', signal.reason));
        return;
      }
      const method = methodOf(call);
      const cancel = (): void => running.cancel();
      const running = this.#client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        call.request,
        metadataOf(headers),
        this.#options(timeoutMs),
        (error, response) => {
          signal?.removeEventListener('abort', cancel);
          if (error !== null) reject(this.#explain(error, call, signal));
          else resolve(response as object);
        },
      );
      signal?.addEventListener('abort', cancel, { once: true });
    });
  }

  async *stream(call: RuntimeCall, { timeoutMs, signal }: CallOptions): AsyncGenerator<object> {
    if (signal?.aborted === true) throw rpcError(grpcStatus.CANCELLED, call.method, 'stopped by the caller', signal.reason);
    const method = methodOf(call);
    const running: ClientReadableStream<object> = this.#client.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      call.request,
      new Metadata(),
      this.#options(timeoutMs),
    );
    const cancel = (): void => running.cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      for await (const message of running) yield message as object;
    } catch (error) {
      throw this.#explain(error as ServiceError, call, signal);
    } finally {
      signal?.removeEventListener('abort', cancel);
      running.on('error', () => {});
      running.cancel();
    }
  }

  #explain(error: ServiceError, call: RuntimeCall, signal: AbortSignal | undefined): Error {
    if (typeof error.code !== 'number') return error;
    const details = error.details ?? error.message;
    // `aborted` is the caller's own stop. A runtime that shuts down cancels what it had begun, and comes back.
    if (error.code === grpcStatus.CANCELLED && signal?.aborted !== true)
      return new RpcError('Canceled', call.method, details, { cause: error, code: 'unavailable' });
    return rpcError(error.code, call.method, details, error);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#client.close();
  }
}

/**
 * A runtime behind a unix socket. Connects at the first call, and again by itself after the socket went away; meanwhile
 * calls fail at once with `unavailable`.
 */
export function connectRuntime(endpoint: string, clock: Clock = realClock): Transport {
  return new GrpcTransport(endpoint, clock);
}
