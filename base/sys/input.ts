import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import type { Writable } from 'node:stream';
import { text as textOf } from 'node:stream/consumers';
import type { RunRequest } from './types.ts';

export function isInParts(input: RunRequest['stdin']): input is AsyncIterable<string> {
  return typeof input === 'object' && !(input instanceof Uint8Array);
}

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
    void iterator.return?.().catch(() => {});
  }
}

/** So many bytes has the kernel for the path of a socket, and one for its end. */
const maxPathBytes = 107;

interface Place {
  server: Server;
  path: string;
  clear: () => Promise<void>;
}

/** A socket where nobody else may look; null where there is no place for one. */
async function listenAside(): Promise<Place | null> {
  // Who connects has another working directory.
  const folder = await mkdtemp(join(resolve(tmpdir()), 'sys-input-')).catch(() => null);
  if (folder === null) return null;
  const server = createServer();
  const path = join(folder, 'socket');
  const clear = async (): Promise<void> => {
    server.close();
    // What is left costs nobody more than its place.
    await rm(folder, { recursive: true, force: true }).catch(() => {});
  };
  if (Buffer.byteLength(path) <= maxPathBytes) {
    try {
      server.listen(path);
      await once(server, 'listening');
      // Whose connection cannot be taken reads nothing.
      server.on('error', () => {});
      return { server, path, clear };
    } catch {
      // No descriptor, or no room in the file system.
    }
  }
  await clear();
  return null;
}

/**
 * Runs `body` with the path of a socket; whoever connects to it first is given the parts, and it is gone. Where there is
 * no place for it, `body` gets all parts as a text, and no path. Throws what the parts threw, once `body` is through.
 */
export async function withInputSocket<T>(parts: AsyncIterable<string>, body: (path: string, text: string) => Promise<T>): Promise<T> {
  const place = await listenAside();
  if (place === null) return await body('', await textOf(parts));
  let socket: Socket | undefined;
  let written: Promise<void> = Promise.resolve();
  place.server.once('connection', (connected) => {
    socket = connected;
    // Whoever is killed from now on leaves nothing.
    void place.clear();
    written = writeParts(parts, connected);
    // Heard of below.
    written.catch(() => {});
  });
  try {
    const result = await body(place.path, '');
    socket?.destroy();
    await written;
    return result;
  } finally {
    socket?.destroy();
    await place.clear();
  }
}
