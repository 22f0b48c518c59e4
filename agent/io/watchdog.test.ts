import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { FakeSys } from '../../base/sys/fake.ts';
import { keepWatchdog } from './watchdog.ts';

test('the service manager is told while all is well, and not while it is not', async () => {
  const clock = createFakeClock();
  const sys = new FakeSys();
  const stop = new AbortController();
  let trouble: string | null = null;
  const run = keepWatchdog({ clock, sys, log: silentLog, periodMs: 15_000, unhealthy: () => trouble }, stop.signal);
  await clock.advance(46_000);
  assert.deepEqual(sys.notified, ['WATCHDOG=1', 'WATCHDOG=1', 'WATCHDOG=1']);
  trouble = 'pleg was last seen active 4m ago';
  await clock.advance(60_000);
  assert.equal(sys.notified.length, 3);
  stop.abort();
  await run;
});
