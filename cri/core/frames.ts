import { latin1 } from './hpack.ts';

/** HTTP/2 frame types that are read (RFC 9113, section 6); others pass unread. */
export const FRAME = { data: 0, headers: 1, rstStream: 3, settings: 4, pushPromise: 5, goaway: 7, continuation: 9 } as const;
export const FLAG = { endStream: 0x1, endHeaders: 0x4, padded: 0x8, priority: 0x20 } as const;

const PREFACE = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
const HEAD_BYTES = 9;
/** Of frames that are read whole; RFC 9113 lets a peer ask for more, gRPC peers do not. */
const MAX_WHOLE_BYTES = 1 << 20;

/** What one direction of a connection carries, in order. */
export interface FrameSink {
  /** A frame that was read whole: all but DATA. */
  frame(type: number, flags: number, stream: number, payload: Uint8Array): void;
  /** A piece of a DATA frame's payload, padding left out; valid during the call only. */
  data(stream: number, piece: Uint8Array): void;
  /** A DATA frame has ended. */
  dataEnd(stream: number, flags: number): void;
}

/** Why the bytes are no HTTP/2 that can be followed. */
export class FrameError extends Error {
  override readonly name = 'FrameError';
}

/** Cuts one direction's bytes into frames, whatever pieces they come in. Holds one frame head or one small frame at most. */
export class FrameReader {
  readonly #sink: FrameSink;
  readonly #head = new Uint8Array(HEAD_BYTES);
  #headBytes = 0;
  #prefaceLeft: number;
  #type = 0;
  #flags = 0;
  #stream = 0;
  /** Payload bytes still to come. */
  #left = 0;
  #padding = 0;
  #padKnown = true;
  #whole: Uint8Array | null = null;
  #frames = 0;

  constructor(from: 'client' | 'server', sink: FrameSink) {
    this.#sink = sink;
    this.#prefaceLeft = from === 'client' ? PREFACE.length : 0;
  }

  /** Takes the next bytes. Throws FrameError, after which the reader is of no more use. */
  feed(bytes: Uint8Array): void {
    let at = this.#preface(bytes);
    while (at < bytes.length) {
      if (this.#headBytes < HEAD_BYTES) {
        const taken = Math.min(HEAD_BYTES - this.#headBytes, bytes.length - at);
        this.#head.set(bytes.subarray(at, at + taken), this.#headBytes);
        this.#headBytes += taken;
        at += taken;
        if (this.#headBytes === HEAD_BYTES) this.#begin();
        continue;
      }
      const piece = bytes.subarray(at, at + this.#left);
      at += piece.length;
      this.#payload(piece);
    }
  }

  #preface(bytes: Uint8Array): number {
    if (this.#prefaceLeft === 0) return 0;
    const done = PREFACE.length - this.#prefaceLeft;
    const taken = Math.min(this.#prefaceLeft, bytes.length);
    if (latin1(bytes.subarray(0, taken)) !== PREFACE.slice(done, done + taken))
      throw new FrameError('it does not begin as HTTP/2 does: another protocol, or a connection that was there before');
    this.#prefaceLeft -= taken;
    return taken;
  }

  #begin(): void {
    const [a = 0, b = 0, c = 0, type = 0, flags = 0, d = 0, e = 0, f = 0, g = 0] = this.#head;
    this.#left = (a << 16) | (b << 8) | c;
    this.#type = type;
    this.#flags = flags;
    this.#stream = ((d & 0x7f) << 24) | (e << 16) | (f << 8) | g;
    if (this.#frames++ === 0 && type !== FRAME.settings)
      throw new FrameError('its first frame is not SETTINGS: another protocol, or a connection that was there before');
    if (type === FRAME.data) {
      this.#padding = 0;
      this.#padKnown = (flags & FLAG.padded) === 0;
    } else {
      if (this.#left > MAX_WHOLE_BYTES) throw new FrameError(`a frame of type ${type} with ${this.#left} bytes`);
      this.#whole = new Uint8Array(this.#left);
    }
    if (this.#left === 0) this.#end();
  }

  #payload(given: Uint8Array): void {
    let piece = given;
    if (this.#whole !== null) this.#whole.set(piece, this.#whole.length - this.#left);
    else {
      if (!this.#padKnown) {
        this.#padding = piece[0] ?? 0;
        if (this.#padding >= this.#left) throw new FrameError('a frame with more padding than bytes');
        this.#padKnown = true;
        piece = piece.subarray(1);
        this.#left -= 1;
      }
      const content = Math.min(piece.length, this.#left - this.#padding);
      if (content > 0) this.#sink.data(this.#stream, piece.subarray(0, content));
    }
    this.#left -= piece.length;
    if (this.#left === 0) this.#end();
  }

  #end(): void {
    this.#headBytes = 0;
    const whole = this.#whole;
    this.#whole = null;
    if (whole === null) this.#sink.dataEnd(this.#stream, this.#flags);
    else this.#sink.frame(this.#type, this.#flags, this.#stream, whole);
  }
}

/** A HEADERS or PUSH_PROMISE payload without padding, priority and promised stream. Throws FrameError. */
export function headerFragment(type: number, flags: number, payload: Uint8Array): Uint8Array {
  let start = 0;
  let end = payload.length;
  if ((flags & FLAG.padded) !== 0) {
    end -= payload[0] ?? 0;
    start = 1;
  }
  if (type === FRAME.pushPromise) start += 4;
  else if ((flags & FLAG.priority) !== 0) start += 5;
  if (start > end) throw new FrameError('a header frame that is shorter than it says');
  return payload.subarray(start, end);
}
