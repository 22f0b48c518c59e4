import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode } from './errors.ts';
import { createFakeClock } from './fake-clock.ts';

test('timers run in order of time, then of arming, and see the time they were due', async () => {
  const clock = createFakeClock(0);
  const seen: string[] = [];
  clock.after(20, () => seen.push(`b@${clock.monoMs()}`));
  clock.after(10, () => seen.push(`a@${clock.monoMs()}`));
  clock.after(20, () => seen.push(`c@${clock.nowMs()}`));
  await clock.advance(15);
  assert.deepEqual(seen, ['a@10']);
  await clock.advance(15);
  assert.deepEqual(seen, ['a@10', 'b@20', 'c@20']);
  assert.equal(clock.monoMs(), 30);
});

test('a loop that sleeps again after each wake is not stepped over', async () => {
  const clock = createFakeClock();
  let rounds = 0;
  const stop = new AbortController();
  const loop = (async () => {
    for (;;) {
      await clock.sleep(1000, stop.signal);
      await new Promise((resolve) => setImmediate(resolve));
      rounds++;
    }
  })().catch((error: unknown) => error);
  await clock.advance(10_000);
  assert.equal(rounds, 10);
  stop.abort();
  assert.ok(hasCode(await loop, 'aborted'));
  assert.equal(clock.armed, 0);
});

test('a disposed timer does not run, an aborted sleep never arms', async () => {
  const clock = createFakeClock();
  clock.after(5, () => assert.fail('disposed'))[Symbol.dispose]();
  await assert.rejects(clock.sleep(5, AbortSignal.abort()), (error) => hasCode(error, 'aborted'));
  assert.equal(clock.armed, 0);
  await clock.advance(10);
});

test('a wall clock jump leaves durations alone', async () => {
  const clock = createFakeClock(1_000_000);
  const sleeping = clock.sleep(50);
  clock.jumpWall(-3_600_000);
  await clock.advance(50);
  await sleeping;
  assert.equal(clock.monoMs(), 50);
  assert.equal(clock.nowMs(), 1_000_050 - 3_600_000);
});

test('advanceUntil stops at the timer that makes the condition true', async () => {
  const clock = createFakeClock();
  let done = false;
  clock.after(30, () => (done = true));
  clock.after(60, () => assert.fail('too far'));
  await clock.advanceUntil(() => done, 100);
  assert.equal(clock.monoMs(), 30);
  await assert.rejects(
    clock.advanceUntil(() => false, 10),
    /does not hold/,
  );
});
