import type { Readable, Writable } from 'node:stream';
import { messageOf, OpError } from '../../base/errors.ts';
import { exitOf } from '../core/exec-status.ts';
import { drained } from './drained.ts';
import { spdyWire, webSocketWire, type Channel, type Wire } from './exec-wire.ts';

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface ExecStreams {
  readonly stdin: Readable | null;
  readonly stdout: Writable;
  /** Null with a terminal, where both are one. */
  readonly stderr: Writable | null;
  /** The terminal's size now and whenever it changes; null without a terminal. */
  readonly sizes: AsyncIterable<TerminalSize> | null;
}

export interface ExecStreamOptions {
  readonly transport: 'spdy' | 'websocket';
  readonly signal: AbortSignal;
  /** Gets what is amiss but no failure. */
  readonly say: (text: string) => void;
}

async function write(wire: Wire, pieces: readonly Uint8Array[]): Promise<void> {
  let isFree = true;
  for (const piece of pieces) isFree = wire.socket.write(piece);
  if (!isFree) await drained(wire.socket);
}

async function feed(wire: Wire, stdin: Readable, say: (text: string) => void): Promise<void> {
  for await (const chunk of stdin) {
    if (wire.socket.destroyed) return;
    await write(wire, wire.send('stdin', chunk as Uint8Array));
  }
  if (!wire.hasEndOfInput) say('the runtime’s websocket cannot be told that the input has ended: with --transport spdy it can');
  await write(wire, wire.endInput());
}

async function tellSizes(wire: Wire, sizes: AsyncIterable<TerminalSize>): Promise<void> {
  for await (const { columns, rows } of sizes) {
    if (wire.socket.destroyed) return;
    await write(wire, wire.send('resize', Buffer.from(`${JSON.stringify({ Width: columns, Height: rows })}\n`)));
  }
}

/** Passes output on until every channel has ended or the connection has; what the error channel said, which always says something. */
async function receive(wire: Wire, streams: ExecStreams, channels: readonly Channel[]): Promise<string> {
  const open = new Set<Channel>(channels.filter((channel) => channel !== 'stdin' && channel !== 'resize'));
  const status: Uint8Array[] = [];
  const take = async (bytes: Uint8Array): Promise<void> => {
    for (const event of wire.read(bytes)) {
      if (event.type === 'answer') await write(wire, [event.bytes]);
      else if (event.type === 'ended') open.delete(event.channel);
      else if (event.channel === 'error') status.push(event.bytes);
      else {
        const into = event.channel === 'stderr' ? streams.stderr : streams.stdout;
        if (into !== null && !into.write(event.bytes)) await drained(into);
      }
    }
  };
  await take(wire.head);
  if (open.size > 0) {
    try {
      for await (const chunk of wire.socket.iterator({ destroyOnReturn: false })) {
        await take(chunk as Uint8Array);
        if (open.size === 0) break;
      }
    } catch (cause) {
      if (status.length === 0) throw new OpError('unavailable', 'exec', `the connection broke: ${messageOf(cause)}`, { cause });
    }
  }
  return Buffer.concat(status).toString();
}

/**
 * Carries a command's streams over the URL that the runtime gave for it; resolves to its exit code once all output has
 * been passed on. Throws OpError: `unavailable` when the connection breaks, `aborted` at the signal, `failed` with the
 * runtime's words when it could not run the command.
 */
export async function execOver(url: URL, streams: ExecStreams, options: ExecStreamOptions): Promise<number> {
  const channels: Channel[] = ['error'];
  if (streams.stdin !== null) channels.push('stdin');
  channels.push('stdout');
  if (streams.stderr !== null) channels.push('stderr');
  if (streams.sizes !== null) channels.push('resize');
  const wire = await (options.transport === 'spdy' ? spdyWire : webSocketWire)(url, channels, options.signal);
  const { socket } = wire;
  const stop = (): void => void socket.destroy();
  options.signal.addEventListener('abort', stop, { once: true });
  socket.on('error', () => {});
  socket.setNoDelay(true);
  try {
    await write(wire, wire.open());
    // Both end with the connection at the latest; their failure is the connection's.
    if (streams.stdin !== null) void feed(wire, streams.stdin, options.say).catch(() => {});
    if (streams.sizes !== null) void tellSizes(wire, streams.sizes).catch(() => {});
    const status = await receive(wire, streams, channels);
    if (options.signal.aborted) throw new OpError('aborted', 'exec', 'stopped by the caller', { cause: options.signal.reason });
    if (status === '') throw new OpError('unavailable', 'exec', 'the connection ended before the command did');
    return exitOf(status);
  } finally {
    options.signal.removeEventListener('abort', stop);
    if (!socket.destroyed) {
      for (const piece of wire.bye()) socket.write(piece);
      socket.destroySoon();
    }
    streams.stdin?.destroy();
  }
}
