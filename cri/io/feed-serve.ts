import { chmod, mkdtemp, rename, rm, unlink } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import { messageOf, OpError, type OpCode } from '../../base/errors.ts';
import { FeedInlet, type FeedEnd, type FeedParcel } from './feed-gate.ts';
import { clearSocket } from './splice.ts';

/** How the feed's thread is started. */
export interface FeedOrder {
  readonly role: 'feed';
  readonly control: string;
  readonly end: FeedEnd;
  /** The decoder's words, to wake it: somebody came who wants to know how things stand. */
  readonly ringControl: SharedArrayBuffer;
}

/** A failure as it goes from thread to thread and over the socket. */
export interface FailureText {
  readonly code: OpCode;
  readonly doing: string;
  readonly detail: string;
  readonly advice: string;
}

/** What the thread says to the tap. */
export type FeedReport =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly failure: FailureText }
  | { readonly kind: 'ask'; readonly id: number; readonly request: object };
/** What the tap says to the thread. */
export type FeedNotice = { readonly kind: 'answer'; readonly id: number; readonly answer: object } | { readonly kind: 'end' };

/** What waits for one viewer; more is lost to it. */
const VIEWER_BYTES = 8 * 1024 * 1024;
const MAX_VIEWERS = 32;
const MAX_CONNECTIONS = 128;
/** Rules for faults are the longest there is. */
const MAX_REQUEST_CHARS = 1 << 20;
/** At the end a viewer that takes nothing for so long is left behind, and any after so many times as long. */
const END_MS = 500;
const END_ROUNDS = 20;

export function failureText(error: unknown): FailureText {
  if (error instanceof OpError) return { code: error.code, doing: error.doing, detail: error.message.slice(error.doing.length + 2), advice: error.advice };
  return { code: 'failed', doing: 'answer a request', detail: messageOf(error), advice: '' };
}

interface Viewer {
  readonly socket: Socket;
  readonly mark: number;
  /** Whether it has had its beginning. */
  live: boolean;
  lost: number;
}

class FeedServer {
  readonly #inlet: FeedInlet;
  readonly #order: FeedOrder;
  readonly #ask: (request: object) => Promise<object>;
  readonly #viewers = new Set<Viewer>();
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;

