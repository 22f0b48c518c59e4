import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { decodeMessage, encodeMessage } from '../core/dbus/messages.ts';
import type { DbusMessage } from '../core/dbus/messages.ts';
import { createSystemd } from './systemd.ts';

type Said = Omit<DbusMessage, 'serial'>;

/** A bus with a systemd behind it that answers what the test says; `open` are the connections to it. */
async function bus(answer: (call: DbusMessage, send: (message: Said) => void) => Said | null) {
  const dir = await mkdtemp(join(tmpdir(), 'systemd-'));
  const open = new Set<Socket>();
  const server = createServer((socket) => {
    open.add(socket);
    socket.on('error', () => socket.destroy()).on('close', () => open.delete(socket));
    let data = Buffer.alloc(0);
    let isIn = false;
    let serial = 0;
    const send = (message: Said): void => void socket.write(encodeMessage({ ...message, serial: (serial += 1) }));
    socket.on('data', (chunk: Buffer) => {
      data = Buffer.concat([data, chunk]);
      if (!isIn) {
        data = data.subarray(data.indexOf('BEGIN\r\n') + 7);
        isIn = true;
        socket.write('OK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n');
      }
      for (let next = decodeMessage(data); next !== null; next = decodeMessage(data)) {
        data = data.subarray(next.size);
        const { message } = next;
        const said = message.member === 'Hello' || message.member === 'AddMatch' ? ({ type: 'return', body: [] } as const) : answer(message, send);
        if (said !== null) send({ replySerial: message.serial, ...said });
      }
    });
  });
  server.listen(join(dir, 'bus'));
  await once(server, 'listening');
  return {
    open,
    systemd: createSystemd({ clock: realClock, log: silentLog, uid: 0, sockets: [{ path: join(dir, 'bus'), peer: 'bus' }] }),
    async [Symbol.asyncDispose]() {
      for (const socket of open) socket.destroy();
      server.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const signal = AbortSignal.timeout(30_000);
const done = { type: 'return', body: [] } as const;
const away = { type: 'error', errorName: 'org.freedesktop.DBus.Error.ServiceUnknown', signature: 's', body: ['systemd is not there'] } as const;

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await realClock.sleep(5, signal);
}

test('a systemd that is away costs no connection more, however often it is asked', async () => {
  await using world = await bus(({ member }) => (member === 'Subscribe' ? done : away));
  await using systemd = world.systemd;
  for (let count = 0; count < 5; count += 1) {
    await assert.rejects(systemd.kill('a.slice', 1, signal), (error) => hasCode(error, 'unavailable'));
    await until(() => world.open.size <= 1);
  }
});

test('one that does not let us subscribe is left again', async () => {
  await using world = await bus(() => ({ type: 'error', errorName: 'org.freedesktop.DBus.Error.AccessDenied', signature: 's', body: ['no'] }));
  await using systemd = world.systemd;
  for (let count = 0; count < 5; count += 1) await assert.rejects(systemd.kill('a.slice', 1, signal), (error) => hasCode(error, 'denied'));
  await until(() => world.open.size === 0);
});

test('a job whose connection is lost is not waited for, and the next one has a new connection', async () => {
  let jobs = 0;
  await using world = await bus(({ member }, send) => {
    if (member !== 'StartTransientUnit') return done;
    jobs += 1;
    const path = `/job/${jobs}`;
    if (jobs === 1) setImmediate(() => world.open.forEach((socket) => socket.destroy()));
    else {
      const removed = { interface: 'org.freedesktop.systemd1.Manager', member: 'JobRemoved', signature: 'uoss', body: [jobs, path, 'a.slice', 'done'] };
      setImmediate(() => send({ type: 'signal', path: '/org/freedesktop/systemd1', ...removed }));
    }
    return { type: 'return', signature: 'o', body: [path] };
  });
  await using systemd = world.systemd;
  await assert.rejects(systemd.startSlice('a.slice', [], signal), (error) => hasCode(error, 'unavailable'));
  assert.equal(await systemd.startSlice('a.slice', [], signal), 'started');
  assert.equal(world.open.size, 1);
});
