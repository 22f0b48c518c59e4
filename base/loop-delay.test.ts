import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { test } from 'node:test';
import { watchLoopDelay } from './loop-delay.ts';

const value = (text: string, series: string): number =>
  Number(
    text
      .split('\n')
      .find((line) => line.startsWith(`${series} `))
      ?.split(' ')[1],
  );

test('a blocked loop shows in the reading after it and stays in the totals', async () => {
  using loop = watchLoopDelay();
  await delay(30);
  const until = performance.now() + 60;
  while (performance.now() < until);
  await delay(30);
  const text = loop.text();
  assert.ok(value(text, 'nodelet_event_loop_delay_recent_seconds{quantile="1"}') >= 0.04, text);
  assert.ok(value(text, 'nodelet_event_loop_delay_seconds_count') >= 2);
  const later = loop.text();
  assert.equal(value(later, 'nodelet_event_loop_delay_recent_seconds{quantile="1"}'), 0);
  assert.ok(value(later, 'nodelet_event_loop_delay_max_seconds') >= 0.04);
  assert.ok(value(later, 'nodelet_event_loop_delay_seconds_bucket{le="+Inf"}') >= 2);
});
