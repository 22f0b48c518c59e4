import { constants, watch } from 'node:fs';
import { open, readdir, type FileHandle } from 'node:fs/promises';
import { basename, dirname, relative } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { ByteSink, LogFormatter, type LogFilter } from '../core/log-lines.ts';

export interface ReadLogOptions extends LogFilter {
  clock: Clock;
  /** The file that the runtime writes now. */
  path: string;
  /** podLogsDir: below it no component may be a symbolic link, for a pod may have planted it there. */
  root: string;
  follow: boolean;
  /** null: from the beginning. Counts entries of the file. */
  tailLines: number | null;
  limitBytes: number | null;
  /** Whether the container may still write; asked when the end of the file is reached. */
  isRunning: () => boolean;
}

/** Takes one piece; resolves when the reader can take another. */
export type LogSink = (piece: Uint8Array) => Promise<void>;

const chunkBytes = 128 * 1024;
/** A line longer than this is no line of the CRI format (runtimes cut at 16 KiB). */
const lineBytesMax = 1024 * 1024;
const pollMs = 500;

/**
 * Streams a container's log to `sink`: the end of the current file alone, or with `follow` everything until the
 * container has ended, over rotations. Throws OpError `not-found` when there is no such file.
 */
export async function readLog(options: ReadLogOptions, sink: LogSink, signal: AbortSignal): Promise<void> {
  let file = await openLog(options.root, options.path);
  try {
    const start = options.tailLines === null ? 0 : await tailOffset(file, options.tailLines);
    const reader = new LineReader(options, sink);
    let position = await reader.drain(file, start, signal);
    if (!options.follow) return await reader.finish();
    await using changes = watchDirectory(dirname(options.path), options.clock);
    while (!signal.aborted && !reader.full) {
      // Asked before the last read: what was written until then is in the file.
      const running = options.isRunning();
      const before = position;
      position = await reader.drain(file, position, signal);
      const next = await successor(options, file);
      if (next !== null) {
        // The runtime writes to the new file already; what it wrote to the old one meanwhile is read once more.
        await reader.drain(file, position, signal);
        await file.close();
        file = next;
        position = 0;
        continue;
      }
      if (!running && position === before) return await reader.finish();
      if (position === before) await changes.wait(pollMs, signal);
    }
  } finally {
    await file.close();
  }
}

/** Cuts a file into lines and passes on what the filter leaves. */
class LineReader {
  readonly #sink: LogSink;
  readonly #formatter: LogFormatter;
  #left: number;
  readonly #out = new ByteSink(chunkBytes);
  #rest: Buffer = Buffer.alloc(0);

  constructor(options: ReadLogOptions, sink: LogSink) {
    this.#sink = sink;
    this.#formatter = new LogFormatter(options);
    this.#left = options.limitBytes ?? Number.POSITIVE_INFINITY;
  }

  /** The byte limit is reached. */
  get full(): boolean {
    return this.#left <= 0;
  }

  /** Reads from `position` to the present end and returns where that is. */
  async drain(file: FileHandle, position: number, signal: AbortSignal): Promise<number> {
    const { size } = await file.stat();
    // Somebody cut the file short: what comes now is new.
    let at = size < position ? 0 : position;
    while (!this.full && !signal.aborted) {
      const chunk = Buffer.allocUnsafe(chunkBytes);
      const { bytesRead } = await file.read(chunk, 0, chunkBytes, at);
      if (bytesRead === 0) break;
      at += bytesRead;
      await this.#take(chunk.subarray(0, bytesRead));
    }
    return at;
  }

  /** A last line without its newline counts as a line. */
  async finish(): Promise<void> {
    this.#formatter.format(this.#rest, 0, this.#rest.length, this.#out);
    this.#rest = Buffer.alloc(0);
    await this.#pass();
  }

  async #take(chunk: Buffer): Promise<void> {
    const data = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let start = 0;
    for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
      this.#formatter.format(data, start, end, this.#out);
      start = end + 1;
    }
    const rest = data.subarray(start);
    this.#rest = rest.length > lineBytesMax ? Buffer.alloc(0) : Buffer.from(rest);
    await this.#pass();
  }

  async #pass(): Promise<void> {
    if (this.#out.length === 0 || this.full) return;
    const all = this.#out.take();
    const cut = all.length > this.#left ? all.subarray(0, this.#left) : all;
    this.#left -= cut.length;
    await this.#sink(cut);
  }
}

