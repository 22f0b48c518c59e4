import { fromJSON, type MethodDefinition, type ServiceDefinition } from '@grpc/proto-loader';
import { chmod } from 'node:fs/promises';
import { constants, createServer, type Http2Server, type IncomingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { OpError } from '../../base/errors.ts';
import api from '../../proto/cri/api.json' with { type: 'json' };
import { RpcError } from '../errors.ts';
import { dialTarget } from '../grpc.ts';
import type { RuntimeCall, ServiceName, Transport } from '../transport.ts';
import { inflate } from './messages.ts';

/** A runtime that listens. */
export interface ServedRuntime extends AsyncDisposable {
  /** Ends connections and calls at once, as a runtime that is killed does. */
  forceShutdown(): void;
}

type Method = MethodDefinition<object, object>;
interface Answerer {
  readonly service: ServiceName;
  readonly method: string;
  readonly definition: Method;
}

/** More than any caller's request, and little enough that a hundred of them fit. */
const MAX_REQUEST_BYTES = 64 * 1024 * 1024;
const PREFIX_BYTES = 5;
/** A call without a status was given up by its caller. */
const CANCELLED = constants.NGHTTP2_CANCEL;

/*
 * Above what a Go client can reach: Node would otherwise end a connection, and with it all its calls, after a thousand
 * cancelled calls in a row or when its messages take more than 10 MB.
 */
const limits = {
  maxSessionMemory: 4_000,
  streamResetBurst: 1_000_000,
  streamResetRate: 1_000_000,
  maxSessionRejectedStreams: 1_000_000,
  maxSessionInvalidFrames: 1_000_000,
  settings: { maxConcurrentStreams: 2 ** 31 - 1, initialWindowSize: 4 * 1024 * 1024, maxHeaderListSize: 1024 * 1024 },
};

function answerers(): ReadonlyMap<string, Answerer> {
  const loaded = fromJSON(api as unknown as Parameters<typeof fromJSON>[0], { longs: String, enums: String, defaults: true, oneofs: true });
  const found = new Map<string, Answerer>();
  for (const service of ['RuntimeService', 'ImageService'] as const) {
    for (const [method, definition] of Object.entries(loaded[`runtime.v1.${service}`] as ServiceDefinition))
      found.set(definition.path, { service, method, definition });
  }
  return found;
}

function textOf(header: string | string[] | undefined): string {
  return typeof header === 'string' ? header : '';
}

/** `100m` → 100; Infinity where a caller sets no limit. Units as gRPC has them. */
function timeoutMs(text: string): number {
  const found = /^(\d+)([HMSmun])$/.exec(text);
  if (found === null) return Infinity;
  return Number(found[1]) * ({ H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 }[found[2] ?? 'm'] ?? 1);
}

/** As gRPC writes messages: what is printable stands as it is, all else as percent-encoded UTF-8. */
function statusText(message: string): string {
  return message.replaceAll(/[^ -$&-~]+/gu, (part) => encodeURIComponent(part.toWellFormed()));
}

function statusHeaders(code: number, message: string): Record<string, string> {
  return { 'grpc-status': String(code), ...(message === '' ? {} : { 'grpc-message': statusText(message) }) };
}

function failure(error: unknown): Record<string, string> {
  return error instanceof RpcError
    ? statusHeaders(error.grpcCode, error.description)
    : statusHeaders(2, error instanceof Error ? error.message : String(error));
}

function framed(message: Buffer): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

/** The one message of a request. Throws RpcError for what is none. */
async function requestOf(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, method: string): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of stream as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > MAX_REQUEST_BYTES) throw new RpcError('ResourceExhausted', method, `the request is larger than ${MAX_REQUEST_BYTES} bytes`);
    parts.push(part);
  }
  const bytes = Buffer.concat(parts);
  if (bytes.length < PREFIX_BYTES || bytes.length - PREFIX_BYTES !== bytes.readUInt32BE(1))
    throw new RpcError('Internal', method, 'the request is no one message');
  const message = bytes.subarray(PREFIX_BYTES);
  if (bytes[0] === 0) return message;
  const encoding = textOf(headers['grpc-encoding']);
  const plain = inflate(message, encoding);
  if (plain === null) throw new RpcError('Unimplemented', method, `the request's compression is not known: ${encoding}`);
  return Buffer.from(plain.buffer, plain.byteOffset, plain.byteLength);
}

