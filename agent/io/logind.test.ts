import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { decodeMessage, encodeMessage } from '../core/dbus/messages.ts';
import type { DbusMessage } from '../core/dbus/messages.ts';
import { openLogind } from './logind.ts';

const users: Readonly<Record<string, number>> = { ':1.2': 0, ':1.66': 1000 };

function answer({ member, body: [about] }: DbusMessage): Pick<DbusMessage, 'type' | 'signature' | 'body' | 'errorName'> {
  if (member === 'Hello') return { type: 'return', signature: 's', body: [':1.1'] };
  if (member !== 'GetConnectionUnixUser') return { type: 'return', body: [] };
  const uid = users[about as string];
  return uid === undefined
    ? { type: 'error', errorName: 'org.freedesktop.DBus.Error.NameHasNoOwner', signature: 's', body: ['gone'] }
    : { type: 'return', signature: 'u', body: [uid] };
}

/** A bus that knows who its connections are. */
function serve(socket: Socket, onMessage: (message: DbusMessage) => void = () => undefined): void {
  let data = Buffer.alloc(0);
  let talks = false;
  socket.on('data', (chunk: Buffer) => {
    data = Buffer.concat([data, chunk]);
    if (!talks) {
      const end = data.indexOf('BEGIN\r\n');
      if (end < 0) return;
      talks = true;
      data = data.subarray(end + 7);
      socket.write('OK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n');
    }
    for (let next = decodeMessage(data); next !== null; next = decodeMessage(data)) {
      data = data.subarray(next.size);
      onMessage(next.message);
      socket.write(encodeMessage({ ...answer(next.message), replySerial: next.message.serial, serial: 1 }));
    }
  });
}

async function setUp(t: TestContext, serve: (socket: Socket) => void) {
  const folder = await mkdtemp(join(tmpdir(), 'bus-'));
  t.after(() => rm(folder, { recursive: true }));
  const path = join(folder, 'socket');
  const server = createServer(serve).listen(path);
  t.after(() => server.close());
  await once(server, 'listening');
  const connected = once(server, 'connection') as Promise<[Socket]>;
  const notAsked = (): Promise<never> => Promise.reject(new Error('not asked here'));
  const options = { clock: realClock, sys: { holdDescriptor: notAsked }, systemd: { kill: notAsked }, uid: 0, socket: path };
  const logind = await openLogind(options, t.signal);
  t.after(() => logind[Symbol.asyncDispose]());
  const told: boolean[] = [];
  await logind.follow((begins) => told.push(begins), t.signal);
  const [socket] = await connected;
  const signal = { type: 'signal', serial: 9, path: '/org/freedesktop/login1', interface: 'org.freedesktop.login1.Manager' } as const;
  const tell = (sender: string, begins: boolean): void =>
    void socket.write(encodeMessage({ ...signal, member: 'PrepareForShutdown', sender, signature: 'b', body: [begins] }));
  const both = async (): Promise<void> => {
    for (let i = 0; told.length < 2 && i < 1000; i++) await delay(5);
    assert.deepEqual(told, [true, false]);
  };
  return { tell, both };
}

test('a shutdown is believed from root, and from nobody else on the bus', async (t) => {
  const { tell, both } = await setUp(t, (socket) => serve(socket));
  tell(':1.66', true);
  tell(':1.7', true);
  tell(':1.2', true);
  tell(':1.2', false);
  await both();
});

test('a flood of others is not asked about for ever, and root is heard in it', async (t) => {
  let asked = 0;
  const { tell, both } = await setUp(t, (socket) => serve(socket, ({ member }) => (asked += member === 'GetConnectionUnixUser' ? 1 : 0)));
  for (let i = 0; i < 5000; i++) tell(':1.66', true);
  tell(':1.2', true);
  tell(':1.2', false);
  await both();
  assert.ok(asked < 500, `${asked} questions`);
});
