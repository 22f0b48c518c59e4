import assert from 'node:assert/strict';
import { test } from 'node:test';
import { atMost, Nap, orAborted } from './abort.ts';
import { OpError } from './errors.ts';
import { createFakeClock } from './fake-clock.ts';
import { Turns } from './turns.ts';

const never = new AbortController().signal;

test('work is waited for, but not for longer than it may take, nor beyond the signal', async () => {
  const clock = createFakeClock();
  assert.equal(await atMost(clock, Promise.resolve(7), 10), true);
  const late = atMost(clock, new Promise(() => {}), 10, never);
  await clock.advance(10);
  assert.equal(await late, false);
  await assert.rejects(atMost(clock, Promise.reject(new Error('broken')), 10), /broken/);
  const stop = new AbortController();
  const cut = atMost(clock, new Promise(() => {}), 10, stop.signal);
  stop.abort(new Error('over'));
  await assert.rejects(cut, /over/);
  await assert.rejects(atMost(clock, new Promise(() => {}), 10, stop.signal), /over/);
});

test('work is waited for until the caller stops', async () => {
  assert.equal(await orAborted(Promise.resolve(7), never, 'count'), 7);
  const stop = new AbortController();
  const cut = orAborted(new Promise(() => {}), stop.signal, 'count');
  stop.abort();
  await assert.rejects(cut, (error) => error instanceof OpError && error.code === 'aborted' && /count/.test(error.message));
});

test('a nap ends when its time is over, when it is broken off, and when there is no more to wait for', async () => {
  const clock = createFakeClock();
  const nap = new Nap();
  nap.wake();
  const whole = nap.take(clock, 10, never);
  await clock.advance(10);
  await whole;
  const broken = nap.take(clock, 10, never);
  nap.wake();
  await broken;
  const endless = nap.take(clock, null, never);
  assert.equal(clock.armed, 0);
  nap.wake();
  await endless;
  const stop = new AbortController();
  const stopped = nap.take(clock, 10, stop.signal);
  stop.abort();
  await stopped;
  await nap.take(clock, 10, stop.signal);
});

test('turns: one thing at a time for a key, in the order asked, also behind one that failed', async () => {
  const turns = new Turns();
  const did: string[] = [];
  const gate = Promise.withResolvers<void>();
  const first = turns.take('a', async () => {
    await gate.promise;
    did.push('first');
    throw new Error('broken');
  });
  const second = turns.take('a', async () => void did.push('second'));
  await turns.take('b', async () => void did.push('other'));
  assert.deepEqual([turns.isTaken('a'), turns.isTaken('b')], [true, false]);
  gate.resolve();
  await assert.rejects(first, /broken/);
  await second;
  assert.equal(turns.isTaken('a'), false);
  assert.deepEqual(did, ['other', 'first', 'second']);
});
