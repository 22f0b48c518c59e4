import type { Readable } from 'node:stream';
import { BugError } from '../assert.ts';
import type { Clock } from '../clock.ts';
import { messageOf, OpError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { KubeConfig } from './config.ts';
import { Credentials } from './credentials.ts';
import { ApiError } from './errors.ts';
import { bytesOf, type HttpResponse, type OpenHttpClient } from './http-client.ts';
import { Limiter } from './limiter.ts';
import { Sessions, type Claim } from './sessions.ts';
import type { Lane } from './types.ts';

/** Watches have sessions of their own: they do not end, and would fill those of the others. */
type SessionKind = Lane | 'watches';

export interface Request {
  method: string;
  path: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: string | Uint8Array;
  timeoutMs?: number;
}

export interface Answer {
  status: number;
  headers: Record<string, string>;
  body: Uint8Array;
}

const defaultTimeoutMs = 60_000;
const maxRetries = 10;
/** As often as the kubelet looks for a new certificate. */
const certificateCheckMs = 10_000;

const tlsCodes: ReadonlySet<string> = new Set([
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'CERT_SIGNATURE_FAILURE',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
]);

/** Reasons that the API machinery gives where a server answered without a Status. */
const reasons: Readonly<Record<number, string>> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  406: 'NotAcceptable',
  409: 'Conflict',
  410: 'Gone',
  413: 'RequestEntityTooLarge',
  415: 'UnsupportedMediaType',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

interface StatusBody {
  kind?: string;
  code?: number;
  reason?: string;
  message?: string;
  details?: Record<string, unknown>;
}

function retryAfterMs(headers: Record<string, string>): number {
  const seconds = Number(headers['retry-after']);
  return Number.isFinite(seconds) && seconds > 0 ? seconds * 1000 : 0;
}

/** The ApiError that a Status (or, lacking one, the HTTP answer) stands for. */
export function apiErrorFrom(httpStatus: number, text: string, headers: Record<string, string> = {}): ApiError {
  let status: StatusBody = {};
  try {
    const parsed = JSON.parse(text) as StatusBody | null;
    if (parsed?.kind === 'Status') status = parsed;
  } catch {
    // Not JSON: the answer of something in between.
  }
  const code = status.code ?? httpStatus;
  const waitMs = retryAfterMs(headers) || Number(status.details?.['retryAfterSeconds'] ?? 0) * 1000;
  const message = status.message ?? `the server answered ${httpStatus}${text === '' ? '' : `: ${text.slice(0, 500).trim()}`}`;
  return new ApiError(code, status.reason ?? reasons[code] ?? 'Unknown', message, status.details ?? {}, waitMs);
}

function flatHeaders(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  const flat: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined) flat[name.toLowerCase()] = Array.isArray(value) ? value.join(', ') : value;
  }
  return flat;
}

/** Where the failure is of the connection and not of the request, so that a read may be sent again. */
function isConnectionLoss(error: unknown): boolean {
  const code = (error as { code?: string }).code;
  return code === 'UND_ERR_SOCKET' || code === 'ECONNRESET' || code === 'EPIPE' || code === 'UND_ERR_INFO' || code === 'ERR_HTTP2_STREAM_ERROR';
}

/** One request as it goes out. */
export interface OutgoingRequest {
  readonly method: string;
  readonly url: string;
  readonly bodyBytes: number;
}

/** Sends with more headers; tells the status as soon as it is known, and how much came when that is known. */
export type Send<T> = (headers: Readonly<Record<string, string>>, answered: (status: number, bodyBytes: number | null) => void) => Promise<T>;

/** For those who count and trace; each retry is a request of its own. */
export interface RequestObserver {
  /** Runs a request. */
  around<T>(request: OutgoingRequest, send: Send<T>): Promise<T>;
  /** A request waited so long for its turn. */
  waited(method: string, server: string, tookMs: number): void;
  /** A request is sent again because of that answer. */
  retried(method: string, server: string, status: number): void;
}

export interface SenderOptions {
  openClient: OpenHttpClient;
  config: KubeConfig;
  clock: Clock;
  log: Log;
  userAgent: string;
  /** Requests a second, beyond a first `burst` (default twice as many); without it there is no limit. Lane heartbeat has none. */
  qps?: number;
  burst?: number;
  /** How often a connection is pinged; unanswered for that long, it is dead. Default 15 s, lane heartbeat 5 s. */
  pingMs?: number;
  /**
   * For a kubeconfig that may change: `followKubeConfig` of its path. Asked every ten seconds while there are requests:
   * another configuration, or undefined while it is the same.
   */
  reload?: () => Promise<KubeConfig | undefined>;
  /** Counts and traces requests. */
  observer?: RequestObserver;
}

type Use<T> = (response: HttpResponse, answered: (status: number, bodyBytes: number | null) => void) => Promise<T>;

