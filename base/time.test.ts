import assert from 'node:assert/strict';
import { test } from 'node:test';
import { durationText } from './duration.ts';
import { timeMs, timeText } from './time.ts';

test('times are written and read as the calendar has them', () => {
  for (const ms of [0, 951_827_696_000, 1_709_164_800_000, 1_735_689_599_000, 4_102_444_800_000]) {
    assert.equal(timeText(ms), new Date(ms).toISOString().replace('.000Z', 'Z'));
    assert.equal(timeMs(timeText(ms)), ms);
  }
  assert.equal(timeMs('2026-01-01T01:00:00.25+01:00'), Date.UTC(2026, 0, 1) + 250);
  assert.equal(timeMs(null), 0);
  assert.equal(timeMs('yesterday'), 0);
});

test('durations as Go prints them', () => {
  assert.deepEqual([0, 770, 3099, 10_000, 80_000, 180_000, 3_725_500].map(durationText), ['0s', '770ms', '3.099s', '10s', '1m20s', '3m0s', '1h2m5.5s']);
});
