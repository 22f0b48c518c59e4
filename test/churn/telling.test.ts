import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { progressText, tellEvery } from './telling.ts';

test('how far a run is, in a line', () => {
  const deeds = { create: 12, delete: 9, 'delete refused': 1, 'kill -9 agent': 3, 'kill -9 containerd': 1 };
  assert.equal(
    progressText({ seconds: 45, pods: 15, seen: { events: 230, listings: 170 }, deeds, violations: 0 }),
    '45 s: 15 pods, 26 deeds, 3 kill -9 agent, 1 kill -9 containerd; seen 230 changes, 170 listings, 0 violations',
  );
});

test('something is told every so often until that is ended', async () => {
  const clock = createFakeClock();
  let told = 0;
  {
    using _telling = tellEvery(clock, 15_000, () => void (told += 1));
    await clock.advance(14_000);
    assert.equal(told, 0);
    await clock.advance(31_000);
    assert.equal(told, 3);
  }
  await clock.advance(60_000);
  assert.equal(told, 3);
});
