import type { ClientHttp2Session } from 'node:http2';
import { setFlagsFromString } from 'node:v8';
import type { Client as UndiciClient } from 'undici';
import client from 'undici/lib/dispatcher/client.js';
import dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import request from 'undici/lib/api/api-request.js';
import symbols from 'undici/lib/core/symbols.js';
import type { HttpRequest, HttpResponse, OpenHttpClient } from './http-client.ts';

/*
 * Of undici the HTTP client alone: its index also loads fetch, WebSocket, caches and mocks, a megabyte that every
 * daemon would read at its start. The one thing the index does is put the methods on the prototype.
 */
Object.assign(dispatcher.prototype, { request });

/*
 * undici parses HTTP/1.1 in WebAssembly, most of it one huge function. To optimize that takes 20 MiB once, which the
 * allocator keeps; the compiler's first stage is fast enough for what an API server says.
 */
setFlagsFromString('--no-wasm-dynamic-tiering');
setFlagsFromString('--no-wasm-tier-up');

const Client: typeof UndiciClient = client;

/** Opens a client of an origin (`https://host:port`) by undici. */
export const openUndiciClient: OpenHttpClient = (origin, { connect, perSession, pingMs }) => {
  const client = new Client(origin, {
    connect: (options, callback) => connect({ ...options, port: options.port ?? '' }, callback),
    allowH2: true,
    pipelining: 1,
    keepAliveTimeout: 90_000,
    keepAliveMaxTimeout: 90_000,
    bodyTimeout: 0,
    h2Options: { maxConcurrentStreams: perSession, pingInterval: pingMs },
  });
  client.on('connect', () => {
    const session = (client as unknown as Record<symbol, ClientHttp2Session | null>)[symbols.kHTTP2Session];
    if (session) giveUpAtOnce(session);
  });
  return {
    request: (asked) => (asked.body === null ? client.request(asked) : startedWhole(client, asked)),
    close: () => client.close(),
    destroy: () => client.destroy(),
  };
};

/**
 * Makes the streams of a session end at once where undici gives them up. It closes a stream without an error code and
 * destroys it in the same turn; Node puts such a close off until the body is written, which then never is, and what is
 * left of the stream is sent as empty frames, for ever and in one turn of the event loop.
 */
function giveUpAtOnce(session: ClientHttp2Session): void {
  const request = session.request.bind(session);
  session.request = (...asked) => {
    const stream = request(...asked);
    const close = stream.close.bind(stream);
    stream.close = (code, callback) => {
      // What comes next is the destruction, which resets a stream that is not closed at once.
      if (code !== undefined || stream.writableFinished) close(code, callback);
    };
    return stream;
  };
}

/** A request that is given up in the turn that starts it leaves undici's connection unused: it is given up after that turn. */
async function startedWhole(client: UndiciClient, asked: HttpRequest): Promise<HttpResponse> {
  const { signal } = asked;
  signal.throwIfAborted();
  const late = new AbortController();
  const giveUp = (): void => void setImmediate(() => late.abort(signal.reason));
  const leave = (): void => signal.removeEventListener('abort', giveUp);
  signal.addEventListener('abort', giveUp, { once: true });
  try {
    const response = await client.request({ ...asked, signal: late.signal });
    response.body.once('close', leave);
    return response;
  } catch (error) {
    leave();
    throw error;
  }
}
