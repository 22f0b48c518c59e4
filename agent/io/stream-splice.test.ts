import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer, type AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { splice } from './stream-splice.ts';

/** A connection that takes its time for every write, as one with encryption and a busy machine does. */
function slowClient(received: Buffer[], failWrites = false): Duplex {
  return new Duplex({
    read() {},
    write(chunk: Buffer, _encoding, done) {
      setTimeout(() => {
        if (!failWrites) received.push(chunk);
        done(failWrites ? new Error('broken') : null);
      }, 50);
    },
  });
}

const request = { method: 'POST', url: '/exec/x', rawHeaders: ['Upgrade', 'SPDY/3.1', 'Connection', 'Upgrade'] } as unknown as IncomingMessage;

test('what the runtime said before it reset its connection reaches the client', async () => {
  const server = createServer((socket) => {
    socket.once('data', () => {
      // The runtime closes while bytes of the client lie unread in its socket: the kernel makes a reset of that.
      socket.write('HTTP/1.1 101 Switching Protocols\r\n\r\noutput', () => socket.resetAndDestroy());
    });
    socket.on('error', () => undefined);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const received: Buffer[] = [];
    const client = slowClient(received);
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/exec/token`);
    await splice(request, client, Buffer.alloc(0), url, new AbortController().signal);
    assert.equal(Buffer.concat(received).toString(), 'HTTP/1.1 101 Switching Protocols\r\n\r\noutput');
    assert.ok(client.destroyed);
  } finally {
    server.close();
  }
});

test('a client that breaks takes the runtime’s connection down', async () => {
  const ended = Promise.withResolvers<void>();
  const server = createServer((socket) => {
    socket.once('data', () => void socket.write('HTTP/1.1 101 Switching Protocols\r\n\r\n'));
    socket.on('error', () => undefined).on('close', () => ended.resolve());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/exec/token`);
    await splice(request, slowClient([], true), Buffer.alloc(0), url, new AbortController().signal);
    const late = new AbortController();
    await Promise.race([ended.promise, delay(5_000, undefined, { signal: late.signal }).then(() => assert.fail('the runtime’s connection stayed open'))]);
    late.abort();
  } finally {
    server.close();
  }
});
