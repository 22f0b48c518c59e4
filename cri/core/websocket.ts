import { OpError } from '../../base/errors.ts';
import { joined } from '../../base/bytes.ts';
import { ByteQueue } from './bytes.ts';

/** As much of RFC 6455 as exec, attach and port-forward need, on either side of a connection. */

const [CONTINUES, TEXT, BINARY, CLOSE, PING, PONG] = [0, 1, 2, 8, 9, 10] as const;
/** Larger ones are refused: servers send what they read, 32 KiB at a time. */
const MAX_MESSAGE_BYTES = 32 * 1024 * 1024;
/** Frames of one message: nobody who means well cuts a message into smaller ones. */
const MAX_PARTS = 64 * 1024;
/** Of a frame that is about the connection itself (RFC 6455, section 5.5). */
const MAX_CONTROL_BYTES = 125;

export type WebSocketEvent =
  | { readonly type: 'message'; readonly bytes: Uint8Array }
  | { readonly type: 'ping'; readonly bytes: Uint8Array }
  | { readonly type: 'close'; readonly reason: string };

/** One whole frame: a client's with `mask`, four bytes of chance; a server's without. */
function frame(opcode: number, bytes: Uint8Array, mask: Uint8Array | null): Uint8Array {
  const extra = bytes.length < 126 ? 0 : bytes.length < 65_536 ? 2 : 8;
  const start = 2 + extra + (mask === null ? 0 : 4);
  const out = new Uint8Array(start + bytes.length);
  const view = new DataView(out.buffer);
  out[0] = 0x80 | opcode;
  out[1] = (mask === null ? 0 : 0x80) | (extra === 0 ? bytes.length : extra === 2 ? 126 : 127);
  if (extra === 2) view.setUint16(2, bytes.length);
  if (extra === 8) view.setBigUint64(2, BigInt(bytes.length));
  out.set(bytes, start);
  if (mask === null) return out;
  out.set(mask, 2 + extra);
  unmask(out.subarray(start), mask);
  return out;
}

/** The same operation masks and unmasks; in place. */
function unmask(bytes: Uint8Array, mask: Uint8Array): void {
  for (let at = 0; at < bytes.length; at++) bytes[at] = (bytes[at] ?? 0) ^ (mask[at & 3] ?? 0);
}

export const webSocketMessage = (bytes: Uint8Array, mask: Uint8Array | null): Uint8Array => frame(BINARY, bytes, mask);
export const webSocketPong = (bytes: Uint8Array, mask: Uint8Array | null): Uint8Array => frame(PONG, bytes, mask);
/** Says that all is well and over. */
export const webSocketClose = (mask: Uint8Array | null): Uint8Array => frame(CLOSE, Uint8Array.of(0x03, 0xe8), mask);

/** Bytes as they come → what they say. Throws OpError `failed` for what the `peer` must not send: clients mask, servers do not. */
export class WebSocketReader {
  readonly #queue = new ByteQueue();
  readonly #peer: 'server' | 'client';
  #parts: Uint8Array[] = [];
  #partBytes = 0;

  constructor(peer: 'server' | 'client' = 'server') {
    this.#peer = peer;
  }

  push(bytes: Uint8Array): WebSocketEvent[] {
    this.#queue.push(bytes);
    const events: WebSocketEvent[] = [];
    for (;;) {
      const next = this.#frame();
      if (next === null) return events;
      events.push(...this.#event(next));
    }
  }

  #frame(): { opcode: number; isLast: boolean; body: Uint8Array } | null {
    if (this.#queue.length < 2) return null;
    const [first = 0, second = 0] = this.#queue.peek(2);
    const extra = (second & 127) === 126 ? 2 : (second & 127) === 127 ? 8 : 0;
    if (this.#queue.length < 2 + extra) return null;
    const isMasked = (second & 128) !== 0;
    const head = this.#queue.peek(2 + extra);
    const view = new DataView(head.buffer, head.byteOffset, head.length);
    const length = extra === 0 ? second & 127 : extra === 2 ? view.getUint16(2) : Number(view.getBigUint64(2));
    if (isMasked !== (this.#peer === 'client'))
      throw new OpError('failed', 'reading a websocket', `the ${this.#peer} ${isMasked ? 'masks' : 'does not mask'} what it sends`);
    const isControl = (first & 8) !== 0;
    if (length > (isControl ? MAX_CONTROL_BYTES : MAX_MESSAGE_BYTES))
      throw new OpError('failed', 'reading a websocket', `the ${this.#peer} sends a ${isControl ? 'control frame' : 'message'} of ${length} bytes`);
    if (isControl && (first & 128) === 0) throw new OpError('failed', 'reading a websocket', `the ${this.#peer} sends a part of a control frame`);
    const maskLength = isMasked ? 4 : 0;
    if (this.#queue.length < 2 + extra + maskLength + length) return null;
    this.#queue.take(2 + extra);
    // Copies: what the queue gives out may be a view of what others hold.
    const mask = Uint8Array.from(this.#queue.take(maskLength));
    const body = isMasked ? Uint8Array.from(this.#queue.take(length)) : this.#queue.take(length);
    if (isMasked) unmask(body, mask);
    return { opcode: first & 15, isLast: (first & 128) !== 0, body };
  }

  #event({ opcode, isLast, body }: { opcode: number; isLast: boolean; body: Uint8Array }): WebSocketEvent[] {
    switch (opcode) {
      case CONTINUES:
      case TEXT:
      case BINARY: {
        this.#parts.push(body);
        this.#partBytes += body.length;
        if (this.#partBytes > MAX_MESSAGE_BYTES || this.#parts.length > MAX_PARTS)
          throw new OpError('failed', 'reading a websocket', `the ${this.#peer} sends a message without an end`);
        if (!isLast) return [];
        const whole = this.#parts.length === 1 ? body : joined(this.#parts);
        this.#parts = [];
        this.#partBytes = 0;
        return [{ type: 'message', bytes: whole }];
      }
      case PING:
        return [{ type: 'ping', bytes: body }];
      case CLOSE:
        return [{ type: 'close', reason: String.fromCharCode(...body.subarray(2)) }];
      default:
        return [];
    }
  }
}
