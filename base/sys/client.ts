import { setTimeout as delay } from 'node:timers/promises';
import { hasCode, OpError } from '../errors.ts';
import { Connection, type ConnectionOptions, type Request } from './connection.ts';
import { errnoName } from './errno.ts';
import { readFileOpResult, writeFileOp } from './file-ops.ts';
import { isInParts, withInputSocket } from './input.ts';
import { mountFlags, propagationBits } from './flags.ts';
import type { BindRequest, ChownTreeOptions, FileOpResult, FileOpsRequest, FsFacts, MountRequest, OpFailure, RunRequest, RunResult, Sys } from './types.ts';
import { type FieldReader, FieldWriter, linkCodes, ops } from './wire.ts';

export interface SysClientOptions extends ConnectionOptions {
  /** $NOTIFY_SOCKET, when a service manager set it. */
  notifySocket?: string;
}

function throwIfStopped(request: Request): void {
  if (request.signal?.aborted === true) throw new OpError('aborted', request.doing, 'stopped by the caller', { cause: request.signal.reason });
}

const defaultTimeoutMs = 30_000;
/** How long what was held is asked for again, and how often: after a longer pause each time. */
const patienceMs = 5000;
const firstPauseMs = 20;
const longestPauseMs = 500;
/** Below what `sys` itself takes at once; more wait here. */
const maxInFlight = 256;
const defaultPath = 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Something held for as long as its holder wants it, so it is asked for again from the next process. */
interface Standing {
  request: Request;
  onLost: (error: unknown) => void;
  release: () => Promise<void>;
  state: 'asking' | 'held' | 'released';
}

class SysClient implements Sys {
  readonly #options: SysClientOptions;
  readonly #standing = new Set<Standing>();
  readonly #waiting: (() => void)[] = [];
  #connection: Connection | undefined;
  #closed = false;

  constructor(options: SysClientOptions) {
    this.#options = options;
  }

