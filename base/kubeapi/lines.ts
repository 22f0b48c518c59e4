import { OpError } from '../errors.ts';

const maxLineBytes = 64 * 1024 * 1024;

/** Splits a stream of bytes at line feeds; what is left at the end of the stream is an unfinished line. */
export class LineSplitter {
  #rest: Buffer[] = [];
  #restBytes = 0;

  /** The lines that `chunk` completes. Throws OpError `failed` for a line without end. */
  *push(chunk: Uint8Array): Generator<string> {
    let bytes = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
    for (;;) {
      const at = bytes.indexOf(10);
      if (at < 0) break;
      const line = this.#restBytes === 0 ? bytes.subarray(0, at) : Buffer.concat([...this.#rest, bytes.subarray(0, at)]);
      this.#rest = [];
      this.#restBytes = 0;
      bytes = bytes.subarray(at + 1);
      if (line.length > 0) yield line.toString('utf8');
    }
    if (bytes.length === 0) return;
    this.#restBytes += bytes.length;
    if (this.#restBytes > maxLineBytes) throw new OpError('failed', 'read watch', `a line is longer than ${maxLineBytes} bytes`);
    this.#rest.push(bytes);
  }

  get unfinished(): boolean {
    return this.#restBytes > 0;
  }
}
