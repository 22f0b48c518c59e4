import { connect, createServer, type Server, type Socket } from 'node:net';
import { chmod, chown, lstat, stat, unlink } from 'node:fs/promises';
import { carry } from '../../base/carry.ts';
import { OpError } from '../../base/errors.ts';
import type { Side, Stamp } from '../core/connection.ts';
import { FAREWELL, FrameEdge } from '../core/frame-edge.ts';

/** Sees what passes, after it has been passed on; must not keep `bytes`, and must not throw. It was just now when there is no `at`. */
export interface Onlooker {
  open(connection: number, at?: Stamp): void;
  data(connection: number, side: Side, bytes: Uint8Array, at?: Stamp): void;
  /** Something passed that is not shown. */
  lost(connection: number, at?: Stamp): void;
  /** That side sends no more. */
  end(connection: number, side: Side, at?: Stamp): void;
  close(connection: number, at?: Stamp): void;
}

export interface Splice extends AsyncDisposable {
  readonly counts: { opened: number; open: number; bytes: number };
  /** Resolves with the reason when it cannot go on by itself. */
  readonly broken: Promise<string>;
  /** Connections that come from now on go to another socket; null: to `upstream` again. */
  route(path: string | null): void;
  /**
   * Asks callers to connect anew, in HTTP/2's way: what is open on the old connections ends as it would.
   * @param routed those whose connections were routed elsewhere; else those that go straight to `upstream`
   * @param cutMs when connections that are still there are cut; null: never
   */
  sendAway(routed: boolean, cutMs: number | null): void;
}

export interface SpliceOptions {
  readonly listen: string;
  readonly upstream: string;
  readonly onlooker: Onlooker | null;
  /** Told of each connection: null, or the code of the refusal. */
  readonly reached?: (refusal: string | null) => void;
}

/** A receiver may take as long as it likes: the two sides alone decide when they have had enough. */
const END_MS = 24 * 3600 * 1000;

/** Whether somebody answers at that socket; rejects with the system's error when not. */
function probed(path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const probe = connect({ path });
    probe.once('connect', () => {
      probe.destroy();
      resolve();
    });
    probe.once('error', reject);
  });
}

/** Whether somebody answers at that socket. */
export async function answers(path: string): Promise<boolean> {
  return probed(path).then(
    () => true,
    () => false,
  );
}

/**
 * Whether nobody can be there any more: nothing stands at that path, or a socket whose process is gone. One that is busy,
 * that is another's, or that speaks in datagrams does not answer and is not abandoned.
 */
export async function isAbandoned(path: string): Promise<boolean> {
  return probed(path).then(
    () => false,
    ({ code }: NodeJS.ErrnoException) => code === 'ECONNREFUSED' || code === 'ENOENT',
  );
}

/** Takes away a socket that a dead process left. Throws OpError `exists` for anything else that stands there. */
export async function clearSocket(path: string): Promise<void> {
  const there = await lstat(path).catch(() => null);
  if (there === null) return;
  const doing = `listen on ${path}`;
  if (!there.isSocket()) throw new OpError('exists', doing, 'there is something that is no socket', { advice: 'name another path with --listen' });
  if (!(await isAbandoned(path)))
    throw new OpError('exists', doing, 'another process listens there', { advice: 'stop it, or name another path with --listen' });
  await unlink(path);
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => reject(cannotListen(path, cause.code, cause.message, cause)));
    // Until it has its owner and mode nobody else may connect.
    const before = process.umask(0o177);
    server.listen(path, resolve);
    process.umask(before);
  });
}

/** Gives a listening socket mode and owner of another, so that those may connect who might there. */
export async function dressAs(upstream: string, listening: string): Promise<void> {
  const like = await stat(upstream).catch(() => null);
  await chmod(listening, like === null ? 0o600 : like.mode & 0o777);
  if (like !== null && process.geteuid?.() === 0) await chown(listening, like.uid, like.gid);
}

export function cannotListen(path: string, code: string | undefined, words: string, cause?: unknown): OpError {
  const isReadOnly = code === 'EROFS';
  return new OpError(code === 'EACCES' || isReadOnly ? 'denied' : 'failed', `listen on ${path}`, isReadOnly ? 'the folder is read-only' : words, {
    cause,
    advice: 'the folder must be there and writable, and the path shorter than 108 bytes',
  });
}