  /** The process to talk to: the one that runs, else a new one. */
  #connect(): Connection {
    if (this.#closed) throw new OpError('unavailable', 'sys', 'closed');
    if (this.#connection !== undefined && !this.#connection.gone) return this.#connection;
    const connection = new Connection(this.#options);
    this.#connection = connection;
    void connection.ended.then(() => {
      if (this.#closed || this.#connection !== connection) return;
      this.#options.log.warn('sys ended unexpectedly; it is started again');
      for (const standing of this.#standing) {
        if (standing.state === 'held') void this.#holdAgain(standing);
      }
    });
    return connection;
  }

  get pid(): number | undefined {
    return this.#connect().pid;
  }

  #lost(standing: Standing, error: unknown): void {
    this.#standing.delete(standing);
    standing.onLost(error);
  }

  async #ask(request: Request): Promise<FieldReader> {
    const { signal } = request;
    try {
      throwIfStopped(request);
      while (this.#connect().inFlight >= maxInFlight) await new Promise<void>((resolve) => this.#waiting.push(resolve));
      throwIfStopped(request);
      const { answer, cancel } = this.#connect().send(request);
      signal?.addEventListener('abort', cancel, { once: true });
      return await answer.finally(() => signal?.removeEventListener('abort', cancel));
    } finally {
      this.#waiting.shift()?.();
    }
  }

  /** Resolves once `sys` says that it holds; later failures go to `onLost`. */
  async #hold(standing: Standing): Promise<void> {
    const held = Promise.withResolvers<void>();
    standing.state = 'asking';
    const { answer, cancel } = this.#connect().send({
      ...standing.request,
      onEvent: (fields) => {
        if (standing.state === 'asking') standing.state = 'held';
        held.resolve();
        standing.request.onEvent?.(fields);
      },
    });
    const ended = answer.then(
      () => {},
      (error: unknown) => {
        held.reject(error);
        if (standing.state !== 'held' || hasCode(error, 'unavailable')) return;
        this.#lost(standing, error);
      },
    );
    standing.release = () => {
      cancel();
      return ended;
    };
    await held.promise;
  }

  /**
   * The killed process's children die with it, but a moment later: until then a lock is still held by one of them, and the
   * process asked now may be killed as well. Whoever still holds it after that is somebody else.
   */
  async #holdAgain(standing: Standing): Promise<void> {
    const deadline = performance.now() + patienceMs;
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(1.5 * pauseMs, longestPauseMs)) {
      try {
        return await this.#hold(standing);
      } catch (error) {
        if (this.#closed || !this.#standing.has(standing)) return;
        const passes = hasCode(error, 'conflict') || hasCode(error, 'unavailable');
        if (!passes || performance.now() > deadline) return this.#lost(standing, error);
      }
      await delay(pauseMs);
      if (this.#closed || !this.#standing.has(standing)) return;
    }
  }

  async #stand(request: Request, onLost: (error: unknown) => void): Promise<AsyncDisposable> {
    const standing: Standing = { request, onLost, release: () => Promise.resolve(), state: 'asking' };
    await this.#hold(standing);
    this.#standing.add(standing);
    return {
      [Symbol.asyncDispose]: async () => {
        standing.state = 'released';
        this.#standing.delete(standing);
        await standing.release();
      },
    };
  }

  async run(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
    const { stdin } = request;
    if (!isInParts(stdin)) return await this.#run(request, stdin ?? '', '', signal);
    return await withInputSocket(stdin, (path, text) => this.#run(request, text, path, signal));
  }

  async #run(request: RunRequest, stdin: Uint8Array | string, stdinSocket: string, signal?: AbortSignal): Promise<RunResult> {
    const env = request.env === undefined ? [defaultPath] : Object.entries(request.env).map(([name, value]) => `${name}=${value}`);
    const fields = new FieldWriter().strings(request.argv).strings(env);
    fields
      .string(request.cwd ?? '')
      .string(request.netns ?? '')
      .string(request.mntns ?? '');
    fields
      .bytes(stdin)
      .u32(request.maxOutputBytes ?? 1024 * 1024)
      .string(stdinSocket);
    const got = await this.#ask({ doing: `run ${request.argv[0]}`, op: ops.run, fields, timeoutMs: request.timeoutMs, signal });
    const code = got.u32();
    const number = got.u32();
    const truncated = got.u8() === 1;
    const timedOut = got.u8() === 1;
    return { code: code === 0xffffffff ? null : code, signal: number === 0 ? null : number, stdout: got.bytes(), stderr: got.bytes(), truncated, timedOut };
  }

  async mount(request: MountRequest): Promise<void> {
    const fields = new FieldWriter().string(request.source).string(request.target).string(request.fstype);
    fields.u64(mountFlags(request.flags ?? [])).string(request.data ?? '');
    await this.#ask({ doing: `mount ${request.target}`, op: ops.mount, fields, timeoutMs: request.timeoutMs ?? defaultTimeoutMs });
  }

  async umount(target: string, options: { lazy?: boolean; force?: boolean; timeoutMs?: number } = {}): Promise<'unmounted' | 'not-mounted'> {
    const fields = new FieldWriter().string(target).u32((options.force === true ? 1 : 0) | (options.lazy === true ? 2 : 0));
    const got = await this.#ask({ doing: `unmount ${target}`, op: ops.umount, fields, timeoutMs: options.timeoutMs ?? defaultTimeoutMs });
    return got.u8() === 1 ? 'unmounted' : 'not-mounted';
  }

  async bind(request: BindRequest): Promise<void> {
    const options =
      (request.recursive === true ? 1 : 0) |
      (request.readOnly === true ? 2 : 0) |
      (request.recursiveReadOnly === true ? 4 : 0) |
      (request.links === 'beneath' ? 8 : 0);
    const fields = new FieldWriter()
      .string(request.beneath ?? '')
      .string(request.source)
      .string(request.target);
    fields.u32(options).u64(propagationBits(request.propagation));
    await this.#ask({ doing: `bind ${request.target}`, op: ops.bind, fields, timeoutMs: request.timeoutMs ?? defaultTimeoutMs });
  }

  async readBeneath(root: string, path: string, options: { maxBytes: number; fromEnd?: boolean }): Promise<Uint8Array> {
    const fields = new FieldWriter()
      .string(root)
      .string(path)
      .u32(options.maxBytes)
      .u8(options.fromEnd === true ? 1 : 0);
    return (await this.#ask({ doing: `read ${path} in ${root}`, op: ops.readBeneath, fields, timeoutMs: defaultTimeoutMs })).bytes();
  }

  async mkdirBeneath(root: string, path: string, mode: number, options: { links?: 'refuse' | 'beneath' } = {}): Promise<void> {
    const fields = new FieldWriter()
      .string(root)
      .string(path)
      .u32(mode)
      .u8(linkCodes[options.links ?? 'refuse']);
    await this.#ask({ doing: `make directory ${path} in ${root}`, op: ops.mkdirBeneath, fields, timeoutMs: defaultTimeoutMs });
  }

  async fileOps(request: FileOpsRequest, signal?: AbortSignal): Promise<FileOpResult[]> {
    const fields = new FieldWriter()
      .string(request.root)
      .u8(linkCodes[request.links ?? 'refuse'])
      .u32(request.ops.length);
    for (const op of request.ops) writeFileOp(fields, op);
    const got = await this.#ask({ doing: `work on files in ${request.root}`, op: ops.fileOps, fields, timeoutMs: request.timeoutMs, signal });
    const results: FileOpResult[] = [];
    for (const { op } of request.ops) {
      if (got.done) break;
      results.push(readFileOpResult(op, got.u32(), got.bytes()));
    }
    return results;
  }

  async removeTree(path: string, options: { timeoutMs: number }, signal?: AbortSignal): Promise<void> {
    await this.#ask({ doing: `remove ${path}`, op: ops.removeTree, fields: new FieldWriter().string(path), timeoutMs: options.timeoutMs, signal });
  }

  async chownTree(path: string, options: ChownTreeOptions, signal?: AbortSignal): Promise<void> {
    const fields = new FieldWriter().string(path);
    fields
      .u32(options.uid ?? -1)
      .u32(options.gid ?? -1)
      .u32(options.orMode ?? 0)
      .u32(options.orDirMode ?? 0);
    const onEvent = (event: FieldReader): void => options.onProgress?.(Number(event.bytes().toString()));
    await this.#ask({ doing: `change owner of ${path}`, op: ops.chownTree, fields, timeoutMs: options.timeoutMs, signal, onEvent });
  }

  async diskUsage(path: string, options: { timeoutMs: number }, signal?: AbortSignal): Promise<{ bytes: number; inodes: number }> {
    const got = await this.#ask({ doing: `measure ${path}`, op: ops.diskUsage, fields: new FieldWriter().string(path), timeoutMs: options.timeoutMs, signal });
    return { bytes: got.u64(), inodes: got.u64() };
  }

  async statfs(path: string, options: { timeoutMs: number }): Promise<FsFacts> {
    const got = await this.#ask({ doing: `statfs ${path}`, op: ops.statfs, fields: new FieldWriter().string(path), timeoutMs: options.timeoutMs });
    return { totalBytes: got.u64(), freeBytes: got.u64(), availableBytes: got.u64(), inodes: got.u64(), inodesFree: got.u64(), magic: got.u64() };
  }

  async netlink(request: { family: number; netns?: string; messages: Uint8Array; expectAnswers: number; timeoutMs: number }): Promise<Uint8Array[]> {
    const fields = new FieldWriter()
      .u32(request.family)
      .string(request.netns ?? '')
      .bytes(request.messages);
    fields.u32(request.expectAnswers).u32(request.timeoutMs);
    // The child hands over what came by its own deadline; the one given here is for a child that hangs.
    const got = await this.#ask({ doing: 'netlink', op: ops.netlink, fields, timeoutMs: request.timeoutMs + 1000 });
    const answers: Uint8Array[] = [];
    while (!got.done) answers.push(got.bytes());
    return answers;
  }

  async readFiles(paths: readonly string[], options: { maxBytesEach?: number } = {}): Promise<(Uint8Array | null)[]> {
    if (paths.length === 0) return [];
    const fields = new FieldWriter().u32(options.maxBytesEach ?? 256 * 1024).strings(paths);
    const got = await this.#ask({ doing: 'read files', op: ops.readFiles, fields, timeoutMs: defaultTimeoutMs });
    return paths.map(() => {
      const there = got.u8() === 1;
      const data = got.bytes();
      return there ? data : null;
    });
  }

  async writeFiles(writes: readonly { path: string; data: string }[]): Promise<(OpFailure | null)[]> {
    if (writes.length === 0) return [];
    const fields = new FieldWriter().u32(writes.length);
    for (const { path, data } of writes) fields.string(path).bytes(data);
    const got = await this.#ask({ doing: 'write files', op: ops.writeFiles, fields, timeoutMs: defaultTimeoutMs });
    return writes.map(({ path }) => {
      const errno = got.u32();
      return errno === 0 ? null : { errno: errnoName(errno), message: `write ${path}: ${errnoName(errno)}` };
    });
  }

  followKernelLog(onRecord: (record: string) => void): Promise<AsyncDisposable> {
    const onEvent = (fields: FieldReader): void => {
      const record = fields.bytes().toString();
      if (record !== '') onRecord(record);
    };
    const onLost = (error: unknown): void => this.#options.log.warn('the kernel log is not followed any more', { err: error });
    return this.#stand({ doing: 'follow the kernel log', op: ops.kernelLog, fields: new FieldWriter(), timeoutMs: 0, onEvent }, onLost);
  }

  async notify(state: string): Promise<void> {
    const socket = this.#options.notifySocket ?? '';
    if (socket === '') return;
    await this.#ask({
      doing: 'notify the service manager',
      op: ops.notify,
      fields: new FieldWriter().string(socket).string(state),
      timeoutMs: defaultTimeoutMs,
    });
  }

  async lock(path: string, onLost?: (error: unknown) => void, onWanted?: () => void): Promise<AsyncDisposable> {
    const lost = onLost ?? ((error: unknown): void => this.#options.log.error('a lock was lost', { path, err: error }));
    const onEvent = (event: FieldReader): void => {
      // The first event says that it is held.
      if (event.bytes().length > 0) onWanted?.();
    };
    const op = onWanted === undefined ? ops.lock : ops.lockWatched;
    return await this.#stand({ doing: `lock ${path}`, op, fields: new FieldWriter().string(path), timeoutMs: 0, onEvent }, lost);
  }

  async holdDescriptor(request: { path: string; bytes: Uint8Array; timeoutMs: number }, onLost?: (error: unknown) => void): Promise<AsyncDisposable> {
    const { path, bytes, timeoutMs } = request;
    const lost = onLost ?? ((error: unknown): void => this.#options.log.error('a descriptor was lost', { path, err: error }));
    const fields = new FieldWriter().string(path).bytes(bytes).u32(timeoutMs);
    return await this.#stand({ doing: `hold a descriptor of ${path}`, op: ops.holdDescriptor, fields, timeoutMs: 0 }, lost);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    for (const wake of this.#waiting.splice(0)) wake();
    await this.#connection?.close();
  }
}

/**
 * `Sys` by the C program: started at the first request, one process until disposed. When it dies, what was asked
 * fails with OpError `unavailable`, the next request starts another one, and locks are taken again.
 */
export function createSysClient(options: SysClientOptions): Sys & { readonly pid: number | undefined } {
  return new SysClient(options);
}