/** Where the last `lines` lines begin. */
async function tailOffset(file: FileHandle, lines: number): Promise<number> {
  const { size } = await file.stat();
  if (lines <= 0) return size;
  const block = Buffer.allocUnsafe(chunkBytes);
  let seen = 0;
  for (let end = size; end > 0;) {
    const start = Math.max(0, end - chunkBytes);
    const { bytesRead } = await file.read(block, 0, end - start, start);
    for (let at = bytesRead - 1; at >= 0; at--) {
      // The newline that ends the file ends the last line; it does not begin one.
      if (block[at] !== 10 || start + at === size - 1) continue;
      seen++;
      if (seen === lines) return start + at + 1;
    }
    end = start;
  }
  return 0;
}

/**
 * The file that follows the open one: the next rotated one that has not been compressed yet, else the one at the
 * log's path. Null while the open one still is the newest, and between the rename and the runtime's reopening.
 */
async function successor(options: ReadLogOptions, file: FileHandle): Promise<FileHandle | null> {
  const own = await file.stat();
  const current = await openLog(options.root, options.path).catch(() => null);
  if (current === null) return null;
  const facts = await current.stat();
  if (facts.ino === own.ino && facts.dev === own.dev) {
    await current.close();
    return null;
  }
  const name = basename(options.path);
  const rotated = (await readdir(dirname(options.path)).catch(() => [] as string[]))
    .filter((entry) => entry.startsWith(`${name}.`) && !/\.(gz|tmp)$/.test(entry))
    .toSorted();
  let found = false;
  for (const entry of rotated) {
    const candidate = await openLog(options.root, `${options.path}${entry.slice(name.length)}`).catch(() => null);
    if (candidate === null) continue;
    if (found) {
      await current.close();
      return candidate;
    }
    found = (await candidate.stat()).ino === own.ino;
    await candidate.close();
  }
  return current;
}

/** Opens for reading without following a symbolic link anywhere below `root`; regular files only, and never waits. */
export async function openLog(root: string, path: string): Promise<FileHandle> {
  const inside = relative(root, path);
  const parts = inside.split('/');
  if (inside === '' || inside.startsWith('/') || parts.includes('..')) throw new OpError('denied', `open log ${path}`, `it is not below ${root}`);
  let directory = await openPart(root, path, constants.O_DIRECTORY);
  try {
    for (const part of parts.slice(0, -1)) {
      const next = await openPart(`/proc/self/fd/${directory.fd}/${part}`, path, constants.O_DIRECTORY | constants.O_NOFOLLOW);
      await directory.close();
      directory = next;
    }
    const file = await openPart(`/proc/self/fd/${directory.fd}/${parts.at(-1)}`, path, constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if (!(await file.stat()).isFile()) {
      await file.close();
      throw new OpError('denied', `open log ${path}`, 'it is not a regular file');
    }
    return file;
  } finally {
    await directory.close();
  }
}

async function openPart(part: string, path: string, flags: number): Promise<FileHandle> {
  try {
    return await open(part, constants.O_RDONLY | flags);
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const isGone = code === 'ENOENT';
    throw new OpError(isGone ? 'not-found' : 'denied', `open log ${path}`, isGone ? 'no such file' : `${code} at ${basename(part)}`, { cause });
  }
}

/** Wakes on changes in the directory; the bounded wait is what correctness rests on. */
function watchDirectory(directory: string, clock: Clock): AsyncDisposable & { wait(ms: number, signal: AbortSignal): Promise<void> } {
  let wake: () => void = () => undefined;
  let changed = false;
  let watcher: ReturnType<typeof watch> | undefined;
  try {
    watcher = watch(directory, { persistent: false }, () => {
      changed = true;
      wake();
    });
    watcher.on('error', () => watcher?.close());
  } catch {
    // Out of inotify watches: the poll alone serves.
  }
  return {
    async wait(ms, signal) {
      if (changed) {
        changed = false;
        return;
      }
      const woken = new AbortController();
      wake = () => woken.abort();
      await clock.sleep(ms, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
      changed = false;
    },
    async [Symbol.asyncDispose]() {
      watcher?.close();
    },
  };
}
