import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs';
import { zstdCompressSync } from 'node:zlib';
import { OpError } from '../../base/errors.ts';
import type { RecordedEntry } from '../core/recording.ts';

/** A zstd skippable frame: readers of zstd pass over it, ours finds the next frame's size in it. */
export const SIZE_MAGIC = 0x184d2a5a;
export const SIZE_HEAD_BYTES = 12;
/** A frame is written when it holds so much, or when the writer's owner says `flush`. */
const FRAME_BYTES = 256 * 1024;

/**
 * Appends records to a file as frames of zstd, each whole in itself: what was flushed before a kill can be read.
 * Calls block: they belong into a thread of their own.
 */
export class RecordingWriter implements Disposable {
  readonly #fd: number;
  readonly #maxBytes: number;
  #lines: string[] = [];
  #lineBytes = 0;
  #writtenBytes: number;

  /** Throws OpError `exists` when there is a file and it is not to be added to. */
  constructor(path: string, options: { maxBytes: number; append: boolean }) {
    const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW | (options.append ? 0 : constants.O_EXCL);
    try {
      this.#fd = openSync(path, flags, 0o600);
    } catch (cause) {
      const { code, message } = cause as NodeJS.ErrnoException;
      if (code === 'EEXIST')
        throw new OpError('exists', `record to ${path}`, 'there is a file already', { cause, advice: 'name another, or add to it with --append' });
      throw new OpError(code === 'EACCES' ? 'denied' : 'failed', `record to ${path}`, message, { cause, advice: 'the folder must be there and writable' });
    }
    this.#maxBytes = options.maxBytes;
    this.#writtenBytes = fstatSync(this.#fd).size;
  }

  get sizeBytes(): number {
    return this.#writtenBytes;
  }

  /** Whether the file has reached its size; what is added after that is lost. */
  get full(): boolean {
    return this.#writtenBytes >= this.#maxBytes;
  }

  add(entry: RecordedEntry): void {
    this.addLine(JSON.stringify(entry));
  }

  /** An entry that is text already. */
  addLine(line: string): void {
    this.#lines.push(line);
    this.#lineBytes += line.length;
    if (this.#lineBytes >= FRAME_BYTES) this.flush();
  }

  /** Hands everything to the kernel. */
  flush(): void {
    if (this.#lines.length === 0) return;
    const frame = zstdCompressSync(`${this.#lines.join('\n')}\n`);
    const head = Buffer.alloc(SIZE_HEAD_BYTES);
    head.writeUInt32LE(SIZE_MAGIC, 0);
    head.writeUInt32LE(4, 4);
    head.writeUInt32LE(frame.length, 8);
    const whole = Buffer.concat([head, frame]);
    for (let at = 0; at < whole.length;) at += writeSync(this.#fd, whole, at);
    this.#writtenBytes += whole.length;
    this.#lines = [];
    this.#lineBytes = 0;
  }

  [Symbol.dispose](): void {
    this.flush();
    closeSync(this.#fd);
  }
}