/** Sends requests: credentials, lanes, rate, deadlines, Retry-After. Knows no resources. */
export class Sender implements AsyncDisposable {
  readonly #options: SenderOptions;
  #server: string;
  #credentials: Credentials;
  readonly #sessions: Readonly<Record<SessionKind, Sessions>>;
  readonly #limiter: Limiter | undefined;
  #checkedAtMs = 0;
  #closed = false;

  constructor(options: SenderOptions) {
    this.#options = options;
    const { config, clock, qps, openClient, pingMs = 15_000 } = options;
    this.#server = config.server;
    this.#credentials = new Credentials(config, clock);
    const open = (perSession: number, maxSessions: number, pingMs: number): Sessions =>
      new Sessions({ openClient, server: config.server, credentials: this.#credentials, perSession, maxSessions, pingMs });
    // Go's transport gives a dead connection 30 s of silence and 15 s for the ping. Two unanswered-ping periods of
    // 15 s are never slower; the lane that keeps the node alive looks more often.
    this.#sessions = { requests: open(90, 2, pingMs), heartbeat: open(90, 1, Math.min(pingMs, 5_000)), watches: open(90, 100, pingMs) };
    this.#limiter = qps === undefined || qps <= 0 ? undefined : new Limiter(qps, options.burst ?? qps * 2, clock);
  }

  /** Sessions open now, by lane. */
  get sessionCounts(): Readonly<Record<SessionKind, number>> {
    return { requests: this.#sessions.requests.count, heartbeat: this.#sessions.heartbeat.count, watches: this.#sessions.watches.count };
  }

  /**
   * One request and its whole answer. With `judge`, an answer of 400 or above becomes ApiError, after Retry-After
   * was honoured within the time given. Throws OpError `unavailable` | `deadline` | `aborted` | `denied`.
   */
  async send(lane: Lane, request: Request, judge: boolean, signal?: AbortSignal): Promise<Answer> {
    const timeoutMs = request.timeoutMs ?? defaultTimeoutMs;
    using deadline = this.#deadline(timeoutMs, signal);
    const untilMs = this.#options.clock.monoMs() + timeoutMs;
    let lost = false;
    for (let attempt = 0; ; attempt++) {
      try {
        if (lane !== 'heartbeat') await this.#wait(request.method, deadline.signal);
        const answer = await this.#once(this.#sessions[lane], request, timeoutMs, deadline.signal, async (response, answered) => {
          const { statusCode: status, headers } = response;
          const body = await bytesOf(response.body);
          answered(status, body.length);
          return { status, headers: flatHeaders(headers), body };
        });
        if (answer.status === 401) this.#credentials.forgetToken();
        if (!judge || answer.status < 400) return answer;
        const error = apiErrorFrom(answer.status, Buffer.from(answer.body).toString('utf8'), answer.headers);
        const asked = answer.status === 429 || (answer.status >= 500 && retryAfterMs(answer.headers) > 0);
        const waitMs = error.retryAfterMs || 1000;
        if (!asked || attempt >= maxRetries || this.#options.clock.monoMs() + waitMs >= untilMs) throw error;
        await this.#options.clock.sleep(waitMs, deadline.signal);
        this.#options.observer?.retried(request.method, this.#server, answer.status);
      } catch (error) {
        if (error instanceof ApiError) throw error;
        const known = this.#explain(error, request, signal, deadline.signal);
        if (lost || request.method !== 'GET' || known.code !== 'unavailable' || !isConnectionLoss(error)) throw known;
        lost = true;
      }
    }
  }

  /**
   * A request whose answer is read as it comes, in a session for such. `read` gets the body of an answer below 400
   * and ends the request by returning. Other answers throw ApiError. `timeoutMs` is for the headers alone.
   */
  async stream(request: Request, read: (body: Readable) => Promise<void>, signal: AbortSignal): Promise<void> {
    try {
      await this.#wait(request.method, signal);
      await this.#once(this.#sessions.watches, request, request.timeoutMs ?? defaultTimeoutMs, signal, async (response, answered) => {
        answered(response.statusCode, null);
        if (response.statusCode === 401) this.#credentials.forgetToken();
        if (response.statusCode >= 400) throw apiErrorFrom(response.statusCode, (await bytesOf(response.body)).toString('utf8'), flatHeaders(response.headers));
        await read(response.body);
      });
    } catch (error) {
      if (error instanceof ApiError) throw error;
      throw this.#explain(error, request, signal, signal);
    }
  }

