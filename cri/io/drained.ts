import type { Writable } from 'node:stream';

/** Resolves when the stream has room again, or is closed. */
export function drained(stream: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      stream.off('drain', done).off('close', done);
      resolve();
    };
    stream.on('drain', done).on('close', done);
    if (stream.destroyed || !stream.writableNeedDrain) done();
  });
}
