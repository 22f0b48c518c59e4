import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { text as textOf } from 'node:stream/consumers';

/** Writes parts as they are taken until there are no more, or nobody reads any more. Fails as they fail, with `to` ended. */
export async function writeParts(parts: AsyncIterable<string>, to: Writable): Promise<void> {
  // Who reads may end early; what it read counts.
  to.on('error', () => {});
  const closed = new Promise<null>((resolve) => void to.once('close', () => resolve(null)));
  const iterator = parts[Symbol.asyncIterator]();
  try {
    for (;;) {
      const taken = iterator.next();
      // A part may be long in coming, and nobody waits for it any more.
      taken.catch(() => {});
      const next = await Promise.race([taken, closed]);
      if (next === null || next.done === true) return;
      if (!to.write(next.value)) await Promise.race([new Promise((resolve) => void to.once('drain', resolve)), closed]);
    }
  } finally {
    to.end();
  }
}

/**
 * Runs `body` with the path of a socket; whoever connects to it first is given the parts. The socket lies where nobody
 * else may look; where there is no place for it, `body` gets all parts as a text, and no path. Throws what the parts
 * threw, once `body` is through.
 */
export async function withInputSocket<T>(parts: AsyncIterable<string>, body: (path: string, text: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'sys-input-')).catch(() => null);
  if (folder === null) return await body('', await textOf(parts));
  const server = createServer();
  let socket: Socket | undefined;
  let written: Promise<void> = Promise.resolve();
  server.once('connection', (connected) => {
    socket = connected;
    server.close();
    written = writeParts(parts, connected);
    // Heard of below.
    written.catch(() => {});
  });
  try {
    const path = join(folder, 'socket');
    server.listen(path);
    await once(server, 'listening');
    const result = await body(path, '');
    socket?.destroy();
    await written;
    return result;
  } finally {
    socket?.destroy();
    server.close();
    await rm(folder, { recursive: true, force: true });
  }
}