function drained(stream: ServerHttp2Stream): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off('drain', done);
      stream.off('close', done);
      resolve();
    };
    stream.on('drain', done);
    stream.on('close', done);
  });
}

/** Answers a call, and then says its status; a caller that has gone is told nothing. */
async function answer(transport: Transport, { service, method, definition }: Answerer, stream: ServerHttp2Stream, headers: IncomingHttpHeaders): Promise<void> {
  const gone = new AbortController();
  stream.on('close', () => gone.abort());
  let trailers = statusHeaders(0, '');
  const begin = (): void => {
    if (stream.headersSent || stream.destroyed) return;
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  };
  const options = { timeoutMs: timeoutMs(textOf(headers['grpc-timeout'])), signal: gone.signal };
  try {
    const request = await requestOf(stream, headers, method);
    const call: RuntimeCall = { service, method, request: definition.requestDeserialize(request) };
    if (definition.responseStream) {
      for await (const message of transport.stream(call, options)) {
        begin();
        if (stream.destroyed) return;
        if (!stream.write(framed(definition.responseSerialize(message)))) await drained(stream);
      }
    } else {
      const message = framed(definition.responseSerialize(await transport.call(call, options)));
      begin();
      if (!stream.destroyed) stream.write(message);
    }
    begin();
  } catch (error) {
    trailers = failure(error);
    if (stream.destroyed) return;
    if (!stream.headersSent) {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...trailers }, { endStream: true });
      return;
    }
  }
  if (!stream.destroyed) stream.end();
}

function refuse(stream: ServerHttp2Stream, path: string): void {
  const [, service = '', method = ''] = path.split('/');
  stream.respond(
    { ':status': 200, 'content-type': 'application/grpc', ...statusHeaders(12, `unknown method ${method} for service ${service}`) },
    { endStream: true },
  );
  // What it still sends is let go, or the connection's window would fill.
  stream.resume();
}

function listen(server: Http2Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) =>
      reject(
        new OpError(cause.code === 'EACCES' ? 'denied' : cause.code === 'EADDRINUSE' ? 'exists' : 'failed', `listen on ${path}`, cause.message, {
          cause,
          advice: 'the folder must be there and writable, and the path shorter than 108 bytes',
        }),
      ),
    );
    const before = process.umask(0o177);
    server.listen(path, resolve);
    process.umask(before);
  });
}

/**
 * `transport` as a runtime on a unix socket (mode 0600) that any kubelet or crictl can call, over HTTP/2 of Node's own.
 * The path must be free. Disposing ends all calls and removes the socket.
 * @param endpoint a path or `unix://…`
 */
export async function serveRuntime(transport: Transport, endpoint: string): Promise<ServedRuntime> {
  const path = dialTarget(endpoint).slice('unix:'.length);
  const methods = answerers();
  const sessions = new Set<ServerHttp2Session>();
  const server = createServer(limits);
  server.on('session', (session) => {
    sessions.add(session);
    session.on('close', () => sessions.delete(session));
    session.on('error', () => session.destroy());
  });
  server.on('sessionError', () => {});
  server.on('stream', (stream, headers) => {
    // A reset is the caller's way to give up; `close` tells it.
    stream.on('error', () => {});
    const called = methods.get(headers[':path'] ?? '');
    if (called === undefined) refuse(stream, headers[':path'] ?? '');
    else void answer(transport, called, stream, headers).catch(() => stream.close(CANCELLED));
  });
  await listen(server, path);
  await chmod(path, 0o600);
  const stop = (): void => {
    for (const session of sessions) session.destroy();
    server.close();
  };
  return {
    forceShutdown: stop,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const session of sessions) session.destroy();
      }),
  };
}
