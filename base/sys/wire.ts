import { assert } from '../assert.ts';

/** The frames of `sys/frame.c`, seen from the other side. All numbers are little endian. */
export const protocolVersion = 2;
export const maxFrameBytes = 64 * 1024 * 1024;

export const ops = {
  hello: 1,
  cancel: 2,
  run: 3,
  mount: 4,
  umount: 5,
  bind: 6,
  readBeneath: 7,
  mkdirBeneath: 8,
  fileOps: 9,
  removeTree: 10,
  chownTree: 11,
  diskUsage: 12,
  statfs: 13,
  netlink: 14,
  readFiles: 15,
  writeFiles: 16,
  kernelLog: 17,
  notify: 18,
  lock: 19,
  holdDescriptor: 20,
  lockWatched: 21,
} as const;

/** Codes of file operations inside `fileOps`, as in `sys/fileops.c`. */
export const fileOpCodes = { mkdir: 0, write: 1, symlink: 2, rename: 3, unlink: 4, chmod: 5, chown: 6, read: 7, readlink: 8, list: 9, stat: 10 } as const;
export const linkCodes = { refuse: 0, beneath: 1, follow: 2 } as const;

export const kinds = { done: 0, fail: 1, event: 2 } as const;

const headBytes = 13;

/** Collects a request's fields in order, behind the room its head needs. */
export class FieldWriter {
  #data = Buffer.allocUnsafe(256);
  #length = headBytes;

  /** Makes room for `more` bytes and returns where they go. */
  #reserve(more: number): number {
    const at = this.#length;
    this.#length += more;
    if (this.#length > this.#data.length) {
      const larger = Buffer.allocUnsafe(Math.max(this.#length, this.#data.length * 2));
      this.#data.copy(larger, 0, 0, at);
      this.#data = larger;
    }
    return at;
  }

  u8(value: number): this {
    const at = this.#reserve(1);
    this.#data.writeUInt8(value, at);
    return this;
  }

  u32(value: number): this {
    const at = this.#reserve(4);
    this.#data.writeUInt32LE(value >>> 0, at);
    return this;
  }

  u64(value: number): this {
    const at = this.#reserve(8);
    this.#data.writeBigUInt64LE(BigInt(value), at);
    return this;
  }

  bytes(value: Uint8Array | string): this {
    const length = typeof value === 'string' ? Buffer.byteLength(value) : value.length;
    this.u32(length);
    const at = this.#reserve(length);
    if (typeof value === 'string') this.#data.write(value, at);
    else this.#data.set(value, at);
    return this;
  }

  /** A C string: the caller's text must not hold a NUL. */
  string(value: string): this {
    return this.bytes(value).u8(0);
  }

  strings(values: readonly string[]): this {
    this.u32(values.length);
    for (const value of values) this.string(value);
    return this;
  }

  /** The whole frame; `timeoutMs` 0 is none. */
  frame(id: number, op: number, timeoutMs: number): Buffer {
    this.#data.writeUInt32LE(this.#length - 4, 0);
    this.#data.writeUInt32LE(id, 4);
    this.#data.writeUInt32LE(Math.min(Math.ceil(timeoutMs), 0xffffffff), 8);
    this.#data.writeUInt8(op, 12);
    return this.#data.subarray(0, this.#length);
  }
}

/** Reads an answer's fields in order; an answer that is too short is a bug on one of the two sides. */
export class FieldReader {
  readonly #data: Buffer;
  #at = 0;

  constructor(data: Buffer) {
    this.#data = data;
  }

  #take(length: number): number {
    const at = this.#at;
    assert(at + length <= this.#data.length, 'sys: an answer is shorter than its fields');
    this.#at += length;
    return at;
  }

  u8(): number {
    return this.#data.readUInt8(this.#take(1));
  }

  u32(): number {
    return this.#data.readUInt32LE(this.#take(4));
  }

  u64(): number {
    return Number(this.#data.readBigUInt64LE(this.#take(8)));
  }

  bytes(): Buffer {
    const length = this.u32();
    const at = this.#take(length);
    return this.#data.subarray(at, at + length);
  }

  get done(): boolean {
    return this.#at === this.#data.length;
  }
}

export interface Answer {
  id: number;
  kind: number;
  fields: FieldReader;
}

/** Cuts a byte stream into answers. Keeps pieces apart until a frame is whole, so that large answers are copied once. */
export class AnswerSplitter {
  #pieces: Buffer[] = [];
  #length = 0;

  *push(chunk: Buffer): Generator<Answer> {
    this.#pieces.push(chunk);
    this.#length += chunk.length;
    for (;;) {
      const first = this.#joined(4);
      if (first === undefined) return;
      const size = first.readUInt32LE(0);
      assert(size >= 5 && size <= maxFrameBytes + 64, 'sys: a frame of impossible length');
      const data = this.#joined(size + 4);
      if (data === undefined) return;
      const rest = data.subarray(size + 4);
      this.#pieces = rest.length === 0 ? [] : [rest];
      this.#length = rest.length;
      yield { id: data.readUInt32LE(4), kind: data.readUInt8(8), fields: new FieldReader(data.subarray(9, size + 4)) };
    }
  }

  /** All pieces as one buffer once there are `length` bytes. */
  #joined(length: number): Buffer | undefined {
    if (this.#length < length) return undefined;
    if ((this.#pieces[0]?.length ?? 0) < length) this.#pieces = [Buffer.concat(this.#pieces)];
    return this.#pieces[0];
  }
}
