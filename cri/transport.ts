import type { ImageServiceMethods, RuntimeServiceMethods } from '../proto/cri/types.ts';

export interface Services {
  RuntimeService: RuntimeServiceMethods;
  ImageService: ImageServiceMethods;
}

export type ServiceName = keyof Services;

/** One call as it goes over the seam. */
export interface RuntimeCall {
  readonly service: ServiceName;
  /** `RunPodSandbox`, as in api.proto. */
  readonly method: string;
  readonly request: object;
}

export interface CallOptions {
  /** Milliseconds until the call counts as failed; Infinity waits for ever. */
  timeoutMs: number;
  signal?: AbortSignal | undefined;
  /** Sent as gRPC metadata. */
  headers?: Readonly<Record<string, string>> | undefined;
}

/**
 * The seam to a container runtime. All failures are RpcError, with OpError's codes; `aborted` when the signal was.
 */
export interface Transport extends AsyncDisposable {
  call(call: RuntimeCall, options: CallOptions): Promise<object>;
  /** Messages until the runtime ends the stream; leaving the loop ends the call. */
  stream(call: RuntimeCall, options: CallOptions): AsyncIterable<object>;
}

/** Something between client and runtime. What it leaves out passes through. */
export interface Interceptor {
  call?(call: RuntimeCall, options: CallOptions, next: Transport['call']): Promise<object>;
  stream?(call: RuntimeCall, options: CallOptions, next: Transport['stream']): AsyncIterable<object>;
}

/** `transport` behind the interceptors; the first sees a call first and its answer last. */
export function compose(transport: Transport, ...interceptors: readonly Interceptor[]): Transport {
  return interceptors.reduceRight<Transport>(
    (next, interceptor) => ({
      call: (call, options) => (interceptor.call === undefined ? next.call(call, options) : interceptor.call(call, options, (a, b) => next.call(a, b))),
      stream: (call, options) =>
        interceptor.stream === undefined ? next.stream(call, options) : interceptor.stream(call, options, (a, b) => next.stream(a, b)),
      [Symbol.asyncDispose]: () => next[Symbol.asyncDispose](),
    }),
    transport,
  );
}
