import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { FakeEvents } from '../fake.ts';
import { watchOom } from './oom-watch.ts';

const target = { apiVersion: 'v1', kind: 'Node', name: 'n1', namespace: '', uid: 'n1' };

test('the node tells of the machine’s want of memory; without the kernel’s log it goes on', async () => {
  const events = new FakeEvents();
  const stop = new AbortController();
  let tell: (record: string) => void = () => undefined;
  let left = false;
  const sys = {
    followKernelLog: async (onRecord: (record: string) => void) => {
      tell = onRecord;
      return { [Symbol.asyncDispose]: async () => void (left = true) };
    },
  };
  const running = watchOom({ sys, log: silentLog, events, target }, stop.signal);
  await new Promise(setImmediate);
  tell('4,1,1,-;a invoked oom-killer: x');
  tell('4,2,1,-;Out of memory: Killed process 7 (a) total-vm:1kB');
  assert.deepEqual(events.lines, ['Warning SystemOOM n1: System OOM encountered, victim process: a, pid: 7']);
  stop.abort();
  await running;
  assert.ok(left);
  const denied = { followKernelLog: async () => Promise.reject(new OpError('denied', 'open /dev/kmsg', 'EPERM')) };
  const again = new AbortController();
  const waits = watchOom({ sys: denied, log: silentLog, events, target }, again.signal);
  again.abort();
  await waits;
});
