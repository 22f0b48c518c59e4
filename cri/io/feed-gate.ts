import type { MessagePort } from 'node:worker_threads';

/** Slots that the tap's threads share. */
const SLOT = { viewers: 0, epoch: 1, pendingBytes: 2, calls: 3, blind: 4, recording: 5 } as const;
const FILE_BYTES_AT = 32;
/** What may wait between the decoder and the feed's thread; one entry always finds room when nothing waits. */
const PENDING_BYTES = 8 * 1024 * 1024;
const NEWLINE = 10;

/** What the decoder hands to the feed's thread: a line for everybody, or what viewers who came up to `newcomers` begin with. */
export type FeedParcel = { readonly bytes: Uint8Array; readonly newcomers?: number } | { readonly lost: number };

/** One end of the way from the decoder to the feed's thread. */
export interface FeedEnd {
  readonly memory: SharedArrayBuffer;
  readonly port: MessagePort;
}

export function createFeedMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer(64);
}

export interface FeedNumbers {
  readonly calls: number;
  readonly blindConnections: number;
  readonly viewers: number;
  /** Whether a recording goes on, and what it holds. */
  readonly recording: boolean;
  readonly fileBytes: number;
}

export function feedNumbers(memory: SharedArrayBuffer): FeedNumbers {
  const slots = new Int32Array(memory);
  return {
    calls: Atomics.load(slots, SLOT.calls),
    blindConnections: Atomics.load(slots, SLOT.blind),
    viewers: Atomics.load(slots, SLOT.viewers),
    recording: Atomics.load(slots, SLOT.recording) === 1,
    fileBytes: new Float64Array(memory, FILE_BYTES_AT)[0] ?? 0,
  };
}

/** The decoder's end: never waits. What finds no room is lost, and counted. */
export class FeedOutlet {
  readonly #slots: Int32Array;
  readonly #fileBytes: Float64Array;
  readonly #port: MessagePort;
  #epoch = 0;
  #lost = 0;

  constructor({ memory, port }: FeedEnd) {
    this.#slots = new Int32Array(memory);
    this.#fileBytes = new Float64Array(memory, FILE_BYTES_AT);
    this.#port = port;
  }

  /** Whether anybody looks. */
  get wanted(): boolean {
    return Atomics.load(this.#slots, SLOT.viewers) > 0;
  }

  /** The mark of viewers who came since this was asked; 0 without any. */
  newcomers(): number {
    const epoch = Atomics.load(this.#slots, SLOT.epoch);
    if (epoch === this.#epoch) return 0;
    this.#epoch = epoch;
    return epoch;
  }

  /** @param newcomers the mark of those alone who are to get it */
  send(text: string, newcomers = 0): void {
    // Of its own memory, as it is handed over and not copied.
    const bytes = new Uint8Array(Buffer.byteLength(text) + 1);
    bytes[new TextEncoder().encodeInto(text, bytes).written] = NEWLINE;
    const pending = Atomics.load(this.#slots, SLOT.pendingBytes);
    if (pending > 0 && pending + bytes.length > PENDING_BYTES && newcomers === 0) {
      this.#lost += 1;
      return;
    }
    if (this.#lost > 0) this.#port.postMessage({ lost: this.#lost } satisfies FeedParcel, []);
    this.#lost = 0;
    Atomics.add(this.#slots, SLOT.pendingBytes, bytes.length);
    this.#port.postMessage({ bytes, ...(newcomers === 0 ? {} : { newcomers }) } satisfies FeedParcel, [bytes.buffer]);
  }

  count(numbers: Pick<FeedNumbers, 'calls' | 'blindConnections' | 'recording' | 'fileBytes'>): void {
    Atomics.store(this.#slots, SLOT.calls, numbers.calls);
    Atomics.store(this.#slots, SLOT.blind, numbers.blindConnections);
    Atomics.store(this.#slots, SLOT.recording, numbers.recording ? 1 : 0);
    this.#fileBytes[0] = numbers.fileBytes;
  }

  /** Nothing more comes. */
  close(): void {
    if (this.#lost > 0) this.#port.postMessage({ lost: this.#lost } satisfies FeedParcel, []);
    this.#port.close();
  }
}

/** The end of the thread that has an event loop. */
export class FeedInlet {
  readonly #slots: Int32Array;

  constructor(memory: SharedArrayBuffer) {
    this.#slots = new Int32Array(memory);
  }

  taken(bytes: number): void {
    Atomics.sub(this.#slots, SLOT.pendingBytes, bytes);
  }

  /** Says that one viewer came; the mark by which it is told apart from those before. */
  viewerCame(viewers: number): number {
    Atomics.store(this.#slots, SLOT.viewers, viewers);
    return Atomics.add(this.#slots, SLOT.epoch, 1) + 1;
  }

  viewersLeft(viewers: number): void {
    Atomics.store(this.#slots, SLOT.viewers, viewers);
  }
}
