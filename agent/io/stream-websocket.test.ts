import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { test, type TestContext } from 'node:test';
import { SpdyReader, SpdyWriter, type SpdyEvent } from '../../cri/core/spdy.ts';
import { webSocketMessage, WebSocketReader } from '../../cri/mod.ts';
import { translateExec, type AskedStreams } from './stream-translate.ts';
import { tunnelSpdy } from './stream-tunnel.ts';
import { FromWebSocket } from './websocket.ts';

const spdy = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ';

async function listen(t: TestContext, onUpgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void): Promise<URL> {
  const sockets = new Set<Duplex>();
  const server = createServer();
  server.on('upgrade', (request, socket: Duplex, head) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => socket.destroy());
    onUpgrade(request, socket, head);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
}

/** A runtime's streaming server: what a stream brings is told, and `say` writes to one. Streams: 1 error, then as asked. */
function runtime(
  t: TestContext,
  hear: (event: SpdyEvent, say: (stream: number, text: string, isLast?: boolean) => void, socket: Duplex) => void,
): Promise<URL> {
  return listen(t, (request, socket, head) => {
    assert.equal(request.headers.upgrade, 'SPDY/3.1');
    socket.write(`${spdy}v4.channel.k8s.io\r\n\r\n`);
    const reader = new SpdyReader();
    const writer = new SpdyWriter();
    const say = (stream: number, text: string, isLast = false): void => {
      for (const piece of writer.data(stream, Buffer.from(text), isLast)) socket.write(piece);
    };
    const take = (bytes: Uint8Array): void => reader.push(bytes).forEach((event) => hear(event, say, socket));
    if (head.length > 0) take(head);
    socket.on('data', take);
  });
}

/** A server that translates to `backend`, and a client of it; messages as [channel, text]. */
async function client(t: TestContext, backend: URL, asked: AskedStreams): Promise<{ socket: WebSocket; heard: [number, string][]; closed: Promise<unknown> }> {
  const stop = new AbortController();
  t.after(() => stop.abort());
  const at = await listen(t, (request, socket, head) => void translateExec(request, socket, head, backend, asked, stop.signal).catch(() => socket.destroy()));
  const socket = new WebSocket(`ws://${at.host}/exec`, ['v5.channel.k8s.io', 'v4.channel.k8s.io']);
  socket.binaryType = 'arraybuffer';
  const heard: [number, string][] = [];
  socket.addEventListener('message', ({ data }) => {
    const bytes = Buffer.from(data as ArrayBuffer);
    heard.push([bytes[0] ?? -1, bytes.subarray(1).toString()]);
  });
  const closed = once(socket, 'close');
  await once(socket, 'open');
  return { socket, heard, closed };
}

const all = { stdin: true, stdout: true, stderr: true, tty: false };

test('v5: input, its end, output after it, the exit code', async (t) => {
  const backend = await runtime(t, (event, say) => {
    if (event.type !== 'data' || event.stream !== 3) return;
    if (event.bytes.length > 0) say(5, Buffer.from(event.bytes).toString().toUpperCase());
    if (!event.isLast) return;
    say(7, 'late', true);
    say(5, 'done', true);
    say(1, '{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}', true);
  });
  const { socket, heard, closed } = await client(t, backend, all);
  assert.equal(socket.protocol, 'v5.channel.k8s.io');
  socket.send(Uint8Array.of(0, 97, 98, 99));
  socket.send(Uint8Array.of(255, 0));
  await closed;
  assert.deepEqual(heard[0], [1, '']);
  assert.equal(
    heard
      .filter(([channel]) => channel === 1)
      .map(([, text]) => text)
      .join(''),
    'ABCdone',
  );
  assert.deepEqual(
    heard.find(([channel]) => channel === 2),
    [2, 'late'],
  );
  const [channel, status] = heard.at(-1) ?? [];
  assert.equal(channel, 3);
  assert.match(status ?? '', /"reason":"NonZeroExitCode".*"message":"7"/);
});

test('v5: five megabytes pass both ways, and a terminal’s size on its own stream', async (t) => {
  const sizes: string[] = [];
  const backend = await runtime(t, (event, say) => {
    if (event.type !== 'data') return;
    if (event.stream === 7) sizes.push(Buffer.from(event.bytes).toString());
    if (event.stream !== 3) return;
    say(5, Buffer.from(event.bytes).toString(), event.isLast);
    if (event.isLast) say(1, '{"status":"Success"}', true);
  });
  const { socket, heard, closed } = await client(t, backend, { ...all, tty: true });
  socket.send(Buffer.from('\u0004{"Width":80,"Height":24}'));
  for (let sent = 0; sent < 50; sent++) socket.send(Buffer.concat([Uint8Array.of(0), Buffer.alloc(100_000, 'x')]));
  socket.send(Uint8Array.of(255, 0));
  await closed;
  assert.equal(
    heard.filter(([channel]) => channel === 1).reduce((sum, [, text]) => sum + text.length, 0),
    5_000_000,
  );
  assert.deepEqual(sizes, ['{"Width":80,"Height":24}']);
  assert.deepEqual(heard.at(-1), [3, '{"metadata":{},"status":"Success"}']);
});

