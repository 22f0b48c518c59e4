import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode, OpError } from './errors.ts';
import { createFakeClock } from './fake-clock.ts';
import { backoffMs, createKeyedBackoff, retry } from './retry.ts';
import { realRng, seededRng } from './rng.ts';

const delays = { baseMs: 100, maxMs: 1000, jitter: 0 };

test('delays double up to the cap and chance only lengthens them', () => {
  assert.deepEqual(
    [1, 2, 3, 4, 5, 50].map((n) => backoffMs(n, delays, seededRng(1))),
    [100, 200, 400, 800, 1000, 1000],
  );
  for (let n = 1; n < 100; n++) {
    const ms = backoffMs(n, { ...delays, jitter: 0.5 }, realRng);
    assert.ok(ms >= Math.min(1000, 100 * 2 ** (n - 1)) && ms < 1500);
  }
});

test('it tries again after what can pass, and only after that', async () => {
  const clock = createFakeClock();
  const at: number[] = [];
  const working = retry({ ...delays, clock, rng: seededRng(1) }, async (count) => {
    at.push(clock.monoMs());
    if (count < 4) throw new OpError('unavailable', 'dial', 'refused');
    return 'up';
  });
  await clock.advance(10_000);
  assert.equal(await working, 'up');
  assert.deepEqual(at, [0, 100, 300, 700]);
  await assert.rejects(
    retry({ ...delays, clock, rng: seededRng(1) }, () => Promise.reject(new OpError('invalid', 'parse', 'no'))),
    (error) => hasCode(error, 'invalid'),
  );
});

test('it gives up after its attempts, and at once when aborted', async () => {
  const clock = createFakeClock();
  let tries = 0;
  const failing = retry({ ...delays, clock, rng: seededRng(1), attempts: 3 }, () => {
    tries++;
    return Promise.reject(new OpError('deadline', 'call', 'late'));
  }).catch((error: unknown) => error);
  await clock.advance(10_000);
  assert.ok(hasCode(await failing, 'deadline'));
  assert.equal(tries, 3);

  const stop = new AbortController();
  const endless = retry({ ...delays, clock, rng: seededRng(1) }, () => Promise.reject(new OpError('deadline', 'call', 'late')), stop.signal).catch(
    (error: unknown) => error,
  );
  await clock.advance(50);
  stop.abort();
  assert.ok(hasCode(await endless, 'aborted'));
  assert.equal(clock.armed, 0);
});

test('keys earn their delays apart and a success forgets them', () => {
  const backoff = createKeyedBackoff(delays, seededRng(1));
  assert.deepEqual([backoff.failed('a'), backoff.failed('a'), backoff.failed('b')], [100, 200, 100]);
  backoff.succeeded('a');
  assert.equal(backoff.failures('a'), 0);
  assert.equal(backoff.failed('a'), 100);
});
