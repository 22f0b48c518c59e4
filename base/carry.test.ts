import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { test } from 'node:test';
import { carry } from './carry.ts';

async function listen(onConnection: (socket: Socket) => void): Promise<{ server: Server; port: number }> {
  const server = createServer({ allowHalfOpen: true }, onConnection);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { server, port: (server.address() as AddressInfo).port };
}

/** A client, a middle that carries both ways, and a backend. */
async function chain(onBackend: (socket: Socket) => void, endMs?: number): Promise<{ client: Socket; middle: Promise<[Socket, Socket]>; end: () => void }> {
  const backend = await listen(onBackend);
  const { promise: middle, resolve } = Promise.withResolvers<[Socket, Socket]>();
  const front = await listen((socket) => {
    const upstream = connect(backend.port, '127.0.0.1');
    carry(socket, upstream, endMs);
    carry(upstream, socket, endMs);
    const stop = (): void => {
      socket.destroy();
      upstream.destroy();
    };
    socket.on('error', stop).on('close', stop);
    upstream.on('error', stop).on('close', stop);
    resolve([socket, upstream]);
  });
  const client = connect(front.port, '127.0.0.1');
  client.on('error', () => undefined);
  const end = (): void => {
    client.destroy();
    front.server.close();
    backend.server.close();
  };
  return { client, middle, end };
}

test('every byte arrives, also when the receiver is slow', async () => {
  let received = 0;
  const done = Promise.withResolvers<void>();
  const { client, end } = await chain((socket) => {
    socket.on('data', (chunk: Buffer) => {
      received += chunk.byteLength;
      socket.pause();
      setTimeout(() => socket.resume(), 1);
    });
    socket.on('end', () => {
      socket.end('got it');
      done.resolve();
    });
  });
  const answer = once(client, 'data');
  client.end(Buffer.alloc(8 * 1024 * 1024, 1));
  await done.promise;
  assert.equal(received, 8 * 1024 * 1024);
  assert.equal(String((await answer)[0]), 'got it');
  end();
});

test('a sender that is gone is noticed although its receiver takes nothing', { timeout: 30_000 }, async () => {
  const backends: Socket[] = [];
  const { client, middle, end } = await chain((socket) => {
    socket.pause();
    socket.on('error', () => undefined);
    backends.push(socket);
  }, 300);
  client.write(Buffer.alloc(20 * 1024 * 1024));
  const [front, upstream] = await middle;
  await new Promise((resolve) => setTimeout(resolve, 300));
  client.destroy();
  if (!front.destroyed) await once(front, 'close');
  assert.ok(front.destroyed && upstream.destroyed);
  for (const socket of backends) socket.destroy();
  end();
});
