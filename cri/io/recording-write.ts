import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync, writeSync } from 'node:fs';
import { constants as zlib, zstdCompressSync } from 'node:zlib';
import { OpError } from '../../base/errors.ts';
import type { RecordedEntry } from '../core/recording.ts';

/** A zstd skippable frame: readers of zstd pass over it, ours finds the next frame's size in it. */
export const SIZE_MAGIC = 0x184d2a5a;
export const SIZE_HEAD_BYTES = 12;
/** A frame is written when it holds so much, or when the writer's owner says `flush`. */
const FRAME_BYTES = 256 * 1024;

/** What the frames of a recording take that are whole. Throws OpError `invalid` for a file that is something else. */
function wholeBytes(fd: number, sizeBytes: number, path: string): number {
  const head = Buffer.alloc(SIZE_HEAD_BYTES);
  for (let at = 0; ;) {
    if (at + SIZE_HEAD_BYTES > sizeBytes) return at;
    readSync(fd, head, 0, SIZE_HEAD_BYTES, at);
    if (head.readUInt32LE(0) !== SIZE_MAGIC || head.readUInt32LE(4) !== 4)
      throw new OpError('invalid', `record to ${path}`, 'there is a file that is no recording, or a damaged one', { advice: 'name another' });
    const next = at + SIZE_HEAD_BYTES + head.readUInt32LE(8);
    if (next > sizeBytes) return at;
    at = next;
  }
}

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

  /**
   * Throws OpError `exists` when there is a file and it is not to be added to, and `invalid` when it is no recording. The
   * cut end of one whose recorder was killed is taken off: what came after it could not be found.
   */
  constructor(path: string, options: { maxBytes: number; append: boolean }) {
    const flags =
      (options.append ? constants.O_RDWR : constants.O_WRONLY) |
      constants.O_CREAT |
      constants.O_APPEND |
      constants.O_NOFOLLOW |
      (options.append ? 0 : constants.O_EXCL);
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
    if (this.#writtenBytes === 0) return;
    try {
      const whole = wholeBytes(this.#fd, this.#writtenBytes, path);
      if (whole === 0) throw new OpError('invalid', `record to ${path}`, 'there is a file that is no recording', { advice: 'name another' });
      if (whole < this.#writtenBytes) ftruncateSync(this.#fd, whole);
      this.#writtenBytes = whole;
    } catch (error) {
      closeSync(this.#fd);
      throw error;
    }
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

  /** Hands everything to the kernel. Throws when the disk takes it no more: what was to be written is lost then, and the file stays whole. */
  flush(): void {
    if (this.#lines.length === 0) return;
    const text = `${this.#lines.join('\n')}\n`;
    this.#lines = [];
    this.#lineBytes = 0;
    const frame = zstdCompressSync(text, { params: { [zlib.ZSTD_c_checksumFlag]: 1 } });
    const head = Buffer.alloc(SIZE_HEAD_BYTES);
    head.writeUInt32LE(SIZE_MAGIC, 0);
    head.writeUInt32LE(4, 4);
    head.writeUInt32LE(frame.length, 8);
    const whole = Buffer.concat([head, frame]);
    let written = 0;
    try {
      while (written < whole.length) written += writeSync(this.#fd, whole, written);
    } catch (error) {
      // Half a frame would hide what is added after it.
      if (written > 0) ftruncateSync(this.#fd, this.#writtenBytes);
      throw error;
    }
    this.#writtenBytes += whole.length;
  }

  [Symbol.dispose](): void {
    try {
      this.flush();
    } finally {
      closeSync(this.#fd);
    }
  }
}
