import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { takeLockFile } from './lock-file.ts';

test('who wants the lock file waits for it, and who has it hears of that where it asked', async () => {
  const sys = createFakeSys();
  const clock = createFakeClock();
  const { signal } = new AbortController();
  const options = { sys, clock, log: silentLog, path: '/run/lock' };
  let contended = 0;
  const first = await takeLockFile({ ...options, onContention: () => void (contended += 1) }, signal);
  assert.equal(contended, 0);
  let has = false;
  const second = takeLockFile({ ...options, onContention: null }, signal).then((lock) => {
    has = true;
    return lock;
  });
  await clock.advance(5_000);
  assert.deepEqual([has, contended > 0], [false, true]);
  await first?.[Symbol.asyncDispose]();
  await clock.advance(1_000);
  await (await second)?.[Symbol.asyncDispose]();
});

test('a wait for the lock file ends with its signal', async () => {
  const sys = createFakeSys();
  const clock = createFakeClock();
  const stop = new AbortController();
  const options = { sys, clock, log: silentLog, path: '/run/lock', onContention: null };
  await using _held = await takeLockFile(options, stop.signal);
  const waiting = assert.rejects(takeLockFile(options, stop.signal));
  await clock.advance(1_500);
  stop.abort();
  await waiting;
});

test('a lock that somebody else has now is contended, too', async () => {
  const losses: ((error: unknown) => void)[] = [];
  const sys = {
    lock: async (_path: string, onLost?: (error: unknown) => void): Promise<AsyncDisposable> => {
      losses.push((error) => onLost?.(error));
      return { [Symbol.asyncDispose]: async () => {} };
    },
  };
  const { signal } = new AbortController();
  let contended = 0;
  for (const onContention of [() => void (contended += 1), null]) {
    await using _held = await takeLockFile({ sys, clock: createFakeClock(), log: silentLog, path: '/run/lock', onContention }, signal);
    losses.pop()!(new OpError('conflict', 'lock /run/lock', 'held by another process'));
    assert.equal(contended, 1);
  }
});
