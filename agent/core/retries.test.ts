import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Retries } from './retries.ts';

test('a start that failed comes again after 10 to 15 seconds, always, and other pods at other times', () => {
  const pauses = (uid: string): number[] => {
    const retries = new Retries(uid);
    return Array.from({ length: 8 }, () => retries.startPauseMs(false));
  };
  for (const ms of [...pauses('a'), ...pauses('b')]) assert.ok(ms >= 10_000 && ms <= 15_000, String(ms));
  assert.notDeepEqual(pauses('a'), pauses('b'));
  assert.ok(new Set(pauses('a')).size > 4, 'not in step with itself either');
});

test('a try that made something is followed by the next within a second; all else grows to ten', () => {
  const retries = new Retries('a');
  assert.equal(retries.isBehind, false);
  assert.equal(retries.startPauseMs(true), 1000);
  assert.equal(retries.isBehind, true);
  assert.deepEqual(
    Array.from({ length: 6 }, () => retries.pauseMs()),
    [1000, 2000, 4000, 8000, 10_000, 10_000],
  );
  retries.done();
  assert.deepEqual([retries.isBehind, retries.pauseMs()], [false, 1000]);
});
