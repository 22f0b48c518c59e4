import type { Side, Stamp } from '../core/connection.ts';

export type NoteKind = 'open' | 'data' | 'end' | 'close' | 'skip';
const KINDS: readonly NoteKind[] = ['open', 'data', 'end', 'close', 'skip'];

/** One thing that happened on a connection, with the time it was seen. */
export interface Note {
  readonly kind: NoteKind;
  readonly connection: number;
  readonly side: Side;
  readonly at: Stamp;
  readonly bytes: Uint8Array;
}

const HEAD_BYTES = 32;
/** What `data` leaves free, so that openings, ends and skips always find room. */
const RESERVE_BYTES = 64 * 1024;
/** Slots of the control words. */
const WRITTEN = 0;
const READ = 1;
const STOPPED = 2;
const NOTHING = new Uint8Array(0);

export interface RingMemory {
  readonly control: SharedArrayBuffer;
  readonly data: SharedArrayBuffer;
}

/** @param sizeBytes rounded up to whole heads */
export function createRingMemory(sizeBytes: number): RingMemory {
  const whole = Math.ceil((sizeBytes + RESERVE_BYTES) / HEAD_BYTES) * HEAD_BYTES;
  return { control: new SharedArrayBuffer(16), data: new SharedArrayBuffer(whole) };
}

function room(length: number): number {
  return Math.ceil(length / HEAD_BYTES) * HEAD_BYTES;
}

/** The side that must not wait: what does not fit is refused. */
export class RingWriter {
  readonly #control: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #words: Int32Array;
  readonly #times: Float64Array;
  #at = 0;

  constructor(memory: RingMemory) {
    this.#control = new Int32Array(memory.control);
    this.#bytes = new Uint8Array(memory.data);
    this.#words = new Int32Array(memory.data);
    this.#times = new Float64Array(memory.data);
  }

  get usedBytes(): number {
    return (this.#at - Atomics.load(this.#control, READ) + this.#bytes.length) % this.#bytes.length;
  }

  /** Whether it found room. The reader sleeps on until `wake`. */
  write(kind: NoteKind, connection: number, side: Side, at: Stamp, bytes: Uint8Array = NOTHING): boolean {
    const size = this.#bytes.length;
    const needed = HEAD_BYTES + room(bytes.length);
    const free = size - this.usedBytes - HEAD_BYTES;
    if (needed > free - (kind === 'data' ? RESERVE_BYTES : 0)) return false;
    const word = this.#at / 4;
    this.#words[word] = KINDS.indexOf(kind);
    this.#words[word + 1] = connection;
    this.#words[word + 2] = bytes.length;
    this.#words[word + 3] = side === 'client' ? 0 : 1;
    this.#times[this.#at / 8 + 2] = at.wallMs;
    this.#times[this.#at / 8 + 3] = at.monoMs;
    const start = (this.#at + HEAD_BYTES) % size;
    const first = Math.min(bytes.length, size - start);
    this.#bytes.set(bytes.subarray(0, first), start);
    if (first < bytes.length) this.#bytes.set(bytes.subarray(first), 0);
    this.#at = (this.#at + needed) % size;
    Atomics.store(this.#control, WRITTEN, this.#at);
    return true;
  }

  wake(): void {
    Atomics.notify(this.#control, WRITTEN);
  }

  /** Nothing more will come: the reader ends after what is there. */
  stop(): void {
    Atomics.store(this.#control, STOPPED, 1);
    this.wake();
  }
}

/** The side that may wait, and so has a thread of its own. */
export class RingReader {
  readonly #control: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #words: Int32Array;
  readonly #times: Float64Array;

  constructor(memory: RingMemory) {
    this.#control = new Int32Array(memory.control);
    this.#bytes = new Uint8Array(memory.data);
    this.#words = new Int32Array(memory.data);
    this.#times = new Float64Array(memory.data);
  }

  /** The next note, a copy; `idle` after `patienceMs` without one; `ended` when the writer has stopped. Blocks the thread. */
  next(patienceMs: number): Note | 'idle' | 'ended' {
    const at = Atomics.load(this.#control, READ);
    if (Atomics.load(this.#control, WRITTEN) === at) {
      if (Atomics.load(this.#control, STOPPED) === 1) return Atomics.load(this.#control, WRITTEN) === at ? 'ended' : this.next(patienceMs);
      Atomics.wait(this.#control, WRITTEN, at, patienceMs);
      if (Atomics.load(this.#control, WRITTEN) === at) return 'idle';
    }
    const size = this.#bytes.length;
    const word = at / 4;
    const length = this.#words[word + 2] ?? 0;
    const bytes = new Uint8Array(length);
    const start = (at + HEAD_BYTES) % size;
    const first = Math.min(length, size - start);
    bytes.set(this.#bytes.subarray(start, start + first));
    if (first < length) bytes.set(this.#bytes.subarray(0, length - first), first);
    const note: Note = {
      kind: KINDS[this.#words[word] ?? 0] ?? 'skip',
      connection: this.#words[word + 1] ?? 0,
      side: this.#words[word + 3] === 0 ? 'client' : 'server',
      at: { wallMs: this.#times[at / 8 + 2] ?? 0, monoMs: this.#times[at / 8 + 3] ?? 0 },
      bytes,
    };
    Atomics.store(this.#control, READ, (at + HEAD_BYTES + room(length)) % size);
    return note;
  }
}
