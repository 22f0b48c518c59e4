import { OpError } from '../errors.ts';
import type { Credentials } from './credentials.ts';
import type { HttpClient, OpenHttpClient } from './http-client.ts';

export interface SessionsOptions {
  openClient: OpenHttpClient;
  server: string;
  credentials: Credentials;
  /** Streams a session carries before another one is opened. API servers allow 100. */
  perSession: number;
  /** When all are full, further requests queue on the least loaded one. */
  maxSessions: number;
  /** A session whose last ping is unanswered after this long is dead. */
  pingMs: number;
}

interface Session {
  readonly client: HttpClient;
  inFlight: number;
}

/** A claim on one stream of a session; disposing it gives the stream back. */
export interface Claim extends Disposable {
  readonly client: HttpClient;
}

/**
 * HTTP/2 connections of one lane, each a client that connects again by itself. A server that speaks only
 * HTTP/1.1 gets one request per connection, so that a watch never stands before others.
 */
export class Sessions implements AsyncDisposable {
  #options: SessionsOptions;
  #origin: string;
  #sessions: Session[] = [];
  #protocol: 'h2' | 'http/1.1' | undefined;
  /** Present while the first connection is being made; others wait for its protocol. */
  #probing: { promise: Promise<void>; done: () => void } | undefined;
  readonly #end = new AbortController();
  /** Given up, but with requests that still run. */
  readonly #closing = new Set<HttpClient>();

  constructor(options: SessionsOptions) {
    this.#options = options;
    this.#origin = new URL(options.server).origin;
    if (options.server.startsWith('http:')) this.#protocol = 'http/1.1';
  }

  get count(): number {
    return this.#sessions.length;
  }

  async claim(): Promise<Claim> {
    while (this.#protocol === undefined && this.#probing !== undefined) await this.#probing.promise;
    // Those who waited must not open what nobody closes any more.
    if (this.#end.signal.aborted) throw new OpError('aborted', 'send a request', 'the client is closed');
    const options = this.#options;
    if (this.#protocol === undefined) {
      let done = (): void => {};
      const promise = new Promise<void>((resolve) => (done = resolve));
      this.#probing = { promise, done };
    }
    const session = this.#choose();
    session.inFlight++;
    let held = true;
    return {
      client: session.client,
      [Symbol.dispose]: () => {
        if (!held) return;
        held = false;
        session.inFlight--;
        // A request that ended before any connection was tried must not keep the others waiting.
        if (this.#protocol === undefined && options === this.#options) this.#agreed(undefined);
        this.#trim(session);
      },
    };
  }

  #choose(): Session {
    const http1 = this.#protocol === 'http/1.1';
    const perSession = http1 ? 1 : this.#options.perSession;
    const maxSessions = http1 ? this.#options.maxSessions * 16 : this.#options.maxSessions;
    let least: Session | undefined;
    for (const session of this.#sessions) {
      if (session.inFlight < perSession) return session;
      if (least === undefined || session.inFlight < least.inFlight) least = session;
    }
    if (least !== undefined && this.#sessions.length >= maxSessions) return least;
    const session: Session = { client: this.#open(), inFlight: 0 };
    this.#sessions.push(session);
    return session;
  }

  #open(): HttpClient {
    const options = this.#options;
    const { credentials, perSession, pingMs } = options;
    return options.openClient(this.#origin, {
      // What a server from before a redirect speaks says nothing of the one after it.
      connect: credentials.connector((protocol) => {
        if (options === this.#options) this.#agreed(protocol);
      }, this.#end.signal),
      perSession,
      pingMs,
    });
  }

  #agreed(protocol: 'h2' | 'http/1.1' | undefined): void {
    if (protocol !== undefined) this.#protocol = protocol;
    const probing = this.#probing;
    this.#probing = undefined;
    probing?.done();
  }

  /** An idle session beyond the first is closed; the first lives for the next request. */
  #trim(session: Session): void {
    if (session.inFlight > 0 || this.#sessions.length <= 1) return;
    const at = this.#sessions.indexOf(session);
    if (at < 0) return;
    this.#sessions.splice(at, 1);
    this.#close(session);
  }

  #close(session: Session): void {
    const { client } = session;
    this.#closing.add(client);
    // Rejects only when the client was destroyed meanwhile, which is what dispose does.
    void client.close().then(
      () => this.#closing.delete(client),
      () => this.#closing.delete(client),
    );
  }

  /** New requests get new connections; running ones end on the old. For changed certificates. */
  renew(): void {
    for (const session of this.#sessions) this.#close(session);
    this.#sessions = [];
  }

  /** As `renew`, and the new connections are made to another server or as somebody else. */
  redirect(server: string, credentials: Credentials): void {
    this.#options = { ...this.#options, server, credentials };
    this.#origin = new URL(server).origin;
    this.#protocol = undefined;
    this.renew();
    this.#agreed(server.startsWith('http:') ? 'http/1.1' : undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const clients = [...this.#sessions.map((session) => session.client), ...this.#closing];
    this.#sessions = [];
    this.#end.abort();
    this.#agreed(undefined);
    await Promise.all(clients.map((client) => client.destroy()));
  }
}
