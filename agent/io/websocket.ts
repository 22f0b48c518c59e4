import type { IncomingMessage } from 'node:http';
import { Readable, Transform, type Duplex } from 'node:stream';
import { webSocketAccept, webSocketClose, webSocketMessage, webSocketPong, WebSocketReader } from '../../cri/mod.ts';
import { HttpFailure } from './server.ts';

/** Takes the connection over as a WebSocket with that subprotocol. Throws HttpFailure 400 for a request that asks for none. */
export function acceptWebSocket(request: IncomingMessage, client: Duplex, protocol: string): void {
  const key = request.headers['sec-websocket-key'];
  if (key === undefined || request.headers['sec-websocket-version'] !== '13') throw new HttpFailure(400, 'Bad Request');
  const lines = [
    'HTTP/1.1 101 Switching Protocols',
    'Upgrade: websocket',
    'Connection: Upgrade',
    `Sec-WebSocket-Accept: ${webSocketAccept(key)}`,
    ...(protocol === '' ? [] : [`Sec-WebSocket-Protocol: ${protocol}`]),
  ];
  client.write(`${lines.join('\r\n')}\r\n\r\n`);
}

/** A client that pings and does not read its answers gets none any more: the newest would do (RFC 6455, section 5.5.3). */
const maxUnreadBytes = 1024 * 1024;

/**
 * What a WebSocket's client says, each message converted to bytes for another connection; null ends it. Ends with the
 * client's side; a client that breaks the protocol loses its connection.
 */
export class FromWebSocket extends Readable {
  readonly #client: Duplex;

  constructor(client: Duplex, head: Uint8Array, convert: (message: Uint8Array) => readonly Uint8Array[] | null) {
    super();
    this.#client = client;
    const reader = new WebSocketReader('client');
    let isOver = false;
    const end = (): void => {
      if (isOver) return;
      isOver = true;
      this.push(null);
    };
    const take = (bytes: Uint8Array): void => {
      if (isOver) return;
      try {
        for (const event of reader.push(bytes)) {
          if (event.type === 'ping' && client.writableLength < maxUnreadBytes) client.write(webSocketPong(event.bytes, null));
          if (event.type === 'close') return end();
          if (event.type !== 'message') continue;
          const pieces = convert(event.bytes);
          if (pieces === null) return void client.destroy();
          for (const piece of pieces) if (!this.push(piece)) client.pause();
        }
      } catch {
        client.destroy();
      }
    };
    client.on('data', take).on('end', end).on('close', end);
    if (head.length > 0) take(head);
  }

  override _read(): void {
    this.#client.resume();
  }
}

/** Bytes → a server's binary messages, and at the end its close. */
export function toWebSocket(): Transform {
  return new Transform({
    transform: (chunk: Uint8Array, _encoding, done) => done(null, webSocketMessage(chunk, null)),
    flush: (done) => done(null, webSocketClose(null)),
  });
}