/** A connection that can be told to go. */
class Leaver {
  readonly #client: Socket;
  readonly #edge = new FrameEdge();
  readonly #told: (bytes: Uint8Array) => void;
  #state: 'stays' | 'is to go' | 'was told' = 'stays';

  constructor(client: Socket, told: (bytes: Uint8Array) => void) {
    this.#client = client;
    this.#told = told;
  }

  /** Sees what the runtime sent, after it was passed on. */
  passed(bytes: Uint8Array): void {
    this.#edge.feed(bytes);
    if (this.#state === 'is to go') this.#tell();
  }

  leave(cutMs: number | null): void {
    if (this.#state === 'stays') this.#state = 'is to go';
    if (this.#state === 'is to go') this.#tell();
    if (cutMs === null) return;
    const late = setTimeout(() => this.#client.destroy(), cutMs).unref();
    this.#client.once('close', () => clearTimeout(late));
  }

  #tell(): void {
    if (!this.#edge.isBetween || !this.#client.writable) return;
    this.#state = 'was told';
    this.#client.write(FAREWELL);
    this.#told(FAREWELL);
  }
}

function join(client: Socket, upstream: Socket, number: number, counts: Splice['counts'], onlooker: Onlooker | null): void {
  const sides: readonly [Side, Socket, Socket][] = [
    ['client', client, upstream],
    ['server', upstream, client],
  ];
  let closed = 0;
  for (const [side, from, to] of sides) {
    carry(from, to, END_MS);
    from.on('data', (bytes: Buffer) => {
      counts.bytes += bytes.length;
      onlooker?.data(number, side, bytes);
    });
    from.on('end', () => onlooker?.end(number, side));
    // One side's failure, or its end of life, is the other's.
    from.on('error', () => to.destroy());
    from.on('close', () => {
      if (!to.writableEnded) to.destroy();
      if (++closed < 2) return;
      counts.open -= 1;
      onlooker?.close(number);
    });
  }
}

/**
 * Listens on one unix socket and joins every connection with one of its own to another: bytes, half-closes, back
 * pressure and failures pass as they are; nothing is parsed. While `upstream` is away a connection is closed at once.
 * `reached` is told of each: null, or the code of the refusal. The listening socket has the mode and owner of the upstream
 * one. Disposing closes all and removes the socket.
 */
export async function openSplice(options: SpliceOptions): Promise<Splice> {
  const { onlooker, reached = () => {} } = options;
  let elsewhere: string | null = null;
  const leavers = { straight: new Set<Leaver>(), routed: new Set<Leaver>() };
  const counts = { opened: 0, open: 0, bytes: 0 };
  const sockets = new Set<Socket>();
  const keep = (socket: Socket): void => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  };
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => {
    const number = ++counts.opened;
    counts.open += 1;
    keep(client);
    const isRouted = elsewhere !== null;
    const upstream = connect({ path: elsewhere ?? options.upstream, allowHalfOpen: true });
    keep(upstream);
    onlooker?.open(number);
    join(client, upstream, number, counts, onlooker);
    const leaver = new Leaver(client, (bytes) => onlooker?.data(number, 'server', bytes));
    upstream.on('data', (bytes: Buffer) => leaver.passed(bytes));
    const group = isRouted ? leavers.routed : leavers.straight;
    group.add(leaver);
    client.once('close', () => group.delete(leaver));
    client.pause();
    const refused = (error: NodeJS.ErrnoException): void => reached(error.code ?? error.message);
    upstream.once('error', refused);
    upstream.once('connect', () => {
      upstream.off('error', refused);
      reached(null);
      client.resume();
    });
  });
  await clearSocket(options.listen);
  await listen(server, options.listen);
  await dressAs(options.upstream, options.listen);
  return {
    counts,
    broken: new Promise(() => {}),
    route: (path) => {
      elsewhere = path;
    },
    sendAway: (routed, cutMs) => {
      for (const leaver of routed ? leavers.routed : leavers.straight) leaver.leave(cutMs);
    },
    [Symbol.asyncDispose]: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}
