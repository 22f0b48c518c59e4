import api from '../proto/cri/api.json' with { type: 'json' };
import type { ExecSyncRequest, StopContainerRequest } from '../proto/cri/types.ts';
import type { CallOptions, ServiceName, Services, Transport } from './transport.ts';

export interface ClientOptions {
  /** In place of the method's usual deadline; Infinity waits for ever. */
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
}

interface Shape {
  request: unknown;
  response: unknown;
  stream: boolean;
}

/** `RunPodSandbox: {request, response}` → `runPodSandbox(request, options?)`. */
type Methods<M> = {
  readonly [K in keyof M & string as Uncapitalize<K>]: M[K] extends Shape
    ? M[K]['stream'] extends true
      ? (request?: M[K]['request'], options?: ClientOptions) => AsyncIterable<M[K]['response']>
      : (request: M[K]['request'], options?: ClientOptions) => Promise<M[K]['response']>
    : never;
};

export type RuntimeService = Methods<Services['RuntimeService']>;
export type ImageService = Methods<Services['ImageService']>;

/** One typed method for each of the runtime's, and nothing else. */
export interface CriClient extends AsyncDisposable {
  readonly runtime: RuntimeService;
  readonly images: ImageService;
}

/** The kubelet's runtimeRequestTimeout. */
const usualMs = 120_000;

/** Deadlines as the kubelet sets them: more for what takes its own time, none for what has a progress of its own. */
export function deadlineMs(method: string, request: object): number {
  switch (method) {
    case 'RunPodSandbox':
      return 2 * usualMs;
    case 'StopContainer':
      return usualMs + Number((request as StopContainerRequest).timeout ?? 0) * 1000;
    case 'ExecSync': {
      const seconds = Number((request as ExecSyncRequest).timeout ?? 0);
      return seconds === 0 ? Infinity : usualMs + seconds * 1000;
    }
    case 'PullImage':
      return Infinity;
    default:
      return usualMs;
  }
}

interface MethodJson {
  responseStream?: boolean;
}

function serviceOf(transport: Transport, service: ServiceName): unknown {
  const { methods } = api.nested.runtime.nested.v1.nested[service] as { methods: Record<string, MethodJson> };
  const built: Record<string, unknown> = {};
  for (const [method, { responseStream }] of Object.entries(methods)) {
    const name = method.charAt(0).toLowerCase() + method.slice(1);
    const options = (given: ClientOptions, fallbackMs: number): CallOptions => ({ timeoutMs: given.timeoutMs ?? fallbackMs, signal: given.signal });
    built[name] =
      responseStream === true
        ? (request: object = {}, given: ClientOptions = {}) => transport.stream({ service, method, request }, options(given, Infinity))
        : (request: object, given: ClientOptions = {}) => transport.call({ service, method, request }, options(given, deadlineMs(method, request)));
  }
  return built;
}

/** The typed face of a transport; owns it: disposing the client closes it. */
export function createCriClient(transport: Transport): CriClient {
  return {
    runtime: serviceOf(transport, 'RuntimeService') as RuntimeService,
    images: serviceOf(transport, 'ImageService') as ImageService,
    [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose](),
  };
}
