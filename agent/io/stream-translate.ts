import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { once } from 'node:events';
import { carry } from '../../base/carry.ts';
import { messageOf } from '../../base/errors.ts';
import { drained, spdyWire, webSocketClose, webSocketMessage, type Channel, type Wire } from '../../cri/mod.ts';
import { endOfExec, execProtocol, internalError, readExecMessage } from '../core/stream-protocols.ts';
import { endThenDestroy } from './stream-splice.ts';
import { acceptWebSocket, FromWebSocket } from './websocket.ts';

export interface AskedStreams {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

const numbers = { stdout: 1, stderr: 2, error: 3 } as const;

/**
 * Serves `v5.channel.k8s.io`, which no runtime's streaming server need know: towards the client a WebSocket whose
 * channels can be closed, towards the URL that the runtime gave the same streams over SPDY (KEP-4006). Resolves when
 * both sides are closed. Throws HttpFailure before the connection is taken over, never after.
 */
export async function translateExec(
  request: IncomingMessage,
  client: Duplex,
  head: Uint8Array,
  url: URL,
  asked: AskedStreams,
  signal: AbortSignal,
): Promise<void> {
  acceptWebSocket(request, client, execProtocol);
  const closed = client.destroyed ? Promise.resolve() : once(client, 'close');
  const send = (channel: number, bytes: Uint8Array): boolean => client.write(webSocketMessage(Buffer.concat([Uint8Array.of(channel), bytes]), null));
  // Tells the client that the connection stands, before there is any output.
  send(asked.stdout ? numbers.stdout : asked.stderr ? numbers.stderr : numbers.error, new Uint8Array(0));
  const finish = (status: unknown): void => {
    if (client.destroyed) return;
    send(numbers.error, Buffer.from(JSON.stringify(status)));
    client.write(webSocketClose(null));
    endThenDestroy(client);
  };
  const gone = new AbortController();
  const leave = (): void => gone.abort();
  client.on('close', leave);
  signal.addEventListener('abort', () => client.destroy(), { once: true, signal: gone.signal });
  try {
    const wire = await spdyWire(url, channelsOf(asked), AbortSignal.any([signal, gone.signal]));
    finish(await join(wire, client, head, asked, send));
  } catch (error) {
    finish(internalError(messageOf(error)));
  }
  await closed;
}

function channelsOf(asked: AskedStreams): Channel[] {
  const channels: Channel[] = ['error'];
  if (asked.stdin) channels.push('stdin');
  if (asked.stdout) channels.push('stdout');
  if (asked.stderr && !asked.tty) channels.push('stderr');
  if (asked.tty) channels.push('resize');
  return channels;
}

/** Passes everything on until the runtime's output has ended; the end that is to be told. */
async function join(
  wire: Wire,
  client: Duplex,
  head: Uint8Array,
  asked: AskedStreams,
  send: (channel: number, bytes: Uint8Array) => boolean,
): Promise<unknown> {
  const { socket } = wire;
  let inputEnded = false;
  const convert = (message: Uint8Array): readonly Uint8Array[] | null => {
    const said = readExecMessage(message);
    if (said.kind === 'broken') return null;
    if (said.kind === 'endInput' && asked.stdin && !inputEnded) {
      inputEnded = true;
      return wire.endInput();
    }
    if (said.kind !== 'data' || !(said.channel === 'stdin' ? asked.stdin && !inputEnded : asked.tty)) return [];
    return wire.send(said.channel, said.bytes);
  };
  socket.setNoDelay(true);
  socket.on('error', () => undefined);
  // A client that goes takes the connection with it: nobody is left to hear the end.
  const part = (): void => void socket.destroy();
  client.on('close', part);
  for (const piece of wire.open()) socket.write(piece);
  carry(new FromWebSocket(client, head, convert), socket);
  const open = new Set<Channel>(channelsOf(asked).filter((channel) => channel !== 'stdin' && channel !== 'resize'));
  const told: Uint8Array[] = [];
  try {
    const take = async (bytes: Uint8Array): Promise<void> => {
      for (const event of wire.read(bytes)) {
        if (event.type === 'answer') socket.write(event.bytes);
        else if (event.type === 'ended') open.delete(event.channel);
        else if (event.channel === 'error') told.push(event.bytes);
        else if ((event.channel === 'stdout' || event.channel === 'stderr') && !send(numbers[event.channel], event.bytes)) await drained(client);
      }
    };
    await take(wire.head);
    if (open.size > 0) {
      for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
        await take(chunk as Uint8Array);
        if (open.size === 0) break;
      }
    }
    return endOfExec(Buffer.concat(told).toString());
  } finally {
    client.off('close', part);
    for (const piece of wire.bye()) if (!socket.destroyed) socket.write(piece);
    socket.destroySoon();
  }
}