  async #wait(method: string, signal: AbortSignal): Promise<void> {
    if (this.#limiter === undefined) return;
    const { clock, observer } = this.#options;
    const beganMs = clock.monoMs();
    await this.#limiter.take(signal);
    observer?.waited(method, this.#server, clock.monoMs() - beganMs);
  }

  async #once<T>(sessions: Sessions, request: Request, headersMs: number, signal: AbortSignal, use: Use<T>): Promise<T> {
    await this.#renewIfChanged();
    const query = request.query === undefined ? '' : new URLSearchParams(request.query).toString();
    using place = await this.#claim(sessions, signal);
    const { authorization, claim, server } = place;
    const prefix = new URL(server).pathname.replace(/\/$/, '');
    const path = `${prefix}${request.path}${query === '' ? '' : `${request.path.includes('?') ? '&' : '?'}${query}`}`;
    const send: Send<T> = async (headers, answered) => {
      const response = await claim.client.request({
        method: request.method,
        path,
        headers: {
          accept: 'application/json',
          'user-agent': this.#options.userAgent,
          ...(authorization !== undefined && { authorization }),
          ...headers,
          ...request.headers,
        },
        body: request.body ?? null,
        headersTimeout: headersMs,
        signal,
      });
      try {
        return await use(response, answered);
      } finally {
        // Whatever was not read is not wanted; on HTTP/2 this resets the one stream.
        if (!response.body.readableEnded) response.body.on('error', () => {}).destroy();
      }
    };
    const { observer } = this.#options;
    // Awaited here: the place is held until the answer was read.
    if (observer === undefined) return await send({}, () => {});
    const outgoing = { method: request.method, url: new URL(path, server).href, bodyBytes: Buffer.byteLength(request.body ?? '') };
    return await observer.around(outgoing, send);
  }

  /** A stream, and the server and the token that go with it: one server's token is never sent to another. */
  async #claim(sessions: Sessions, signal: AbortSignal): Promise<{ authorization: string | undefined; claim: Claim; server: string } & Disposable> {
    for (;;) {
      const credentials = this.#credentials;
      const server = this.#server;
      const authorization = await credentials.authorization();
      const claim = await sessions.claim();
      if (!signal.aborted && credentials === this.#credentials) return { authorization, claim, server, [Symbol.dispose]: () => claim[Symbol.dispose]() };
      claim[Symbol.dispose]();
      if (signal.aborted) throw signal.reason;
    }
  }

  async #renewIfChanged(): Promise<void> {
    const nowMs = this.#options.clock.monoMs();
    if (nowMs - this.#checkedAtMs < certificateCheckMs) return;
    this.#checkedAtMs = nowMs;
    const config = await this.#options.reload?.();
    if (config !== undefined) {
      this.#options.log.info('Kubeconfig changed, opening new connections', { server: config.server });
      this.#server = config.server;
      this.#credentials = new Credentials(config, this.#options.clock);
      for (const sessions of Object.values(this.#sessions)) sessions.redirect(config.server, this.#credentials);
      return;
    }
    if (!(await this.#credentials.changed())) return;
    this.#options.log.info('Certificates changed, opening new connections');
    for (const sessions of Object.values(this.#sessions)) sessions.renew();
  }

  #deadline(timeoutMs: number, signal: AbortSignal | undefined): { signal: AbortSignal } & Disposable {
    const controller = new AbortController();
    const stop = (): void => controller.abort(new OpError('aborted', 'request', 'stopped by the caller'));
    const timer = this.#options.clock.after(timeoutMs, () => controller.abort(new OpError('deadline', 'request', `no answer within ${timeoutMs} ms`)));
    if (signal?.aborted === true) stop();
    signal?.addEventListener('abort', stop, { once: true });
    return {
      signal: controller.signal,
      [Symbol.dispose]() {
        timer[Symbol.dispose]();
        signal?.removeEventListener('abort', stop);
      },
    };
  }

  #explain(error: unknown, request: Request, caller: AbortSignal | undefined, deadline: AbortSignal): OpError {
    // What has no code was not thrown by a socket, TLS or undici: a bug of ours must not look like a dead server.
    if (error instanceof BugError || ((error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError) && !('code' in error)))
      throw error;
    const doing = `${request.method} ${request.path}`;
    const server = this.#server;
    if (caller?.aborted === true) return new OpError('aborted', doing, 'stopped by the caller', { cause: error });
    if (this.#closed) return new OpError('aborted', doing, 'the client is closed', { cause: error });
    const code = (error as { code?: string }).code ?? '';
    if (deadline.aborted || code === 'UND_ERR_HEADERS_TIMEOUT' || code === 'UND_ERR_BODY_TIMEOUT') {
      return new OpError('deadline', doing, `${server} did not answer in time`, { cause: error });
    }
    if (error instanceof OpError) return new OpError(error.code, doing, error.message, { cause: error });
    if (tlsCodes.has(code))
      return new OpError('denied', doing, `${server}: ${messageOf(error)}`, {
        cause: error,
        advice: "compare the kubeconfig's certificate-authority with the server's",
      });
    return new OpError('unavailable', doing, `${server}: ${messageOf(error)}`, { cause: error });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    await Promise.all(Object.values(this.#sessions).map((sessions) => sessions[Symbol.asyncDispose]()));
  }
}
