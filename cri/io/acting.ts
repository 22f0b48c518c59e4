import { connect as connectSocket, createServer, type Socket } from 'node:net';
import { chmod } from 'node:fs/promises';
import {
  connect,
  performServerHandshake,
  sensitiveHeaders,
  type ClientHttp2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import type { ArmedRules, FaultRule, Subject } from '../core/fault-rules.ts';
import { SubjectBook } from '../core/fault-subjects.ts';
import { ByteBudget, MessageReader } from '../core/grpc-messages.ts';
import { actOn } from './acting-call.ts';
import { CODE, isLast, openUpstream, passAnswer, headerOf, reset, type Incoming, type RawHeaders } from './acting-relay.ts';
import { decodeMessage, inflate } from './messages.ts';

/*
 * Above what a Go client can reach. Node would otherwise end a connection, and with it all its calls, after a thousand
 * cancelled calls in a row, or when it holds more than 10 MB, or 128 headers.
 */
const LIMITS = {
  maxSessionMemory: 4_000,
  maxHeaderListPairs: 10_000,
  maxSendHeaderBlockLength: 16 * 1024 * 1024,
  maxOutstandingPings: 10_000,
  streamResetBurst: 1_000_000_000,
  streamResetRate: 1_000_000_000,
  maxSessionRejectedStreams: 1_000_000_000,
  maxSessionInvalidFrames: 1_000_000_000,
  peerMaxConcurrentStreams: 2 ** 31 - 1,
  strictSingleValueFields: false,
  settings: { enablePush: false, maxConcurrentStreams: 2 ** 31 - 1, initialWindowSize: 1024 * 1024, maxHeaderListSize: 16 * 1024 * 1024 },
};
/** Of a whole connection in one direction. */
const WINDOW_BYTES = 16 * 1024 * 1024;
/** How long the runtime may take to say what it has. */
const ASK_MS = 5_000;
const MAX_REQUEST_BYTES = 256 * 1024 * 1024;
const SERVICE = '/runtime.v1.RuntimeService/';
const NOBODY: Subject = { pod: '', container: '', images: [] };

/** A rule was done to a call. */
export interface Fired {
  readonly number: number;
  readonly rule: FaultRule;
  readonly method: string;
  readonly subject: Subject;
}

export interface ActingOptions {
  /** Where it listens; nobody but its owner may connect. */
  readonly path: string;
  readonly upstream: string;
  readonly clock: Clock;
  /** The rules at this moment. */
  readonly armed: () => ArmedRules;
  readonly onFired: (fired: Fired) => void;
}

export interface Acting extends AsyncDisposable {
  readonly counts: { open: number };
}

/** One caller's connection and the one to the runtime that belongs to it. */
class Pair {
  readonly #options: ActingOptions;
  readonly #book: SubjectBook;
  readonly #downSocket: Socket;
  readonly #upSocket: Socket;
  readonly #down: ServerHttp2Session;
  readonly #up: ClientHttp2Session;
  #lastPassed = 0;
  #ending = false;

  constructor(socket: Socket, options: ActingOptions, book: SubjectBook) {
    this.#options = options;
    this.#book = book;
    this.#downSocket = socket;
    this.#upSocket = connectSocket({ path: options.upstream });
    this.#upSocket.on('error', () => {});
    // Before the calls are told of it: the caller sees its connection end, as without a tap.
    this.#upSocket.once('close', () => {
      if (this.#ending) this.#down.close();
      else this.cut();
    });
    socket.once('close', () => this.#upSocket.destroy());
    this.#up = connect('http://localhost', { ...LIMITS, createConnection: () => this.#upSocket });
    this.#up.on('error', () => {});
    this.#up.once('connect', () => this.#up.setLocalWindowSize(WINDOW_BYTES));
    this.#up.on('goaway', (code: number) => this.#passGoaway(code));
    this.#down = performServerHandshake(socket, LIMITS);
    this.#down.setLocalWindowSize(WINDOW_BYTES);
    this.#down.on('error', () => {});
    this.#down.on('stream', (down: ServerHttp2Stream, headers: IncomingHttpHeaders & { [sensitiveHeaders]?: string[] }, flags: number, raw: RawHeaders) => {
      down.on('error', () => {});
      const incoming = { down, raw, sensitive: headers[sensitiveHeaders] ?? [], ended: isLast(flags) };
      // Whatever goes wrong with one call harms no other.
      this.#take(incoming, headers[':path'] ?? '', headers['user-agent'] ?? '').catch(() => reset(down, CODE.internal));
    });
  }

  /** Ends both connections at once. */
  cut(): void {
    this.#downSocket.destroy();
    this.#upSocket.destroy();
  }

  /** The runtime's connection takes no new calls. */
  #passGoaway(code: number): void {
    this.#ending = code === 0;
    if (this.#down.destroyed) return;
    if (code !== 0) this.#down.goaway(code, this.#lastPassed);
    // Calls that are open end as they would; the caller may try those again that came too late to be taken.
    this.#down.close();
  }

  async #take(incoming: Incoming, path: string, agent: string): Promise<void> {
    const { down } = incoming;
    const method = path.startsWith('/runtime.v1.') ? path.slice(path.lastIndexOf('/') + 1) : '';
    const armed = this.#options.armed();
    const needs = method === '' ? 'nothing' : armed.needs(method, agent);
    if (needs === 'nothing') return this.#pass(incoming, []);
    let first: readonly Buffer[] = [];
    let subject = NOBODY;
    if (needs === 'message') {
      const read = await firstMessage(incoming);
      if (down.destroyed || down.closed) return;
      ({ first } = read);
      subject = await this.#subject(path, method, incoming, read.message);
    }
    const due = armed.decide({ method, agent, subject });
    if (due === null) return this.#pass(incoming, first);
    this.#options.onFired({ ...due, method, subject });
    const looksAtItems = due.rule.hide ?? due.rule.events;
    if (looksAtItems?.pod !== undefined || looksAtItems?.container !== undefined) await this.#learn();
    await actOn({
      ...due,
      down,
      path,
      method,
      armed,
      book: this.#book,
      clock: this.#options.clock,
      open: () => this.#open(incoming, first),
      cut: () => this.cut(),
    });
  }

  #open(incoming: Incoming, first: readonly Buffer[]): ReturnType<typeof openUpstream> {
    if (incoming.down.destroyed || incoming.down.closed) return null;
    this.#lastPassed = Math.max(this.#lastPassed, incoming.down.id ?? 0);
    return openUpstream(this.#up, incoming, first);
  }

  #pass(incoming: Incoming, first: readonly Buffer[]): void {
    const up = this.#open(incoming, first);
    if (up !== null) passAnswer(incoming.down, up);
  }

  async #subject(path: string, method: string, { raw }: Incoming, message: { bytes: Uint8Array; compressed: boolean } | null): Promise<Subject> {
    const encoding = headerOf(raw, 'grpc-encoding') ?? '';
    const bytes = message === null ? null : message.compressed ? inflate(message.bytes, encoding) : message.bytes;
    const request = bytes === null ? undefined : decodeMessage(path, 'client', bytes).json;
    if (request === undefined) return NOBODY;
    if (this.#book.lacks(request)) await this.#learn();
    if (this.#book.lacks(request)) this.#book.giveUp(request);
    return this.#book.of(method, request);
  }

  /** Has the runtime tell what there is. */
  async #learn(): Promise<void> {
    for (const method of ['ListPodSandbox', 'ListContainers']) this.#book.learn(method, {}, await this.#ask(method));
  }

  async #ask(method: string): Promise<object> {
    if (this.#up.closed || this.#up.destroyed) return {};
    const stream = this.#up.request({
      ':method': 'POST',
      ':path': `${SERVICE}${method}`,
      'content-type': 'application/grpc',
      te: 'trailers',
      'user-agent': 'nodelet-cri-fault',
    });
    using _late = this.#options.clock.after(ASK_MS, () => stream.close(CODE.cancel));
    stream.on('error', () => {});
    stream.end(Buffer.alloc(5));
    const reader = new MessageReader(new ByteBudget(MAX_REQUEST_BYTES));
    let answer: object = {};
    try {
      for await (const bytes of stream as AsyncIterable<Buffer>)
        for (const message of reader.feed(bytes))
          if (message.bytes !== null) answer = decodeMessage(`${SERVICE}${method}`, 'server', message.bytes).json ?? answer;
    } catch {
      // What is not known is taken for something that no rule names.
    }
    return answer;
  }
}

