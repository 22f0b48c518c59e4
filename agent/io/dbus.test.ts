import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { duplexPair } from 'node:stream';
import { test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { decodeMessage, encodeMessage } from '../core/dbus/messages.ts';
import type { DbusMessage } from '../core/dbus/messages.ts';
import { DbusError, openDbus } from './dbus.ts';
import type { Dbus } from './dbus.ts';

/** A peer that answers what the test says; what it sends comes in pieces of `piece` bytes. */
async function world(answer: (call: DbusMessage) => Omit<DbusMessage, 'serial'> | null, piece = 5, refuse = false) {
  const [ours, theirs] = duplexPair();
  const clock = createFakeClock();
  let data = Buffer.alloc(0);
  let authenticated = false;
  let serial = 0;
  const send = (bytes: Uint8Array): void => {
    for (let at = 0; at < bytes.length; at += piece) theirs.write(bytes.subarray(at, at + piece));
  };
  theirs.on('data', (chunk: Buffer) => {
    data = Buffer.concat([data, chunk]);
    if (!authenticated) {
      const end = data.indexOf('BEGIN\r\n');
      if (end < 0) return;
      authenticated = true;
      data = data.subarray(end + 7);
      send(Buffer.from(refuse ? 'REJECTED EXTERNAL\r\n' : 'OK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n'));
    }
    for (let next = decodeMessage(data); next !== null; next = decodeMessage(data)) {
      data = data.subarray(next.size);
      const message = answer(next.message);
      if (message !== null) send(encodeMessage({ replySerial: next.message.serial, ...message, serial: (serial += 1) }));
    }
  });
  const opened = openDbus(ours, 'the test', { clock, uid: 0, peer: 'bus' });
  return { opened, clock, theirs, send };
}

const call = { path: '/a', interface: 'b.c', member: 'D' };
const greeted = (message: DbusMessage): Omit<DbusMessage, 'serial'> | null =>
  message.member === 'Hello' ? { type: 'return', signature: 's', body: [':1.1'] } : null;

test('answers go to their calls, in whatever order and pieces they come', async () => {
  const { opened } = await world((message) => greeted(message) ?? { type: 'return', signature: 's', body: [`re ${message.body[0] as string}`] });
  await using bus: Dbus = await opened;
  const answers = await Promise.all(['x', 'y'].map((text) => bus.call({ ...call, signature: 's', body: [text] }, { timeoutMs: 100 })));
  assert.deepEqual(answers, [['re x'], ['re y']]);
});

test('a refusal has its name, and a code', async () => {
  const refusal = { type: 'error', errorName: 'org.freedesktop.systemd1.UnitExists', signature: 's', body: ['Unit a.slice already exists.'] } as const;
  const { opened } = await world((message) => greeted(message) ?? refusal);
  await using bus: Dbus = await opened;
  await assert.rejects(
    bus.call(call, { timeoutMs: 100 }),
    (error) => error instanceof DbusError && error.dbusName === refusal.errorName && hasCode(error, 'exists'),
  );
});

test('signals are told', async () => {
  const { opened, send } = await world(greeted, 1);
  await using bus: Dbus = await opened;
  const got = Promise.withResolvers<DbusMessage>();
  using _ = bus.onSignal((signal) => got.resolve(signal));
  send(encodeMessage({ type: 'signal', serial: 9, path: '/a', interface: 'b', member: 'JobRemoved', signature: 'us', body: [4, 'done'] }));
  assert.deepEqual((await got.promise).body, [4, 'done']);
});

test('a signal that was sent to us alone is none: a bus lets anybody send one', async () => {
  const { opened, send } = await world(greeted, 1);
  await using bus: Dbus = await opened;
  const got: unknown[] = [];
  const last = Promise.withResolvers<void>();
  using _ = bus.onSignal(({ body }) => {
    got.push(body[0]);
    if (body[0] === 'told to all') last.resolve();
  });
  const signal = { type: 'signal', path: '/org/freedesktop/login1', interface: 'b', member: 'PrepareForShutdown', signature: 's' } as const;
  send(encodeMessage({ ...signal, serial: 9, destination: ':1.1', sender: ':1.66', body: ['sent to us'] }));
  send(encodeMessage({ ...signal, serial: 10, sender: ':1.2', body: ['told to all'] }));
  await last.promise;
  assert.deepEqual(got, ['told to all']);
});

test('a login that never ends, and a caller that stops before it has', async () => {
  const [ours, theirs] = duplexPair();
  const endless = assert.rejects(openDbus(ours, 'the test', { clock: createFakeClock(), uid: 0, peer: 'bus' }), /a login without an end/);
  theirs.write('OK '.padEnd(100_000, 'x'));
  await endless;
  const stop = new AbortController();
  const stopped = assert.rejects(openDbus(duplexPair()[0], 'the test', { clock: createFakeClock(), uid: 0, peer: 'bus' }, stop.signal), (error) =>
    hasCode(error, 'aborted'),
  );
  stop.abort();
  await stopped;
});

test('no answer, a caller that stops, and an end', async () => {
  const { opened, clock, theirs } = await world(greeted);
  await using bus: Dbus = await opened;
  const late = assert.rejects(bus.call(call, { timeoutMs: 100 }), (error) => hasCode(error, 'deadline'));
  await clock.advance(100);
  await late;
  const stop = new AbortController();
  const stopped = assert.rejects(bus.call(call, { timeoutMs: 100, signal: stop.signal }), (error) => hasCode(error, 'aborted'));
  stop.abort();
  await stopped;
  const cut = assert.rejects(bus.call(call, { timeoutMs: 100 }), (error) => hasCode(error, 'unavailable'));
  theirs.end();
  await cut;
  await bus.ended;
  await assert.rejects(bus.call(call, { timeoutMs: 100 }), (error) => hasCode(error, 'unavailable'));
});

test('one that does not know us, and one that sends something else', async () => {
  await assert.rejects((await world(greeted, 5, true)).opened, (error) => hasCode(error, 'denied') && /REJECTED/.test(String(error)));
  const { opened, send } = await world(greeted);
  const bus = await opened;
  send(Buffer.from('HTTP/1.1 400 Bad Request\r\n'));
  await bus.ended;
});
