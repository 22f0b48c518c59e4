import assert from 'node:assert/strict';
import { test } from 'node:test';
import { watchdogPeriodMs } from './watchdog.ts';

test('half of what the service manager waits, if it waits for us', () => {
  assert.equal(watchdogPeriodMs({}, 7), null);
  assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '30000000', WATCHDOG_PID: '7' }, 7), 15_000);
  assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '30000000' }, 7), 15_000);
  assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '30000000', WATCHDOG_PID: '8' }, 7), null);
  assert.equal(watchdogPeriodMs({ WATCHDOG_USEC: '1000000' }, 7), 'configure watchdog timeout too small: 1s');
  assert.match(String(watchdogPeriodMs({ WATCHDOG_USEC: 'soon' }, 7)), /WATCHDOG_USEC/);
});
