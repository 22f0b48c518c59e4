import type { Readable, Writable } from 'node:stream';

/** How often a direction that stands still is looked at. */
const LOOK_MS = 250;
/** How much more a direction that stands still takes in at each look, in bytes. */
const STEP_BYTES = 1024 * 1024;
/** What a direction that stands still holds at most, in bytes: above what two kernels keep of a sender that is gone. */
const HELD_BYTES = 16 * 1024 * 1024;
/** How long what was held may take to go out once the sender has ended. */
const END_MS = 10_000;

/**
 * Moves bytes from one connection to another, no faster than the other takes them. A socket that is not read tells
 * neither its end nor its failure, so a sender that is gone would stay open for as long as its receiver stands still:
 * therefore a direction that stands still goes on reading, slowly and up to a bound. The end of `from` is passed on
 * after its last byte; a receiver that does not take that within `endMs` is destroyed.
 */
export function carry(from: Readable, to: Writable, endMs = END_MS): void {
  let allowedBytes = 0;
  let look: NodeJS.Timeout | undefined;
  const rest = (): void => {
    clearTimeout(look);
    look = undefined;
  };
  const lookLater = (): void => {
    look = setTimeout(() => {
      look = undefined;
      if (from.destroyed || to.destroyed) return;
      if (to.writableNeedDrain && to.writableLength >= HELD_BYTES) return lookLater();
      allowedBytes = STEP_BYTES;
      from.resume();
    }, LOOK_MS);
    look.unref();
  };
  from.on('data', (chunk: Uint8Array) => {
    if (to.destroyed || to.writableEnded || to.write(chunk)) return;
    allowedBytes -= chunk.byteLength;
    if (allowedBytes > 0) return;
    from.pause();
    if (look === undefined) lookLater();
  });
  to.on('drain', () => {
    rest();
    allowedBytes = 0;
    from.resume();
  });
  from.on('end', () => {
    rest();
    to.end();
    const late = setTimeout(() => to.destroy(), endMs).unref();
    to.once('finish', () => clearTimeout(late));
    to.once('close', () => clearTimeout(late));
  });
  from.on('close', rest);
  to.on('close', rest);
}