  constructor(order: FeedOrder, ask: (request: object) => Promise<object>) {
    this.#order = order;
    this.#ask = ask;
    this.#inlet = new FeedInlet(order.end.memory);
    order.end.port.on('message', (parcel: FeedParcel) => this.#deliver(parcel));
    this.#server = createServer((socket) => this.#accept(socket));
    this.#server.maxConnections = MAX_CONNECTIONS;
  }

  /** Listens where nobody else can connect before the socket has its mode: a thread has no umask of its own. */
  async listen(): Promise<void> {
    const { control } = this.#order;
    await clearSocket(control);
    const doing = `listen on ${control}`;
    let folder: string;
    try {
      folder = await mkdtemp(`${control}-`);
    } catch (cause) {
      throw new OpError('failed', doing, messageOf(cause), { cause, advice: 'the folder must be there and writable' });
    }
    try {
      const first = join(folder, 's');
      await new Promise<void>((resolve, reject) => {
        this.#server.once('error', (cause) =>
          reject(new OpError('failed', doing, cause.message, { cause, advice: 'the listening socket’s path must be shorter than 95 bytes' })),
        );
        this.#server.listen(first, resolve);
      });
      await chmod(first, 0o600);
      await rename(first, control);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }

  async close(): Promise<void> {
    await unlink(this.#order.control).catch(() => {});
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const viewer of this.#viewers) this.#tellLost(viewer);
    for (const socket of this.#sockets) socket.end();
    let rounds = 0;
    const waiting = new Map<Socket, number>();
    const late = setInterval(() => {
      rounds += 1;
      for (const socket of this.#sockets) {
        if (rounds >= END_ROUNDS || waiting.get(socket) === socket.writableLength) socket.destroy();
        waiting.set(socket, socket.writableLength);
      }
    }, END_MS);
    await closed;
    clearInterval(late);
  }

  #accept(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    socket.on('error', () => {});
    let text = '';
    socket.setEncoding('utf8');
    const read = (chunk: string): void => {
      text += chunk;
      if (text.length > MAX_REQUEST_CHARS) return void socket.destroy();
      for (let end = text.indexOf('\n'); end !== -1; end = text.indexOf('\n')) {
        const line = text.slice(0, end);
        text = text.slice(end + 1);
        if (line.trim() === '') continue;
        if (!this.#request(socket, line)) continue;
        socket.off('data', read);
        socket.resume();
        return;
      }
    };
    socket.on('data', read);
  }

  /** Whether the connection is a viewer's from now on. */
  #request(socket: Socket, line: string): boolean {
    const answer = (value: object): void => {
      if (socket.writable) socket.write(`${JSON.stringify(value)}\n`);
    };
    const refuse = (code: OpCode, detail: string, advice = ''): boolean => {
      answer({ error: { code, doing: 'ask the tap', detail, advice } satisfies FailureText });
      return false;
    };
    let request: unknown;
    try {
      request = JSON.parse(line);
    } catch {
      return refuse('invalid', 'a request is one JSON object a line');
    }
    if (request === null || typeof request !== 'object' || !('do' in request)) return refuse('invalid', 'a request has a "do"');
    if (request.do !== 'feed') {
      void this.#ask(request).then(answer);
      return false;
    }
    if (this.#viewers.size >= MAX_VIEWERS) return refuse('exhausted', `${MAX_VIEWERS} viewers are there already`);
    this.#admit(socket);
    return true;
  }

  #admit(socket: Socket): void {
    const viewer: Viewer = { socket, mark: this.#inlet.viewerCame(this.#viewers.size + 1), live: false, lost: 0 };
    this.#viewers.add(viewer);
    socket.on('drain', () => this.#tellLost(viewer));
    socket.once('close', () => {
      this.#viewers.delete(viewer);
      this.#inlet.viewersLeft(this.#viewers.size);
    });
    Atomics.notify(new Int32Array(this.#order.ringControl), 0);
  }

  #deliver(parcel: FeedParcel): void {
    if ('lost' in parcel) {
      for (const viewer of this.#viewers) if (viewer.live) viewer.lost += parcel.lost;
      return;
    }
    const { bytes, newcomers = 0 } = parcel;
    this.#inlet.taken(bytes.length);
    for (const viewer of this.#viewers) {
      if (newcomers === 0 ? !viewer.live : viewer.live || viewer.mark > newcomers) continue;
      viewer.live = true;
      const waiting = viewer.socket.writableLength;
      if (waiting > 0 && waiting + bytes.length > VIEWER_BYTES) {
        viewer.lost += 1;
        continue;
      }
      this.#tellLost(viewer);
      viewer.socket.write(bytes);
    }
  }

  #tellLost(viewer: Viewer): void {
    if (viewer.lost === 0 || !viewer.socket.writable) return;
    viewer.socket.write(`${JSON.stringify({ type: 'lost', entries: viewer.lost })}\n`);
    viewer.lost = 0;
  }
}

/** Asks the tap's own thread, which knows all but the entries. */
function asker(port: MessagePort): { ask: (request: object) => Promise<object>; answered: (id: number, answer: object) => void } {
  const open = new Map<number, (answer: object) => void>();
  let asked = 0;
  return {
    ask: (request) =>
      new Promise((resolve) => {
        open.set(++asked, resolve);
        port.postMessage({ kind: 'ask', id: asked, request } satisfies FeedReport);
      }),
    answered: (id, answer) => {
      open.get(id)?.(answer);
      open.delete(id);
    },
  };
}

/** Serves the tap's control socket until it is told to end: requests, and entries to whoever wants them. */
export function feedThread(): void {
  const port = parentPort;
  if (port === null) return;
  const order = workerData as FeedOrder;
  const { ask, answered } = asker(port);
  const server = new FeedServer(order, ask);
  // The decoder closes its end after its last entry.
  const drained = new Promise<void>((resolve) => order.end.port.once('close', () => resolve()));
  port.on('message', (notice: FeedNotice) => {
    if (notice.kind === 'answer') answered(notice.id, notice.answer);
    else void drained.then(() => server.close()).then(() => port.close());
  });
  server.listen().then(
    () => port.postMessage({ kind: 'ready' } satisfies FeedReport),
    (error: unknown) => {
      port.postMessage({ kind: 'failed', failure: failureText(error) } satisfies FeedReport);
      order.end.port.close();
      port.close();
    },
  );
}
