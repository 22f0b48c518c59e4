import { Agent, request as requestHttp1 } from 'node:http';
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex, Readable } from 'node:stream';
import { OpError } from '../errors.ts';
import type { HttpClient, HttpClientOptions, HttpRequest, HttpResponse, OpenHttpClient } from './http-client.ts';

/**
 * HTTP by what is part of Node: `node:http`, and `node:http2` where a server speaks that, loaded only then. A process
 * that holds a handful of watches needs no more, and undici costs it 15 MiB.
 */

/** One connection. */
interface Transport {
  /** Takes no further request. */
  readonly isClosed: boolean;
  request(request: HttpRequest): Promise<HttpResponse>;
  close(): Promise<void>;
  destroy(): void;
}

const IDLE_MS = 90_000;

/** The connection went away, and the request with it. */
function lost(why: string): Error {
  return Object.assign(new Error(why), { code: 'ECONNRESET' });
}

/** Runs `ask` until its answer begins, it fails, the signal is aborted or the time is over; `stop` ends it. */
function answered(
  { headersTimeout, signal }: HttpRequest,
  ask: (resolve: (response: HttpResponse) => void, reject: (error: Error) => void) => (error: Error) => void,
): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    let stop: (error: Error) => void = () => {};
    const give = (error: Error): void => {
      stop(error);
      reject(error);
    };
    const aborted = (): void => give(signal.reason as Error);
    const timer = setTimeout(() => give(new OpError('deadline', 'request', `no headers within ${headersTimeout} ms`)), headersTimeout);
    const begun = (response: HttpResponse): void => {
      clearTimeout(timer);
      // From here on the signal ends the body.
      response.body.once('close', () => signal.removeEventListener('abort', aborted));
      resolve(response);
    };
    const failed = (error: Error): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', aborted);
      reject(error);
    };
    try {
      stop = ask(begun, failed);
    } catch (error) {
      // Neither HTTP/1.1 nor HTTP/2 sends what breaks its rules, or to who has left.
      failed(connectionLoss(error as Error));
      return;
    }
    if (signal.aborted) aborted();
    else signal.addEventListener('abort', aborted, { once: true });
  });
}

class Http1 implements Transport {
  readonly #agent: Agent;
  readonly #socket: Socket;
  readonly #host: string;
  readonly #inFlight = new Set<Promise<void>>();

