import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { OpError } from '../errors.ts';
import type { Log } from '../log.ts';
import { errnoError, errnoName } from './errno.ts';
import { type Answer, AnswerSplitter, type FieldReader, FieldWriter, kinds, maxFrameBytes, ops, protocolVersion } from './wire.ts';

export interface ConnectionOptions {
  /** The C program, `dist/sys`. */
  path: string;
  log: Log;
}

export interface Request {
  doing: string;
  op: number;
  fields: FieldWriter;
  timeoutMs: number;
  signal?: AbortSignal;
  onEvent?: (fields: FieldReader) => void;
}

export interface Sent {
  answer: Promise<FieldReader>;
  /** Asks for the answer `aborted`; after the answer it does nothing. */
  cancel: () => void;
}

interface Pending {
  doing: string;
  resolve(fields: FieldReader): void;
  reject(error: unknown): void;
  onEvent?: (fields: FieldReader) => void;
}

/** One `sys` process: frames out, answers in. Once it is gone it never comes back; the client makes another. */
export class Connection {
  readonly #process: ChildProcess;
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  readonly ended: Promise<void>;
  gone = false;

  constructor(options: ConnectionOptions) {
    this.#process = spawn(options.path, ['serve'], { stdio: ['pipe', 'pipe', 'inherit'], env: {}, cwd: '/' });
    const splitter = new AnswerSplitter();
    this.#input.on('error', () => {});
    (this.#process.stdout as Readable).on('data', (chunk: Buffer) => {
      for (const answer of splitter.push(chunk)) this.#answered(answer);
    });
    this.ended = new Promise((resolve) => {
      const end = (why: string): void => {
        this.gone = true;
        const waiting = [...this.#pending.values()];
        this.#pending.clear();
        for (const pending of waiting) pending.reject(new OpError('unavailable', pending.doing, why));
        resolve();
      };
      this.#process.on('error', (error) => end(`sys cannot be started: ${error.message}`));
      this.#process.on('close', (code, signal) => end(`sys ended (${signal ?? code})`));
    });
    const hello: Pending = {
      doing: 'greet sys',
      resolve: (fields) => {
        if (fields.u32() !== protocolVersion) {
          options.log.error('sys speaks another protocol version; build it again', { path: options.path });
          this.#process.kill('SIGTERM');
        }
      },
      reject: () => {},
    };
    this.#pending.set(0, hello);
    this.#input.write(new FieldWriter().u32(protocolVersion).frame(0, ops.hello, 0));
  }

  get #input(): Writable {
    return this.#process.stdin as Writable;
  }

  get pid(): number | undefined {
    return this.#process.pid;
  }

  get inFlight(): number {
    return this.#pending.size;
  }

  #answered(answer: Answer): void {
    const pending = this.#pending.get(answer.id);
    if (pending === undefined) return;
    if (answer.kind === kinds.event) {
      pending.onEvent?.(answer.fields);
      return;
    }
    this.#pending.delete(answer.id);
    if (answer.kind === kinds.done) pending.resolve(answer.fields);
    else pending.reject(errnoError(pending.doing, errnoName(answer.fields.u32()), answer.fields.bytes().toString()));
  }

  send(request: Request): Sent {
    const id = this.#nextId;
    this.#nextId = id === 0xffffffff ? 1 : id + 1;
    const { promise, resolve, reject } = Promise.withResolvers<FieldReader>();
    if (this.gone) {
      reject(new OpError('unavailable', request.doing, 'sys is not running'));
      return { answer: promise, cancel: () => {} };
    }
    const frame = request.fields.frame(id, request.op, request.timeoutMs);
    // It would take it for nonsense and end, and with it all that others asked for.
    if (frame.length - 4 > maxFrameBytes) {
      reject(errnoError(request.doing, 'E2BIG', 'request'));
      return { answer: promise, cancel: () => {} };
    }
    this.#pending.set(id, { doing: request.doing, resolve, reject, onEvent: request.onEvent });
    this.#input.write(frame);
    return {
      answer: promise,
      cancel: () => {
        if (this.#pending.has(id) && !this.gone) this.#input.write(new FieldWriter().frame(id, ops.cancel, 0));
      },
    };
  }

  async close(): Promise<void> {
    this.#input.end();
    await this.ended;
  }
}