/** Reads a call's first message, and what came of it; nothing more is read until it is passed on. */
function firstMessage({ down, ended }: Incoming): Promise<{ first: Buffer[]; message: { bytes: Uint8Array; compressed: boolean } | null }> {
  const first: Buffer[] = [];
  if (ended) return Promise.resolve({ first, message: null });
  const reader = new MessageReader(new ByteBudget(MAX_REQUEST_BYTES));
  return new Promise((resolve) => {
    const done = (message: { bytes: Uint8Array; compressed: boolean } | null): void => {
      down.pause();
      down.off('data', take);
      down.off('end', none);
      down.off('close', none);
      resolve({ first, message });
    };
    const none = (): void => done(null);
    const take = (bytes: Buffer): void => {
      first.push(bytes);
      const [found] = reader.feed(bytes);
      if (found !== undefined) done(found.bytes === null ? null : { bytes: found.bytes, compressed: found.compressed });
    };
    down.on('data', take);
    down.on('end', none);
    down.on('close', none);
  });
}

/**
 * A proxy that looks at each call and does to it what the armed rules say. What it does not act on it carries as it is:
 * headers, trailers, messages, resets with their codes, half-closed calls, flow control. One connection to the runtime
 * belongs to each of a caller's. Throws OpError when it cannot listen.
 */
export async function openActing(options: ActingOptions): Promise<Acting> {
  const counts = { open: 0 };
  const pairs = new Set<Pair>();
  const book = new SubjectBook();
  const server = createServer((socket) => {
    socket.on('error', () => {});
    const pair = new Pair(socket, options, book);
    pairs.add(pair);
    counts.open += 1;
    socket.once('close', () => {
      pairs.delete(pair);
      counts.open -= 1;
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) => reject(new OpError('failed', `listen on ${options.path}`, cause.message, { cause })));
    const before = process.umask(0o177);
    server.listen(options.path, resolve);
    process.umask(before);
  });
  await chmod(options.path, 0o600);
  return {
    counts,
    [Symbol.asyncDispose]: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const pair of pairs) pair.cut();
      }),
  };
}
