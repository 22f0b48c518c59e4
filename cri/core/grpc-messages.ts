const PREFIX_BYTES = 5;

/** Memory that all unfinished and held messages of a tap share. */
export class ByteBudget {
  readonly limitBytes: number;
  usedBytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  take(bytes: number): boolean {
    if (this.usedBytes + bytes > this.limitBytes) return false;
    this.usedBytes += bytes;
    return true;
  }

  give(bytes: number): void {
    this.usedBytes -= bytes;
  }
}

/** A message as the wire had it. */
export interface WireMessage {
  readonly sizeBytes: number;
  /** The first byte of its prefix is 1: compressed as `grpc-encoding` says. */
  readonly compressed: boolean;
  /** Null when it was too large to be kept. What is kept counts on the budget until its owner gives it back. */
  readonly bytes: Uint8Array | null;
}

/** Puts one direction of one call together: a prefix of five bytes, then that many. */
export class MessageReader {
  readonly #budget: ByteBudget;
  readonly #prefix = new Uint8Array(PREFIX_BYTES);
  #prefixBytes = 0;
  #size = 0;
  #got = 0;
  #bytes: Uint8Array | null = null;

  constructor(budget: ByteBudget) {
    this.#budget = budget;
  }

  /** Takes the next bytes of the call's DATA; answers with the messages they end. */
  feed(bytes: Uint8Array): WireMessage[] {
    const messages: WireMessage[] = [];
    let at = 0;
    while (at < bytes.length) {
      if (this.#prefixBytes < PREFIX_BYTES) {
        const taken = Math.min(PREFIX_BYTES - this.#prefixBytes, bytes.length - at);
        this.#prefix.set(bytes.subarray(at, at + taken), this.#prefixBytes);
        this.#prefixBytes += taken;
        at += taken;
        if (this.#prefixBytes < PREFIX_BYTES) break;
        const [, a = 0, b = 0, c = 0, d = 0] = this.#prefix;
        this.#size = a * 2 ** 24 + ((b << 16) | (c << 8) | d);
        this.#got = 0;
        this.#bytes = this.#budget.take(this.#size) ? new Uint8Array(this.#size) : null;
      }
      const piece = bytes.subarray(at, at + this.#size - this.#got);
      this.#bytes?.set(piece, this.#got);
      this.#got += piece.length;
      at += piece.length;
      if (this.#got < this.#size) break;
      messages.push({ sizeBytes: this.#size, compressed: this.#prefix[0] === 1, bytes: this.#bytes });
      this.#prefixBytes = 0;
      this.#bytes = null;
    }
    return messages;
  }

  /** Gives back what an unfinished message holds; the size of what had come of it, or 0. */
  drop(): number {
    if (this.#prefixBytes < PREFIX_BYTES) return 0;
    if (this.#bytes !== null) this.#budget.give(this.#size);
    this.#bytes = null;
    this.#prefixBytes = 0;
    return this.#got;
  }
}
