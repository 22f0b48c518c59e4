import assert from 'node:assert/strict';
import { test } from 'node:test';
import { realClock } from './clock.ts';

/** A pod may have years to run, which is more than one timer of Node's can wait. */
const yearMs = 365 * 24 * 3600 * 1000;

test('what is due in a year goes off in a year', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let calls = 0;
  using _timer = realClock.after(yearMs, () => (calls += 1));
  const stepMs = 24 * 3600 * 1000;
  for (let day = 1; day < 365; day += 1) t.mock.timers.tick(stepMs);
  assert.equal(calls, 0);
  // Each of the timers that follow one another begins at the end of a step.
  for (let day = 0; day < 16; day += 1) t.mock.timers.tick(stepMs);
  assert.equal(calls, 1);
});

test('a real timer of a year does not go off at once, and can be taken back', async () => {
  let calls = 0;
  const timer = realClock.after(yearMs, () => (calls += 1));
  const stop = new AbortController();
  const slept = realClock.sleep(yearMs, stop.signal).then(
    () => 'slept',
    () => 'stopped',
  );
  await realClock.sleep(20);
  stop.abort();
  assert.equal(await slept, 'stopped');
  assert.equal(calls, 0);
  timer[Symbol.dispose]();
});
