import { spawn } from 'node:child_process';
import { lstat, unlink } from 'node:fs/promises';
import { getSystemErrorName } from 'node:util';
import { assert } from '../../base/assert.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Side, Stamp } from '../core/connection.ts';
import { FAREWELL } from '../core/frame-edge.ts';
import { cannotListen, clearSocket, dressAs, type Onlooker, type Splice, type SpliceOptions } from './splice.ts';

/** Kinds of notes, as sys/splice.c numbers them. */
const [LISTENING, OPEN, REACHED, DATA, LOST, END, CLOSE] = [0, 1, 2, 3, 4, 5, 6];
const HEAD_BYTES = 32;

interface Head {
  readonly kind: number;
  readonly connection: number;
  readonly side: Side;
  readonly at: Stamp;
}

/** Takes notes apart, however their bytes come: those of data go on in pieces, other notes when they are whole. */
class NoteReader {
  readonly #take: (head: Head, bytes: Buffer) => void;
  readonly #monoOffsetMs: number;
  #rest: Buffer = Buffer.alloc(0);
  #head: Head | null = null;
  #left = 0;

  /** @param monoOffsetMs what the program's clock is behind ours */
  constructor(monoOffsetMs: number, take: (head: Head, bytes: Buffer) => void) {
    this.#monoOffsetMs = monoOffsetMs;
    this.#take = take;
  }

  feed(chunk: Buffer): void {
    let bytes = this.#rest.length > 0 ? Buffer.concat([this.#rest, chunk]) : chunk;
    for (;;) {
      if (this.#head === null) {
        if (bytes.length < HEAD_BYTES) break;
        this.#head = this.#headOf(bytes);
        this.#left = bytes.readUInt32LE(12);
        bytes = bytes.subarray(HEAD_BYTES);
      }
      const part = bytes.subarray(0, this.#left);
      if (part.length < this.#left && (this.#head.kind !== DATA || part.length === 0)) break;
      this.#take(this.#head, part);
      bytes = bytes.subarray(part.length);
      this.#left -= part.length;
      if (this.#left === 0) this.#head = null;
    }
    this.#rest = bytes;
  }

  #headOf(bytes: Buffer): Head {
    return {
      kind: bytes.readUInt32LE(0),
      connection: bytes.readUInt32LE(4),
      side: bytes.readUInt32LE(8) === 0 ? 'client' : 'server',
      at: { wallMs: bytes.readDoubleLE(16), monoMs: bytes.readDoubleLE(24) + this.#monoOffsetMs },
    };
  }
}

/** Shows what was told to the onlooker, and counts. */
function showing(onlooker: Onlooker | null, counts: Splice['counts'], reached: (refusal: string | null) => void): (head: Head, bytes: Buffer) => void {
  return ({ kind, connection, side, at }, bytes) => {
    if (kind === DATA) {
      counts.bytes += bytes.length;
      onlooker?.data(connection, side, bytes, at);
    } else if (kind === OPEN) {
      counts.opened += 1;
      counts.open += 1;
      onlooker?.open(connection, at);
    } else if (kind === REACHED) {
      const code = bytes.readInt32LE(0);
      reached(code === 0 ? null : getSystemErrorName(-code));
    } else if (kind === LOST) onlooker?.lost(connection, at);
    else if (kind === END) onlooker?.end(connection, side, at);
    else if (kind === CLOSE) {
      counts.open -= 1;
      counts.bytes += Number(bytes.readBigUInt64LE(0));
      onlooker?.close(connection, at);
    }
  };
}

/**
 * As `openSplice`, by a process of its own (`sys splice`), so that nothing which this one does keeps a caller waiting. It
 * ends with this process. What it shows is some milliseconds old, with the time at which it was; at most `bufferBytes` wait
 * to be shown. Throws OpError, `unsupported` when `sys` cannot do it.
 */
export async function openSysSplice(options: SpliceOptions & { sys: string; bufferBytes: number; clock: Clock }): Promise<Splice> {
  const { listen, upstream, onlooker, clock, sys, reached = () => {} } = options;
  await clearSocket(listen);
  const child = spawn(sys, ['splice', listen, upstream, String(options.bufferBytes)], { stdio: ['pipe', 'pipe', 'pipe'] });
  const { stdin, stdout, stderr } = child;
  assert(stdin !== null && stdout !== null && stderr !== null, 'all three are pipes');
  const counts = { opened: 0, open: 0, bytes: 0 };
  const show = showing(onlooker, counts, reached);
  const broken = Promise.withResolvers<string>();
  const listening = Promise.withResolvers<null>();
  let words = '';
  stderr.on('data', (bytes: Buffer) => (words += bytes.toString()));
  // Writing to one that is gone is no failure of ours.
  stdin.on('error', () => {});
  const notes = new NoteReader(clock.monoMs() - Number(process.hrtime.bigint()) / 1e6, (head, bytes) => {
    if (head.kind === LISTENING) listening.resolve(null);
    else show(head, bytes);
  });
  stdout.on('data', (bytes: Buffer) => notes.feed(bytes));
  const closed = new Promise<string>((resolve) => {
    child.once('error', (error) => resolve(messageOf(error)));
    child.once('close', (code, signal) => resolve(words.trim() || `it ended with ${signal ?? code}`));
  });
  const failed = await Promise.race([listening.promise, closed]);
  if (failed !== null) {
    const [, number, said] = /^(\d+) (.*)/.exec(failed) ?? [];
    if (number !== undefined) throw cannotListen(listen, getSystemErrorName(-Number(number)), said ?? failed);
    // An older one, which knows no such command.
    if (child.exitCode === 2)
      throw new OpError('unsupported', `start ${sys} splice`, 'it is older than this', { advice: 'build it anew: sh sys/build.sh dist/sys' });
    throw new OpError('failed', `start ${sys} splice`, failed, { advice: 'build the C program: sh sys/build.sh dist/sys (it needs gcc and libc6-dev)' });
  }
  void closed.then((why) => broken.resolve(`the process that passes bytes on has ended: ${why}`));
  const bound = await lstat(listen);
  await dressAs(upstream, listen);
  let elsewhere = '';
  return {
    counts,
    broken: broken.promise,
    route: (path) => {
      elsewhere = path ?? elsewhere;
      stdin.write(`route ${path ?? upstream}\n`);
    },
    sendAway: (routed, cutMs) => {
      stdin.write(`away ${cutMs ?? -1} ${Buffer.from(FAREWELL).toString('hex')} ${routed ? elsewhere : upstream}\n`);
    },
    [Symbol.asyncDispose]: async () => {
      const there = await lstat(listen).catch(() => null);
      if (there?.ino === bound.ino && there.dev === bound.dev) await unlink(listen);
      stdin.end();
      await closed;
    },
  };
}