  constructor(socket: Socket, host: string) {
    this.#socket = socket;
    this.#host = host;
    let given = false;
    this.#agent = new (class extends Agent {
      override createConnection(_options: object, callback?: (error: Error | null, stream: Duplex) => void): null {
        if (given) callback?.(lost('the connection is gone'), socket);
        else callback?.(null, socket);
        given = true;
        return null;
      }
    })({ keepAlive: true, maxSockets: 1, timeout: IDLE_MS });
  }

  get isClosed(): boolean {
    return this.#socket.destroyed || !this.#socket.writable;
  }

  request(request: HttpRequest): Promise<HttpResponse> {
    const { method, path, headers, body } = request;
    return answered(request, (resolve, reject) => {
      const length = body === null ? {} : { 'content-length': String(Buffer.byteLength(body)) };
      const sent = requestHttp1({ agent: this.#agent, method, path, headers: { host: this.#host, ...length, ...headers } });
      const { promise: ended, resolve: end } = Promise.withResolvers<void>();
      this.#inFlight.add(ended);
      let answer: Readable | undefined;
      sent.once('response', (message) => {
        answer = message;
        resolve({ statusCode: message.statusCode ?? 0, headers: message.headers, body: message });
      });
      sent.on('error', reject);
      sent.once('close', () => {
        this.#inFlight.delete(ended);
        end();
      });
      sent.end(body ?? undefined);
      return (error) => {
        answer?.destroy(error);
        sent.destroy(error);
      };
    });
  }

  async close(): Promise<void> {
    while (this.#inFlight.size > 0) await Promise.all(this.#inFlight);
    this.destroy();
  }

  destroy(): void {
    this.#agent.destroy();
    this.#socket.destroy();
  }
}

class Http2 implements Transport {
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #pings: NodeJS.Timeout;
  /** Streams whose answer has not ended. */
  readonly #open = new Set<ClientHttp2Stream>();
  readonly #inFlight = new Set<Promise<void>>();

  /** @param socket that of the session; nobody else listens to it yet */
  constructor(socket: Socket, openSession: () => ClientHttp2Session, pingMs: number) {
    // Heard before the session hears it, which would end its streams as if the server had ended them.
    socket.once('close', () => this.#cut('the connection was cut'));
    const session = openSession();
    this.#session = session;
    this.#socket = socket;
    let isAnswered = true;
    this.#pings = setInterval(() => {
      // Its last words are said, and it takes no ping any more: who does not end the connection for that is not there.
      if (session.destroyed) {
        socket.destroy();
        return;
      }
      if (!isAnswered) {
        session.destroy(lost('a ping was not answered'));
        return;
      }
      isAnswered = false;
      // A session that closes takes no ping; what runs in it is watched all the same.
      const isSent = session.ping((error) => {
        if (error === null) isAnswered = true;
      });
      if (!isSent) isAnswered = session.closed;
    }, pingMs).unref();
    session.once('close', () => clearInterval(this.#pings));
    // Streams hear of it, each by itself; so does whoever connects.
    session.on('error', () => {});
    session.setMaxListeners(0);
  }

  get isClosed(): boolean {
    return this.#session.closed || this.#session.destroyed;
  }

  request(request: HttpRequest): Promise<HttpResponse> {
    const { method, path, headers, body } = request;
    return answered(request, (resolve, reject) => {
      const { host: _host, ...rest } = headers;
      const stream: ClientHttp2Stream = this.#session.request(
        { ':method': method, ':path': path, ...rest, ...(body === null ? {} : { 'content-length': String(Buffer.byteLength(body)) }) },
        { endStream: body === null },
      );
      const { promise: ended, resolve: end } = Promise.withResolvers<void>();
      this.#open.add(stream);
      this.#inFlight.add(ended);
      let failure: Error | undefined;
      stream.once('end', () => this.#open.delete(stream));
      stream.on('error', (error) => {
        failure = error;
        reject(connectionLoss(error));
      });
      stream.once('close', () => {
        this.#open.delete(stream);
        this.#inFlight.delete(ended);
        end();
        reject(failure ?? lost('the connection ended before the answer'));
      });
      stream.once('response', ({ ':status': status, ...fields }) => resolve({ statusCode: Number(status), headers: fields, body: stream }));
      if (body !== null) stream.end(body);
      return (error) => void stream.destroy(error);
    });
  }

  #cut(why: string): void {
    for (const stream of this.#open) stream.destroy(lost(why));
  }

  async close(): Promise<void> {
    // A session that says that it closes refuses what it has not sent yet.
    while (this.#inFlight.size > 0) await Promise.all(this.#inFlight);
    if (this.#session.destroyed) return;
    await new Promise<void>((resolve) => {
      this.#session.once('close', resolve);
      this.#session.close();
    });
  }

  destroy(): void {
    clearInterval(this.#pings);
    this.#cut('the client is closed');
    this.#session.destroy();
    // A session that was closing before waits for the other side otherwise.
    this.#socket.destroy();
  }
}

/** A session that a server has left cannot be told from a connection that was cut: a read may be sent again. */
function connectionLoss(error: Error): Error {
  const { code = '' } = error as { code?: string };
  return /^ERR_HTTP2_(GOAWAY_SESSION|INVALID_SESSION|SESSION_ERROR|STREAM_CANCEL)$/.test(code) ? Object.assign(lost(error.message), { cause: error }) : error;
}

class PlainClient implements HttpClient {
  readonly #url: URL;
  readonly #options: HttpClientOptions;
  #transport: Promise<Transport> | undefined;
  #current: Transport | undefined;
  /** The current one, and those that take no further request but have not ended. */
  readonly #transports = new Set<Transport>();
  /** Requests that have no connection yet; each resolves when it has, or never will. */
  readonly #starting = new Set<Promise<void>>();
  #isDestroyed = false;

  constructor(origin: string, options: HttpClientOptions) {
    this.#url = new URL(origin);
    this.#options = options;
  }

  async request(request: HttpRequest): Promise<HttpResponse> {
    const { signal } = request;
    signal.throwIfAborted();
    const { promise: isSent, resolve: sent } = Promise.withResolvers<void>();
    this.#starting.add(isSent);
    let answer: Promise<HttpResponse>;
    try {
      const transport = await orAborted(this.#connected(), signal);
      answer = transport.request(request);
    } finally {
      this.#starting.delete(isSent);
      sent();
    }
    return await answer;
  }

  /** The connection that is there, being made, or made now. */
  async #connected(): Promise<Transport> {
    if (this.#isDestroyed) throw new OpError('aborted', 'request', 'the client is closed');
    if (this.#current?.isClosed === true) {
      const left = this.#current;
      void left.close().then(() => this.#transports.delete(left));
      this.#current = undefined;
      this.#transport = undefined;
    }
    this.#transport ??= this.#connect();
    const connecting = this.#transport;
    try {
      return await connecting;
    } catch (error) {
      if (this.#transport === connecting) this.#transport = undefined;
      throw error;
    }
  }

  async #connect(): Promise<Transport> {
    const { hostname, protocol, port, host, origin } = this.#url;
    const socket = await new Promise<Socket>((resolve, reject) => {
      this.#options.connect({ hostname: hostname.replace(/^\[(.*)\]$/, '$1'), protocol, port }, (error, opened) => {
        if (error === null) resolve(opened);
        else reject(error);
      });
    });
    // Between this and the first request nobody else listens.
    socket.on('error', () => {});
    let transport: Transport;
    if ('alpnProtocol' in socket && socket.alpnProtocol === 'h2') {
      const { connect } = await import('node:http2');
      transport = new Http2(
        socket,
        () => connect(origin, { createConnection: () => socket, peerMaxConcurrentStreams: this.#options.perSession }),
        this.#options.pingMs,
      );
    } else transport = new Http1(socket, host);
    if (this.#isDestroyed) {
      transport.destroy();
      throw new OpError('aborted', 'connect', 'the client is closed');
    }
    this.#current = transport;
    this.#transports.add(transport);
    return transport;
  }

  async close(): Promise<void> {
    await Promise.all([...this.#starting, this.#transport?.catch(() => undefined)]);
    await Promise.all([...this.#transports].map((transport) => transport.close()));
  }

  async destroy(): Promise<void> {
    this.#isDestroyed = true;
    for (const transport of this.#transports) transport.destroy();
  }
}

/** What `promise` resolves to; rejects at once when the signal is aborted. */
function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => reject(signal.reason as Error);
    signal.addEventListener('abort', aborted, { once: true });
    void promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', aborted));
  });
}

/** Opens a client of an origin (`https://host:port`) that speaks HTTP/2 where the server does, else HTTP/1.1 with one request at a time. */
export const openPlainClient: OpenHttpClient = (origin, options) => new PlainClient(origin, options);
