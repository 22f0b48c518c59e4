import type { IncomingMessage } from 'node:http';
import { connect as connectTcp, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { carry } from '../../base/carry.ts';
import { OpError } from '../../base/errors.ts';

/** How long the runtime's streaming server may take to accept a connection. */
const connectMs = 10_000;

/**
 * Joins an upgraded connection of a client with the URL that the runtime gave for this exec, attach or
 * port-forward: the request is said again there, and from then on every byte passes both ways as it is (SPDY and
 * WebSocket v4 alike). Resolves when both sides are closed.
 */
export async function splice(request: IncomingMessage, client: Duplex, head: Uint8Array, url: URL, signal: AbortSignal): Promise<void> {
  const backend = await connectStreaming(url, signal);
  const closed = Promise.all([closing(client), closing(backend)]);
  const stop = (): void => {
    client.destroy();
    backend.destroy();
  };
  signal.addEventListener('abort', stop, { once: true });
  // One side's end or failure is passed on as an end, after its last byte: a runtime that closes while bytes of the
  // client lie unread makes a reset of it, and a client that then misses the last bytes takes silence for success.
  client.on('error', ignore).on('close', () => endThenDestroy(backend));
  backend.on('error', ignore).on('close', () => endThenDestroy(client));
  backend.setNoDelay(true);
  backend.write(requestHead(request, url));
  if (head.length > 0) backend.write(head);
  carry(client, backend);
  carry(backend, client);
  await closed;
  signal.removeEventListener('abort', stop);
}

/** The failure of a socket closes it, and that is what is acted on. */
function ignore(): void {}

/** A connection to a streaming server of the runtime's. Throws OpError `unavailable`, `aborted`, `unsupported`. */
export async function connectStreaming(url: URL, signal: AbortSignal): Promise<Socket> {
  const port = Number(url.port || (url.protocol === 'https:' ? 443 : 80));
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  const doing = `connect to the runtime's streaming server ${url.host}`;
  if (url.protocol !== 'http:' && url.protocol !== 'https:') throw new OpError('unsupported', doing, `protocol ${url.protocol}`);
  const secure = url.protocol === 'https:';
  // The certificate of a runtime's streaming server is its own; the URL comes over its Unix socket, which is the proof.
  const socket = secure ? connectTls({ host, port, rejectUnauthorized: false }) : connectTcp({ host, port });
  const bound = AbortSignal.any([signal, AbortSignal.timeout(connectMs)]);
  await new Promise<void>((resolve, reject) => {
    const failed = (cause: unknown): void => {
      socket.destroy();
      reject(new OpError(signal.aborted ? 'aborted' : 'unavailable', doing, cause instanceof Error ? cause.message : 'no answer', { cause }));
    };
    const stopped = (): void => failed(bound.reason);
    bound.addEventListener('abort', stopped, { once: true });
    socket.once('error', failed);
    socket.once(secure ? 'secureConnect' : 'connect', () => {
      bound.removeEventListener('abort', stopped);
      socket.removeListener('error', failed);
      resolve();
    });
  });
  return socket;
}

/** What of a request is said differently than it came. */
export interface RequestChanges {
  readonly method: string;
  readonly leaveOut: RegExp;
  /** Whole lines. */
  readonly add: readonly string[];
}

/** The request as it came, for the runtime's URL; what proves the caller to us is not the runtime's business. */
export function requestHead(request: IncomingMessage, url: URL, changes?: RequestChanges): string {
  const lines = [`${changes?.method ?? request.method} ${url.pathname}${url.search} HTTP/1.1`, `Host: ${url.host}`];
  for (let at = 0; at + 1 < request.rawHeaders.length; at += 2) {
    const name = request.rawHeaders[at] ?? '';
    if (/^(host|authorization|impersonate-.*)$/i.test(name) || changes?.leaveOut.test(name) === true) continue;
    lines.push(`${name}: ${request.rawHeaders[at + 1]}`);
  }
  return `${[...lines, ...(changes?.add ?? [])].join('\r\n')}\r\n\r\n`;
}

function closing(stream: Duplex): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed) resolve();
    else stream.once('close', () => resolve());
  });
}

/** What is still in the other direction's buffer goes out first, but not for ever. */
export function endThenDestroy(stream: Duplex): void {
  if (stream.destroyed) return;
  const late = setTimeout(() => stream.destroy(), 2_000).unref();
  stream.end(() => {
    clearTimeout(late);
    stream.destroy();
  });
}
