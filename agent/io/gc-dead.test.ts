import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { silentLog } from '../../base/log.ts';
import type { PodFacts } from '../core/types.ts';
import { DeadContainers } from './gc-dead.ts';

test('pods that changed are looked at once each, ended ones not; a failure stops nothing', async () => {
  const looked: string[] = [];
  let tell: (uids: readonly string[]) => void = () => {};
  const facts = (uid: string): PodFacts => ({ uid, namespace: 'n', name: uid, sandboxes: [], containers: [] });
  const dead = new DeadContainers({
    log: silentLog,
    pods: { allFacts: () => ['a', 'b', 'ended'].map(facts), mayRun: (uid) => uid !== 'ended', onRuntimeChange: (callback) => void (tell = callback) },
    gc: {
      async deadPass({ uid }) {
        looked.push(uid);
        if (uid === 'a') throw new Error('refused');
      },
    },
  });
  const stop = new AbortController();
  const running = dead.run(stop.signal);
  tell(['a', 'ended', 'gone', 'b', 'a']);
  await setImmediate();
  tell(['b']);
  await setImmediate();
  assert.deepEqual(looked, ['a', 'b', 'b']);
  stop.abort();
  await running;
});
