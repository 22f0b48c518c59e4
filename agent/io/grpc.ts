import {
  Client,
  connectivityState,
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  status as grpcStatus,
  type ClientReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceError,
  type UntypedServiceImplementation,
} from '@grpc/grpc-js';
import { fromJSON, type MethodDefinition, type ServiceDefinition } from '@grpc/proto-loader';
import { assert } from '../../base/assert.ts';
import { OpError } from '../../base/errors.ts';
import type { Clock } from '../../base/clock.ts';
import { drained, grpcChannel, grpcLoading, RpcError, rpcStatuses } from '../../cri/mod.ts';

/*
 * The plugins' end of the agent: sockets of CSI drivers, DRA drivers and device plugins, and sockets that the agent
 * itself serves. The definitions stand in proto/plugins.
 */

/** What `*Methods` of proto/plugins looks like: what is sent, what is answered. */
export type Methods<M> = { [K in keyof M]: { request: object; response: object; stream: boolean } };

type Method = MethodDefinition<object, object>;

/** One service of a definition, ready to be called or served. Made once, at first use. */
export interface Service<M extends Methods<M>> {
  readonly name: string;
  readonly methods: ReadonlyMap<string, Method>;
  /** Only for the compiler. */
  readonly typed?: M;
}

/**
 * The service `name` (with its package) of `definition`, a JSON file of proto/plugins. `as` is the name it goes by on
 * the wire where that is another one, as for older versions of the same messages.
 */
export function serviceOf<M extends Methods<M>>(definition: object, name: string, as: string = name): Service<M> {
  const loaded = fromJSON(definition, grpcLoading)[name] as ServiceDefinition | undefined;
  assert(loaded !== undefined, `grpc: no service ${name}`);
  const methods = Object.entries(loaded).map(([method, each]): [string, Method] => [method, { ...each, path: `/${as}/${method}` }]);
  return { name: as, methods: new Map(methods) };
}

export interface GrpcCallOptions {
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
}

/** Speaks to one service behind a unix socket. Connects at the first call, and again by itself. */
export class GrpcClient<M extends Methods<M>> implements Disposable {
  readonly #client: Client;
  readonly #clock: Clock;
  readonly #service: Service<M>;

  /** @param path of the socket; `unix://` in front of it is left out */
  constructor(service: Service<M>, path: string, clock: Clock) {
    this.#client = new Client(`unix:${path.replace(/^unix:(\/\/)?/, '')}`, credentials.createInsecure(), grpcChannel);
    this.#clock = clock;
    this.#service = service;
  }

  /** One question, one answer. Throws RpcError. */
  call<K extends keyof M & string>(name: K, request: M[K]['request'], { timeoutMs, signal }: GrpcCallOptions): Promise<M[K]['response']> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted === true) {
        reject(new RpcError('Canceled', name, 'stopped by the caller', { cause: signal.reason }));
        return;
      }
      const method = this.#method(name);
      const cancel = (): void => running.cancel();
      const running = this.#client.makeUnaryRequest(
        method.path,
        method.requestSerialize,
        method.responseDeserialize,
        request,
        new Metadata(),
        { deadline: this.#clock.nowMs() + timeoutMs },
        (error, response) => {
          signal?.removeEventListener('abort', cancel);
          if (error !== null) reject(explain(error, name, signal));
          else resolve(response as M[K]['response']);
        },
      );
      signal?.addEventListener('abort', cancel, { once: true });
    });
  }

  /** One question, many answers, until the other side ends it or `signal` is aborted. Throws RpcError. */
  async *stream<K extends keyof M & string>(name: K, request: M[K]['request'], signal: AbortSignal): AsyncGenerator<M[K]['response']> {
    if (signal.aborted) throw new RpcError('Canceled', name, 'stopped by the caller', { cause: signal.reason });
    const method = this.#method(name);
    const running: ClientReadableStream<object> = this.#client.makeServerStreamRequest(
      method.path,
      method.requestSerialize,
      method.responseDeserialize,
      request,
      new Metadata(),
    );
    const cancel = (): void => running.cancel();
    signal.addEventListener('abort', cancel, { once: true });
    try {
      for await (const message of running) yield message as M[K]['response'];
    } catch (error) {
      throw explain(error as ServiceError, name, signal);
    } finally {
      signal.removeEventListener('abort', cancel);
      running.on('error', () => {});
      running.cancel();
    }
  }

  /** Connects without a call, and again whenever the connection is lost; tells each change, and the state at once, until `signal` is aborted. */
  stayConnected(tell: (isConnected: boolean) => void, signal: AbortSignal): void {
    const channel = this.#client.getChannel();
    let told: boolean | undefined;
    const look = (): void => {
      if (signal.aborted) return;
      const state = channel.getConnectivityState(true);
      if (state === connectivityState.SHUTDOWN) return;
      const isConnected = state === connectivityState.READY;
      if (isConnected !== told) tell((told = isConnected));
      channel.watchConnectivityState(state, Infinity, look);
    };
    look();
  }

  #method(name: string): Method {
    const method = this.#service.methods.get(name);
    assert(method !== undefined, `grpc: no method ${this.#service.name}/${name}`);
    return method;
  }

  [Symbol.dispose](): void {
    this.#client.close();
  }
}

