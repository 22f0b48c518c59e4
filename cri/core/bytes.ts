import { joined } from '../../base/bytes.ts';

/** Bytes that come in pieces and are taken in others. */
export class ByteQueue {
  #pieces: Uint8Array[] = [];
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(piece: Uint8Array): void {
    if (piece.length === 0) return;
    this.#pieces.push(piece);
    this.#length += piece.length;
  }

  /** The first `count` bytes, which stay; there must be as many. */
  peek(count: number): Uint8Array {
    if ((this.#pieces[0]?.length ?? 0) < count) this.#pieces = [joined(this.#pieces)];
    return this.#pieces[0]?.subarray(0, count) ?? new Uint8Array(0);
  }

  /** The first `count` bytes, which are gone then; there must be as many. */
  take(count: number): Uint8Array {
    if (count === 0) return new Uint8Array(0);
    const taken = this.peek(count);
    const rest = this.#pieces[0]?.subarray(count);
    if (rest === undefined || rest.length === 0) this.#pieces.shift();
    else this.#pieces[0] = rest;
    this.#length -= count;
    return taken;
  }
}
