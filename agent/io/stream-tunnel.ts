import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { carry } from '../../base/carry.ts';
import { OpError } from '../../base/errors.ts';
import { tunnelProtocol } from '../core/stream-protocols.ts';
import { connectStreaming, endThenDestroy, requestHead } from './stream-splice.ts';
import { acceptWebSocket, FromWebSocket, toWebSocket } from './websocket.ts';

/** An answer's head is some hundred bytes; a server that never ends it must not fill the memory. */
const maxHeadBytes = 1024 * 1024;
const notPassedOn = /^(upgrade|connection|sec-websocket-.*|x-stream-protocol-version|content-length)$/i;

/**
 * Port-forward whose SPDY bytes come in the messages of a WebSocket (`SPDY/3.1+portforward.k8s.io`, KEP-4006): the
 * runtime is asked for SPDY, and only when it agrees is the WebSocket accepted; its refusal is passed on as it is.
 * Resolves when both sides are closed.
 */
export async function tunnelSpdy(
  request: IncomingMessage,
  client: Duplex,
  head: Uint8Array,
  url: URL,
  protocols: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  const backend = await connectStreaming(url, signal);
  const stop = (): void => {
    client.destroy();
    backend.destroy();
  };
  signal.addEventListener('abort', stop, { once: true });
  client.on('close', () => endThenDestroy(backend));
  backend.on('error', () => undefined).setNoDelay(true);
  const closed = Promise.all([closing(client), closing(backend)]);
  try {
    const own = protocols.map((each) => `X-Stream-Protocol-Version: ${each}`);
    backend.write(requestHead(request, url, { method: 'POST', leaveOut: notPassedOn, add: ['Connection: Upgrade', 'Upgrade: SPDY/3.1', ...own] }));
    const answer = await readHead(backend);
    const upgraded = /^HTTP\/1\.1 101 /.test(answer.head) && /^upgrade: *spdy\/3\.1 *$/im.test(answer.head);
    if (!upgraded) {
      client.write(answer.head, 'latin1');
      client.write(answer.rest);
      backend.on('close', () => endThenDestroy(client));
      carry(backend, client);
      await closed;
      return;
    }
    const chosen = /^x-stream-protocol-version: *(\S+) *$/im.exec(answer.head)?.[1];
    acceptWebSocket(request, client, chosen === undefined ? '' : tunnelProtocol(chosen));
    const outward = toWebSocket();
    backend.on('close', () => outward.end());
    outward.on('end', () => endThenDestroy(client));
    if (answer.rest.length > 0) outward.write(answer.rest);
    backend.pipe(outward);
    carry(outward, client);
    carry(new FromWebSocket(client, head, (message) => [message]), backend);
    await closed;
  } catch (error) {
    backend.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function closing(stream: Duplex): Promise<unknown> {
  return stream.destroyed ? Promise.resolve() : once(stream, 'close');
}

/** The head of an answer, and what came behind it. Throws OpError `unavailable` when the connection ends before. */
async function readHead(socket: Socket): Promise<{ head: string; rest: Buffer }> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes = Buffer.concat([bytes, chunk as Buffer]);
    const end = bytes.indexOf('\r\n\r\n');
    if (end >= 0) return { head: bytes.subarray(0, end + 4).toString('latin1'), rest: bytes.subarray(end + 4) };
    if (bytes.length > maxHeadBytes) break;
  }
  throw new OpError('unavailable', 'ask the runtime for a port-forward', 'its streaming server gave no answer');
}
