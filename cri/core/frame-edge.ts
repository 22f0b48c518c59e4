const HEAD_BYTES = 9;
const SETTINGS = 4;

/**
 * Knows of one direction of an HTTP/2 connection, from its server, whether it stands between two frames: there, and only
 * there, another can be put in. Counts lengths and reads nothing else.
 */
export class FrameEdge {
  readonly #head = new Uint8Array(HEAD_BYTES);
  #headBytes = 0;
  #left = 0;
  #frames = 0;
  #isOther = false;

  /** Takes the next bytes. */
  feed(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && !this.#isOther;) {
      if (this.#left > 0) {
        const skipped = Math.min(this.#left, bytes.length - at);
        this.#left -= skipped;
        at += skipped;
        continue;
      }
      const taken = bytes.subarray(at, at + HEAD_BYTES - this.#headBytes);
      this.#head.set(taken, this.#headBytes);
      this.#headBytes += taken.length;
      at += taken.length;
      if (this.#headBytes < HEAD_BYTES) return;
      this.#headBytes = 0;
      const [a = 0, b = 0, c = 0, type = 0] = this.#head;
      this.#left = (a << 16) | (b << 8) | c;
      if (this.#frames++ === 0 && type !== SETTINGS) this.#isOther = true;
    }
  }

  /** False too before the server's first frame, and of what is no HTTP/2. */
  get isBetween(): boolean {
    return this.#frames > 0 && !this.#isOther && this.#left === 0 && this.#headBytes === 0;
  }
}

/** Tells a caller to make a new connection for what it asks next; calls that are open end here. RFC 9113, section 6.8. */
export const FAREWELL = Uint8Array.of(0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0);
