import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../../base/fake-clock.ts';
import { silentLog } from '../../../base/log.ts';
import type { CSIDriver } from '../../../proto/kube/types.ts';
import { followAllocatable, type AllocatableOptions } from './allocatable.ts';

test('a driver is asked as often as its CSIDriver says; one that hangs holds up no other', async () => {
  const clock = createFakeClock();
  const asked: string[] = [];
  const periods: Record<string, number | undefined> = { slow: 10, often: 20, never: undefined };
  const drivers = {
    list: () => Object.keys(periods).map((name) => ({ name })),
    tellNode: async (name: string) => {
      asked.push(`${name} ${clock.monoMs() / 1000}`);
      if (name === 'slow') await new Promise(() => undefined);
      if (asked.length < 3) throw new Error('no');
    },
  } as unknown as AllocatableOptions['drivers'];
  const objects = { peek: (name: string): CSIDriver => ({ metadata: { name }, spec: { nodeAllocatableUpdatePeriodSeconds: periods[name] } }) };
  const stop = new AbortController();
  const beganMs = clock.monoMs();
  const done = followAllocatable({ clock, log: silentLog, drivers, objects }, stop.signal);
  await clock.advance(65_000);
  assert.deepEqual(asked, [`slow ${beganMs / 1000 + 10}`, ...[20, 40, 60].map((seconds) => `often ${beganMs / 1000 + seconds}`)]);
  periods['often'] = undefined;
  await clock.advance(60_000);
  assert.equal(asked.length, 4);
  stop.abort();
  await done;
});
