import { createHash, randomBytes } from 'node:crypto';
import { request } from 'node:http';
import { request as requestTls } from 'node:https';
import type { Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { OpError } from '../../base/errors.ts';
import { SpdyReader, SpdyWriter } from '../core/spdy.ts';
import { webSocketClose, webSocketMessage, webSocketPong, WebSocketReader } from '../core/websocket.ts';

/** The streams of one exec; each is said by its number in the websocket protocol. */
export const CHANNELS = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 } as const;
export type Channel = keyof typeof CHANNELS;

export type WireEvent =
  | { readonly type: 'data'; readonly channel: Channel; readonly bytes: Uint8Array }
  /** That channel brings no more. */
  | { readonly type: 'ended'; readonly channel: Channel }
  | { readonly type: 'answer'; readonly bytes: Uint8Array };

/** How channels pass over one connection. */
export interface Wire {
  readonly socket: Socket;
  /** What came with the answer to the request. */
  readonly head: Uint8Array;
  /** Whether the end of input can be said. */
  readonly hasEndOfInput: boolean;
  /** What opens the channels. */
  open(): Uint8Array[];
  send(channel: Channel, bytes: Uint8Array): Uint8Array[];
  endInput(): Uint8Array[];
  bye(): Uint8Array[];
  read(bytes: Uint8Array): WireEvent[];
}

const PROTOCOL = 'v4.channel.k8s.io';
const PROTOCOL_WITH_END = 'v5.channel.k8s.io';
const CONNECT_MS = 10_000;
const ACCEPT_WORDS = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** What a server answers to a client's `Sec-WebSocket-Key` (RFC 6455, 4.2.2). */
export function webSocketAccept(key: string): string {
  return createHash('sha1')
    .update(key + ACCEPT_WORDS)
    .digest('base64');
}

interface Upgraded {
  readonly socket: Socket;
  readonly head: Buffer;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

/** Asks the runtime's streaming server for another protocol. Throws OpError: `unavailable`, or `failed` with its words. */
function upgrade(url: URL, method: string, headers: Readonly<Record<string, string>>, signal: AbortSignal): Promise<Upgraded> {
  const doing = `connect to the runtime's streaming server ${url.host}`;
  return new Promise((resolve, reject) => {
    const options = { method, headers: { ...headers, connection: 'Upgrade' }, signal, timeout: CONNECT_MS, agent: false as const };
    // The certificate of a runtime's streaming server is its own; the URL comes over its Unix socket, which is the proof.
    const asking = url.protocol === 'https:' ? requestTls(url, { ...options, rejectUnauthorized: false }) : request(url, options);
    asking.on('upgrade', (response, socket, head) => {
      socket.setTimeout(0);
      resolve({ socket, head, headers: response.headers });
    });
    asking.on('response', (response) => {
      void text(response).then(
        (words) => reject(new OpError('failed', doing, `${response.statusCode} ${words.trim()}`)),
        (cause: unknown) => reject(new OpError('failed', doing, `${response.statusCode}`, { cause })),
      );
    });
    asking.on('timeout', () => asking.destroy(new Error('no answer')));
    asking.on('error', (cause) => reject(new OpError(signal.aborted ? 'aborted' : 'unavailable', doing, cause.message, { cause })));
    asking.end();
  });
}

/** SPDY/3.1, which every runtime speaks. */
export async function spdyWire(url: URL, channels: readonly Channel[], signal: AbortSignal): Promise<Wire> {
  const { socket, head } = await upgrade(url, 'POST', { upgrade: 'SPDY/3.1', 'x-stream-protocol-version': PROTOCOL }, signal);
  const writer = new SpdyWriter();
  const reader = new SpdyReader();
  const ids = new Map(channels.map((channel, index) => [channel, 2 * index + 1]));
  const byId = new Map([...ids].map(([channel, id]) => [id, channel]));
  const idOf = (channel: Channel): number => ids.get(channel) ?? 0;
  return {
    socket,
    head,
    hasEndOfInput: true,
    open: () => channels.map((channel) => writer.open(idOf(channel), 'streamtype', channel)),
    send: (channel, bytes) => writer.data(idOf(channel), bytes),
    endInput: () => writer.data(idOf('stdin'), new Uint8Array(0), true),
    bye: () => [writer.goaway()],
    read: (bytes) =>
      reader.push(bytes).flatMap((event): WireEvent[] => {
        if (event.type === 'ping') return [{ type: 'answer', bytes: writer.pong(event.id) }];
        const channel = event.type === 'goaway' ? undefined : byId.get(event.stream);
        if (channel === undefined) return [];
        const data: WireEvent[] = event.type === 'data' && event.bytes.length > 0 ? [{ type: 'data', channel, bytes: event.bytes }] : [];
        return event.type === 'ended' || (event.type === 'data' && event.isLast) ? [...data, { type: 'ended', channel }] : data;
      }),
  };
}

/** Websocket: with an end of input where the server knows the fifth version of the channels' protocol. */
export async function webSocketWire(url: URL, channels: readonly Channel[], signal: AbortSignal): Promise<Wire> {
  const key = randomBytes(16).toString('base64');
  const { socket, head, headers } = await upgrade(
    url,
    'GET',
    {
      upgrade: 'websocket',
      'sec-websocket-version': '13',
      'sec-websocket-key': key,
      'sec-websocket-protocol': `${PROTOCOL_WITH_END}, ${PROTOCOL}`,
    },
    signal,
  );
  if (headers['sec-websocket-accept'] !== webSocketAccept(key)) {
    socket.destroy();
    throw new OpError('failed', `connect to the runtime's streaming server ${url.host}`, 'it does not speak websocket');
  }
  const reader = new WebSocketReader();
  const mask = (): Uint8Array => randomBytes(4);
  const names = Object.entries(CHANNELS) as [Channel, number][];
  const channelOf = (id: number | undefined): Channel | undefined => names.find(([channel, own]) => own === id && channels.includes(channel))?.[0];
  return {
    socket,
    head,
    hasEndOfInput: headers['sec-websocket-protocol'] === PROTOCOL_WITH_END,
    open: () => [],
    send: (channel, bytes) => [webSocketMessage(Buffer.concat([Uint8Array.of(CHANNELS[channel]), bytes]), mask())],
    endInput: () => (headers['sec-websocket-protocol'] === PROTOCOL_WITH_END ? [webSocketMessage(Uint8Array.of(255, CHANNELS.stdin), mask())] : []),
    bye: () => [webSocketClose(mask())],
    read: (bytes) =>
      reader.push(bytes).flatMap((event): WireEvent[] => {
        if (event.type === 'ping') return [{ type: 'answer', bytes: webSocketPong(event.bytes, mask()) }];
        if (event.type === 'close') return channels.map((channel) => ({ type: 'ended', channel }));
        if (event.bytes[0] === 255) {
          const closed = channelOf(event.bytes[1]);
          return closed === undefined ? [] : [{ type: 'ended', channel: closed }];
        }
        const channel = channelOf(event.bytes[0]);
        // The server opens each channel with an empty message.
        return channel === undefined || event.bytes.length === 1 ? [] : [{ type: 'data', channel, bytes: event.bytes.subarray(1) }];
      }),
  };
}
