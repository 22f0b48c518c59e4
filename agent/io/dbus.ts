import { Buffer } from 'node:buffer';
import { createConnection } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { OpCode } from '../../base/errors.ts';
import { authAnswer, authLines, decodeMessage, encodeMessage } from '../core/dbus/messages.ts';
import type { DbusMessage } from '../core/dbus/messages.ts';
import { BadDbusData } from '../core/dbus/values.ts';
import type { DbusValue } from '../core/dbus/values.ts';

export interface DbusCall {
  /** Left out on a connection without a bus between. */
  readonly destination?: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly signature?: string;
  readonly body?: readonly DbusValue[];
}

/** A refusal by the other side, with the name it gave it. */
export class DbusError extends OpError {
  readonly dbusName: string;

  constructor(doing: string, name: string, text: string) {
    super(codeOf(name), doing, text === '' ? name : `${text} (${name})`);
    this.dbusName = name;
  }
}

const codes: Readonly<Record<string, OpCode>> = {
  'org.freedesktop.systemd1.UnitExists': 'exists',
  'org.freedesktop.systemd1.NoSuchUnit': 'not-found',
  'org.freedesktop.DBus.Error.ServiceUnknown': 'unavailable',
  'org.freedesktop.DBus.Error.NoReply': 'unavailable',
  'org.freedesktop.DBus.Error.Disconnected': 'unavailable',
  'org.freedesktop.DBus.Error.AccessDenied': 'denied',
  'org.freedesktop.DBus.Error.UnknownMethod': 'unsupported',
  'org.freedesktop.DBus.Error.InvalidArgs': 'invalid',
};

function codeOf(name: string): OpCode {
  return codes[name] ?? 'failed';
}

export interface Dbus extends AsyncDisposable {
  /** The answer's values. Throws DbusError for a refusal, OpError `deadline` or `unavailable` when there is no answer. */
  call(call: DbusCall, options: { timeoutMs: number; signal?: AbortSignal }): Promise<readonly DbusValue[]>;
  /** Called with every signal that comes; which come is asked for by AddMatch, or of a peer by its own means. */
  onSignal(callback: (signal: DbusMessage) => void): Disposable;
  /** Resolves when the connection has ended, whoever ended it. */
  readonly ended: Promise<void>;
}

export interface DbusOptions {
  readonly clock: Clock;
  /** Our user id: what the other side holds against the socket's own credentials. */
  readonly uid: number;
  /** `bus`: there is a bus between, which is greeted first. */
  readonly peer: 'bus' | 'direct';
}

const connectTimeoutMs = 10_000;
/** Two short lines. */
const maxLoginBytes = 64 << 10;