test('v5: a client that goes takes the runtime’s connection with it, and one that breaks the rules is dropped', async (t) => {
  let open = 0;
  const ended = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  const backend = await listen(t, (_request, socket) => {
    open++;
    opened.resolve();
    socket.write(`${spdy}v4.channel.k8s.io\r\n\r\n`);
    socket.resume().on('end', () => socket.end());
    socket.on('close', () => {
      open--;
      ended.resolve();
    });
  });
  const { socket, closed } = await client(t, backend, all);
  await opened.promise;
  socket.send(Uint8Array.of(255, 9));
  await closed;
  await ended.promise;
  assert.equal(open, 0);
});

test('v5: a runtime that refuses is told on the error channel', async (t) => {
  const backend = await listen(t, (_request, socket) => socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone'));
  const { heard, closed } = await client(t, backend, { stdin: false, stdout: false, stderr: true, tty: false });
  await closed;
  assert.deepEqual(heard[0], [2, '']);
  assert.match(heard.at(-1)?.[1] ?? '', /"status":"Failure".*404 gone.*"code":500/);
});

/** A client of a server that tunnels to `backend`. Node's own WebSocket refuses the slash in the protocol's name. */
async function tunnel(t: TestContext, backend: URL): Promise<Socket> {
  const stop = new AbortController();
  t.after(() => stop.abort());
  const at = await listen(
    t,
    (request, socket, head) => void tunnelSpdy(request, socket, head, backend, ['portforward.k8s.io'], stop.signal).catch(() => socket.destroy()),
  );
  const socket = connect(Number(at.port), '127.0.0.1');
  t.after(() => socket.destroy());
  socket.write(
    'GET /portForward HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: SPDY/3.1+portforward.k8s.io\r\n\r\n',
  );
  return socket;
}

/** Reads until the answer's head is whole: the head, and what came behind it. */
async function answer(socket: Socket): Promise<{ head: string; rest: Buffer }> {
  let bytes = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    bytes = Buffer.concat([bytes, chunk as Buffer]);
    const end = bytes.indexOf('\r\n\r\n') + 4;
    if (end > 3) return { head: bytes.subarray(0, end).toString(), rest: bytes.subarray(end) };
  }
  return { head: bytes.toString(), rest: Buffer.alloc(0) };
}

const mask = Uint8Array.of(1, 2, 3, 4);

test('a tunnelled port-forward: bytes as they are both ways, and the end', async (t) => {
  const seen: IncomingMessage[] = [];
  const backend = await listen(t, (request, socket) => {
    seen.push(request);
    socket.write(`${spdy}portforward.k8s.io\r\n\r\nfirst`);
    socket.on('data', (bytes: Buffer) => (bytes.includes('quit') ? socket.end('BYE') : socket.write(bytes.toString().toUpperCase())));
  });
  const socket = await tunnel(t, backend);
  const { head, rest } = await answer(socket);
  assert.match(head, /^HTTP\/1\.1 101 /);
  assert.match(head, /^Sec-WebSocket-Protocol: SPDY\/3\.1\+portforward\.k8s\.io\r$/m);
  assert.match(head, /^Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=\r$/m);
  const [request] = seen;
  assert.equal(request?.method, 'POST');
  assert.deepEqual([request?.headers.upgrade, request?.headers['x-stream-protocol-version']], ['SPDY/3.1', 'portforward.k8s.io']);
  assert.equal(request?.headers['sec-websocket-key'], undefined);
  socket.write(webSocketMessage(Buffer.alloc(300_000, 'a'), mask));
  socket.write(webSocketMessage(Buffer.from('quit'), mask));
  const reader = new WebSocketReader();
  const events = reader.push(rest);
  for await (const chunk of socket) events.push(...reader.push(chunk as Buffer));
  const text = events.map((event) => (event.type === 'message' ? Buffer.from(event.bytes).toString() : '')).join('');
  assert.equal(text.replaceAll('A', ''), 'firstBYE');
  // "quit" may come in one read with what is before it, which is then not said back.
  assert.equal(events.at(-1)?.type, 'close');
});

test('a tunnelled port-forward that the runtime refuses gets the runtime’s answer', async (t) => {
  const backend = await listen(t, (_request, socket) => socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone'));
  const socket = await tunnel(t, backend);
  const { head } = await answer(socket);
  assert.match(head, /^HTTP\/1\.1 404 Not Found\r\n/);
});

test('pings of a client that reads no answer are not kept', async () => {
  // A connection whose other end takes nothing.
  const stuck = new Duplex({ read: () => undefined, write: () => undefined });
  const messages = new FromWebSocket(stuck, new Uint8Array(0), (message) => [message]);
  const ping = Uint8Array.from(webSocketMessage(new Uint8Array(125), Uint8Array.of(1, 2, 3, 4)));
  ping[0] = 0x89;
  const many = Buffer.concat(Array.from({ length: 1000 }, () => ping));
  const whole = webSocketMessage(Buffer.from('still heard'), Uint8Array.of(1, 2, 3, 4));
  for (let count = 0; count < 50; count += 1) stuck.push(many);
  stuck.push(whole);
  const [heard] = (await once(messages, 'data')) as [Buffer];
  assert.equal(heard.toString(), 'still heard');
  assert.ok(stuck.writableLength < 2 * 1024 * 1024, `${stuck.writableLength} bytes wait`);
  stuck.destroy();
});