function explain(error: ServiceError, method: string, signal: AbortSignal | undefined): Error {
  if (typeof error.code !== 'number') return error;
  const status = rpcStatuses[error.code] ?? 'Unknown';
  // `aborted` is the caller's own stop; a plugin that cancels for a reason of its own is away.
  const code = status === 'Canceled' && signal?.aborted !== true ? { code: 'unavailable' as const } : {};
  return new RpcError(status, method, error.details ?? error.message, { cause: error, ...code });
}

/** What answers the calls of a service. A throw of RpcError is its status, any other is Unknown. */
export type Answers<M extends Methods<M>> = {
  readonly [K in keyof M & string]: (
    request: Required<M[K]['request']>,
    signal: AbortSignal,
  ) => M[K]['stream'] extends true ? AsyncIterable<object> : object | Promise<object>;
};

/** One service with what answers it. */
export interface Served {
  readonly definition: UntypedServiceImplementation;
  readonly methods: Record<string, Method>;
}

/** Joins a service and its answers for `serveGrpc`. */
export function served<M extends Methods<M>>(service: Service<M>, answers: Answers<M>): Served {
  const definition: UntypedServiceImplementation = {};
  for (const [name, method] of service.methods) {
    const answer = answers[name as keyof M & string] as (request: object, signal: AbortSignal) => unknown;
    definition[name] = method.responseStream
      ? (call: ServerWritableStream<object, object>) => void answerStream(call, answer)
      : (call: ServerUnaryCall<object, object>, done: (error: Partial<ServiceError> | null, value?: object) => void) => void answerOnce(call, done, answer);
  }
  return { definition, methods: Object.fromEntries(service.methods) };
}

async function answerOnce(
  call: ServerUnaryCall<object, object>,
  done: (error: Partial<ServiceError> | null, value?: object) => void,
  answer: (request: object, signal: AbortSignal) => unknown,
): Promise<void> {
  const gone = new AbortController();
  call.on('cancelled', () => gone.abort());
  try {
    done(null, (await answer(call.request, gone.signal)) as object);
  } catch (error) {
    done(statusOf(error));
  }
}

async function answerStream(call: ServerWritableStream<object, object>, answer: (request: object, signal: AbortSignal) => unknown): Promise<void> {
  const gone = new AbortController();
  call.on('cancelled', () => gone.abort());
  try {
    for await (const message of answer(call.request, gone.signal) as AsyncIterable<object>) {
      if (gone.signal.aborted) return;
      // A reader that stands still must not have everything kept for it.
      if (!call.write(message)) await drained(call);
    }
    call.end();
  } catch (error) {
    if (!gone.signal.aborted) call.destroy(Object.assign(new Error(statusOf(error).details), statusOf(error)));
  }
}

function statusOf(error: unknown): { code: number; details: string } {
  if (error instanceof RpcError) return { code: error.grpcCode, details: error.description };
  return { code: grpcStatus.UNKNOWN, details: error instanceof Error ? error.message : String(error) };
}

/** Listens on a unix socket, whose path must be free. Disposing ends all calls and removes the socket. Throws OpError. */
export async function serveGrpc(path: string, services: readonly Served[]): Promise<AsyncDisposable> {
  const server = new Server({ 'grpc.max_receive_message_length': 16 * 1024 * 1024 });
  for (const { methods, definition } of services) server.addService(methods, definition);
  await new Promise<void>((resolve, reject) => {
    server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) => {
      if (error === null) resolve();
      else reject(new OpError('failed', `listen on ${path}`, error.message, { cause: error }));
    });
  });
  return {
    async [Symbol.asyncDispose]() {
      server.forceShutdown();
    },
  };
}