/** Connects to the socket at `path`. Throws OpError `unavailable` where nobody listens, `denied` where we are refused. */
export async function connectDbus(path: string, options: DbusOptions, signal?: AbortSignal): Promise<Dbus> {
  const socket = createConnection({ path });
  try {
    await new Promise<void>((resolve, reject) => {
      socket.once('connect', resolve);
      socket.once('error', (cause) => reject(new OpError('unavailable', `connect to ${path}`, messageOf(cause), { cause })));
    });
    return await openDbus(socket, path, options, signal);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

/** The same over any stream. */
export async function openDbus(stream: Duplex, name: string, options: DbusOptions, signal?: AbortSignal): Promise<Dbus> {
  const connection = new Connection(stream, name, options);
  try {
    await connection.greet(signal);
    return connection;
  } catch (error) {
    await connection[Symbol.asyncDispose]();
    throw error;
  }
}

interface Waiting {
  readonly doing: string;
  readonly resolve: (values: readonly DbusValue[]) => void;
  readonly reject: (error: OpError) => void;
}

class Connection implements Dbus {
  readonly ended: Promise<void>;
  readonly #stream: Duplex;
  readonly #name: string;
  readonly #options: DbusOptions;
  readonly #waiting = new Map<number, Waiting>();
  readonly #listeners = new Set<(signal: DbusMessage) => void>();
  readonly #authenticated = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<void>();
  #data: Buffer = Buffer.alloc(0);
  #talks = false;
  #serial = 0;
  #failure: OpError | null = null;

  constructor(stream: Duplex, name: string, options: DbusOptions) {
    this.#stream = stream;
    this.#name = name;
    this.#options = options;
    this.ended = this.#ended.promise;
    this.#authenticated.promise.catch(() => undefined);
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.on('error', (cause: Error) => this.#fail(new OpError('unavailable', `talk to ${name}`, messageOf(cause), { cause })));
    for (const event of ['end', 'close']) stream.on(event, () => this.#fail(new OpError('unavailable', `talk to ${name}`, 'the connection was closed')));
  }

  async greet(signal?: AbortSignal): Promise<void> {
    const { uid, peer, clock } = this.#options;
    if (signal?.aborted === true) throw new OpError('aborted', `log in at ${this.#name}`, 'stopped by the caller');
    const stopped = (): void => this.#fail(new OpError('aborted', `log in at ${this.#name}`, 'stopped by the caller'));
    signal?.addEventListener('abort', stopped, { once: true });
    this.#stream.write(authLines(uid));
    using _deadline = clock.after(connectTimeoutMs, () =>
      this.#fail(new OpError('deadline', `log in at ${this.#name}`, `no answer in ${connectTimeoutMs} ms`)),
    );
    await this.#authenticated.promise.finally(() => signal?.removeEventListener('abort', stopped));
    if (peer === 'direct') return;
    const hello = { destination: 'org.freedesktop.DBus', path: '/org/freedesktop/DBus', interface: 'org.freedesktop.DBus', member: 'Hello' };
    await this.call(hello, { timeoutMs: connectTimeoutMs, ...(signal === undefined ? {} : { signal }) });
  }

  async call(call: DbusCall, { timeoutMs, signal }: { timeoutMs: number; signal?: AbortSignal }): Promise<readonly DbusValue[]> {
    const doing = `call ${call.member} at ${this.#name}`;
    if (signal?.aborted === true) throw new OpError('aborted', doing, 'stopped by the caller');
    if (this.#failure !== null) throw this.#failure;
    const serial = (this.#serial = (this.#serial % 0xffff_fffe) + 1);
    const { promise, resolve, reject } = Promise.withResolvers<readonly DbusValue[]>();
    this.#waiting.set(serial, { doing, resolve, reject });
    const stopped = (): void => reject(new OpError('aborted', doing, 'stopped by the caller'));
    signal?.addEventListener('abort', stopped, { once: true });
    using _deadline = this.#options.clock.after(timeoutMs, () => reject(new OpError('deadline', doing, `no answer in ${timeoutMs} ms`)));
    try {
      this.#stream.write(encodeMessage({ ...call, type: 'call', serial, body: call.body ?? [] }));
      return await promise;
    } finally {
      this.#waiting.delete(serial);
      signal?.removeEventListener('abort', stopped);
    }
  }

  onSignal(callback: (signal: DbusMessage) => void): Disposable {
    this.#listeners.add(callback);
    return { [Symbol.dispose]: () => void this.#listeners.delete(callback) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#fail(new OpError('unavailable', `talk to ${this.#name}`, 'the connection was closed by us'));
    this.#stream.destroy();
    await this.ended;
  }

  #take(chunk: Buffer): void {
    this.#data = this.#data.length === 0 ? chunk : Buffer.concat([this.#data, chunk]);
    try {
      if (!this.#talks && !this.#loggedIn()) return;
      for (;;) {
        const next = decodeMessage(this.#data);
        if (next === null) return;
        this.#data = this.#data.subarray(next.size);
        this.#handle(next.message);
      }
    } catch (cause) {
      // Where the next message begins is not known any more.
      this.#fail(new OpError('unavailable', `read from ${this.#name}`, messageOf(cause), { cause }));
      this.#stream.destroy();
    }
  }

  #loggedIn(): boolean {
    const answer = authAnswer(this.#data.toString('latin1'));
    if (answer === null) {
      if (this.#data.length > maxLoginBytes) throw new BadDbusData('a login without an end');
      return false;
    }
    if ('refused' in answer) {
      this.#fail(new OpError('denied', `log in at ${this.#name}`, `refused: ${answer.refused}`));
      this.#stream.destroy();
      return false;
    }
    this.#data = this.#data.subarray(answer.at);
    this.#talks = true;
    this.#authenticated.resolve();
    return true;
  }

  #handle(message: DbusMessage): void {
    if (message.type === 'signal') {
      // A bus passes on what anybody sends to us alone; only what is told to all went by the rules that name its sender.
      if (this.#options.peer === 'bus' && message.destination !== undefined) return;
      for (const listener of this.#listeners) listener(message);
      return;
    }
    if (message.type === 'call') return;
    const waiting = this.#waiting.get(message.replySerial ?? 0);
    if (waiting === undefined) return;
    if (message.type === 'return') return waiting.resolve(message.body);
    const [text] = message.body;
    waiting.reject(new DbusError(waiting.doing, message.errorName ?? 'an error without a name', typeof text === 'string' ? text : ''));
  }

  #fail(error: OpError): void {
    if (this.#failure !== null) return;
    this.#failure = error;
    this.#authenticated.reject(error);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
    this.#ended.resolve();
  }
}
