import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import { setImmediate as turn } from 'node:timers/promises';
import { seededRng } from '../../base/rng.ts';

/** What the runtime does with a call; the call says it in its `x-script`. */
export interface Script {
  readonly id: number;
  /** Bytes of each message of the answer. */
  readonly responses: readonly number[];
  /** Answers without waiting for the request's end. */
  readonly early: boolean;
  readonly end: 'trailers' | 'bare' | 'reset';
  /** Of the reset, or gRPC's. */
  readonly code: number;
  /** Waits until so many calls are there. */
  readonly crowd: number;
  /** Never answers more than headers. */
  readonly holds: boolean;
}

/** What the runtime saw of a call. */
export interface Seen {
  readonly path: string;
  readonly metadata: string;
  readonly bytes: number;
  readonly hash: string;
  readonly end: 'ended' | 'aborted';
  /** Of the caller's reset; 0 when it ended by itself. */
  readonly code: number;
}

const BLOCK = Buffer.from(seededRng(7).bytes(65_536));

/** A gRPC message of that size whose bytes follow from the number. */
export function message(seed: number, bytes: number): Buffer {
  const framed = Buffer.allocUnsafe(bytes + 5);
  framed[0] = 0;
  framed.writeUInt32BE(bytes, 1);
  for (let at = 0; at < bytes;)
    at += BLOCK.copy(framed, 5 + at, at === 0 ? seed % 60_000 : 0, Math.min(BLOCK.length, bytes - at + (at === 0 ? seed % 60_000 : 0)));
  return framed;
}

/** Above what these calls reach: the runtime under test is the tap. */
const LIMITS = {
  maxSessionMemory: 2_000,
  streamResetBurst: 1_000_000,
  streamResetRate: 1_000_000,
  settings: { maxConcurrentStreams: 100_000, initialWindowSize: 1024 * 1024 },
};

/** A runtime that does what it is told, and remembers what it saw. */
export class FuzzRuntime implements AsyncDisposable {
  readonly seen = new Map<number, Seen>();
  aborted = 0;
  connections = 0;
  readonly #server: Http2Server;
  readonly #sessions = new Set<ServerHttp2Session>();
  #waiting: (() => void)[] = [];

  private constructor() {
    this.#server = createServer(LIMITS);
    this.#server.on('session', (session) => {
      this.connections += 1;
      this.#sessions.add(session);
      session.on('error', () => {});
      session.on('close', () => this.#sessions.delete(session));
    });
    this.#server.on('stream', (stream, headers) => {
      stream.on('error', () => {});
      const script = JSON.parse(String(headers['x-script'])) as Script;
      this.#watch(
        stream,
        script,
        String(headers[':path']),
        JSON.stringify([headers['x-metadata'], headers['te'], headers['user-agent'], headers['grpc-timeout']]),
      );
      void this.#answer(stream, script).catch(() => {});
    });
  }

  static async listen(path: string): Promise<FuzzRuntime> {
    const made = new FuzzRuntime();
    made.#server.listen(path);
    await once(made.#server, 'listening');
    return made;
  }

  #watch(stream: ServerHttp2Stream, script: Script, path: string, metadata: string): void {
    const hash = createHash('sha256');
    let bytes = 0;
    stream.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      hash.update(chunk);
    });
    let end: Seen['end'] = 'aborted';
    stream.on('end', () => (end = 'ended'));
    stream.on('aborted', () => (this.aborted += 1));
    stream.on('close', () => {
      // How much of a question came before a reset is chance.
      const isWhole = end === 'ended' && !script.holds && script.end !== 'reset';
      this.seen.set(script.id, {
        path,
        metadata,
        bytes: isWhole ? bytes : 0,
        hash: isWhole ? hash.digest('hex').slice(0, 16) : '',
        end: script.holds || script.end === 'reset' ? 'aborted' : end,
        code: script.end === 'reset' ? 0 : stream.rstCode,
      });
    });
  }

  async #answer(stream: ServerHttp2Stream, script: Script): Promise<void> {
    if (script.crowd > 0) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(resolve);
        if (this.#waiting.length === script.crowd) for (const wake of this.#waiting.splice(0)) wake();
      });
    }
    if (!script.early) await new Promise<void>((resolve) => (stream.readableEnded ? resolve() : void stream.once('end', resolve)));
    const trailers = {
      'grpc-status': String(script.code),
      'grpc-message': `call ${script.id} · ü`.replaceAll(/[^ -~]/g, encodeURIComponent),
      'x-bin': ['AAE=', 'AgM='],
    };
    const headers = { ':status': 200, 'content-type': 'application/grpc', 'x-head': `h${script.id}` };
    if (script.end === 'bare') {
      stream.respond({ ...headers, ...trailers }, { endStream: true });
      return;
    }
    stream.respond(headers, { waitForTrailers: true });
    if (script.holds) return;
    // Node ends what it writes before it resets: with trailers that would be an end.
    stream.once('wantTrailers', () => void (stream.closed || stream.sendTrailers(trailers)));
    for (const [index, size] of script.responses.entries()) {
      if (stream.destroyed) return;
      // A reset while writes wait sends Node's HTTP/2 into a loop that has no end.
      await new Promise<void>((resolve) => {
        stream.once('close', resolve);
        stream.write(message(script.id + index, size), () => {
          stream.off('close', resolve);
          resolve();
        });
      });
      await turn();
    }
    // In the midst of writing Node would let an end go out in the reset's place.
    if (script.end === 'reset') setImmediate(() => stream.close(script.code));
    else stream.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}
