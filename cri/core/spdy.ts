import { joined } from '../../base/bytes.ts';
import { ByteQueue } from './bytes.ts';

/*
 * As much of SPDY/3.1 as runtimes' streaming servers speak: streams with one header each, data both ways, pings.
 *
 * Header blocks pass through one zlib stream for the whole connection, primed with a dictionary. What is sent here uses
 * neither: blocks go out as stored ones, which any inflater takes, each followed by the empty one that makes it give
 * out what it has. What comes in has no header that matters.
 */

const FLAG_FIN = 1;
const [SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GOAWAY] = [1, 2, 3, 6, 7] as const;
/** An empty stored block. */
const FLUSH = Uint8Array.of(0, 0, 0, 0xff, 0xff);
/** Larger data goes out in several frames, so that streams take turns. */
const MAX_DATA_BYTES = 32 * 1024;

export type SpdyEvent =
  | { readonly type: 'data'; readonly stream: number; readonly bytes: Uint8Array; readonly isLast: boolean }
  /** The other side sends no more on it, for it never will or has refused it. */
  | { readonly type: 'ended'; readonly stream: number; readonly refused: boolean }
  /** To be sent back as it is. */
  | { readonly type: 'ping'; readonly id: number }
  | { readonly type: 'goaway' };

function control(type: number, flags: number, body: Uint8Array): Uint8Array {
  const frame = new Uint8Array(8 + body.length);
  const view = new DataView(frame.buffer);
  view.setUint16(0, 0x8003);
  view.setUint16(2, type);
  view.setUint32(4, (flags << 24) | body.length);
  frame.set(body, 8);
  return frame;
}

function ascii(text: string): Uint8Array {
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

function number(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

/** What a client says; stream ids are odd and rise. */
export class SpdyWriter {
  #isFirst = true;

  /** Opens a stream. */
  open(stream: number, name: string, value: string): Uint8Array {
    const block = joined([number(1), number(name.length), ascii(name), number(value.length), ascii(value)]);
    const stored = new Uint8Array(5);
    const view = new DataView(stored.buffer);
    view.setUint16(1, block.length, true);
    view.setUint16(3, ~block.length & 0xffff, true);
    const zlibHead = this.#isFirst ? Uint8Array.of(0x78, 0x01) : new Uint8Array(0);
    this.#isFirst = false;
    return control(SYN_STREAM, 0, joined([number(stream), number(0), new Uint8Array(2), zlibHead, stored, block, FLUSH]));
  }

  data(stream: number, bytes: Uint8Array, isLast = false): Uint8Array[] {
    const frames: Uint8Array[] = [];
    let at = 0;
    do {
      const piece = bytes.subarray(at, at + MAX_DATA_BYTES);
      at += MAX_DATA_BYTES;
      const head = new Uint8Array(8);
      const view = new DataView(head.buffer);
      view.setUint32(0, stream);
      view.setUint32(4, piece.length);
      if (isLast && at >= bytes.length) view.setUint8(4, FLAG_FIN);
      frames.push(head, piece);
    } while (at < bytes.length);
    return frames;
  }

  pong(id: number): Uint8Array {
    return control(PING, 0, number(id));
  }

  goaway(): Uint8Array {
    return control(GOAWAY, 0, new Uint8Array(8));
  }
}

/** Bytes as they come → what they say. A frame is 16 MiB at most by its own format. */
export class SpdyReader {
  readonly #queue = new ByteQueue();

  push(bytes: Uint8Array): SpdyEvent[] {
    this.#queue.push(bytes);
    const events: SpdyEvent[] = [];
    while (this.#queue.length >= 8) {
      const head = this.#queue.peek(8);
      const view = new DataView(head.buffer, head.byteOffset, 8);
      const flags = view.getUint8(4);
      const length = view.getUint32(4) & 0xffffff;
      if (this.#queue.length < 8 + length) break;
      const first = view.getUint32(0);
      this.#queue.take(8);
      const body = this.#queue.take(length);
      if (first < 0x8000_0000) events.push({ type: 'data', stream: first, bytes: body, isLast: (flags & FLAG_FIN) !== 0 });
      else events.push(...this.#control(first & 0xffff, flags, body));
    }
    return events;
  }

  #control(type: number, flags: number, body: Uint8Array): SpdyEvent[] {
    if (type === GOAWAY) return [{ type: 'goaway' }];
    if (body.length < 4) return [];
    const id = new DataView(body.buffer, body.byteOffset, 4).getUint32(0) & 0x7fff_ffff;
    if (type === PING) return [{ type: 'ping', id }];
    if (type === RST_STREAM) return [{ type: 'ended', stream: id, refused: true }];
    return type === SYN_REPLY && (flags & FLAG_FIN) !== 0 ? [{ type: 'ended', stream: id, refused: false }] : [];
  }
}
