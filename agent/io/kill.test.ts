import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { LifecycleHandler, Pod } from '../../proto/kube/types.ts';
import type { Cri } from './cri.ts';
import { killContainers, type KillContext, type KillDeps } from './kill.ts';

/** A container with that hook is ended with a grace of 30 s; its hook never ends by itself. */
function world(preStop: LifecycleHandler) {
  const clock = createFakeClock();
  const stops: number[] = [];
  const told: string[] = [];
  const hook = Promise.withResolvers<{ ok: false; message: string }>();
  let signal: AbortSignal | undefined;
  const stopContainer = async ({ timeout }: { timeout: number }): Promise<object> => (stops.push(timeout), {});
  const deps: KillDeps = {
    cri: { runtime: { stopContainer } } as unknown as Cri,
    clock,
    log: silentLog,
    timeoutMs: 1000,
    hooks: {
      run: (...args) => {
        signal = args[6];
        return hook.promise;
      },
    },
  };
  const pod = { metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [{ name: 'm', lifecycle: { preStop } }] } } as unknown as Pod;
  const context: KillContext = { pod, podIPs: [], preStopBegun: new Set(), tell: ({ reason }) => void told.push(reason) };
  const kill = { containerId: 'c', name: 'm', message: 'Stopping container m', graceSeconds: 30, preStop: true, after: [] };
  const ended = killContainers(deps, context, [kill], new AbortController().signal);
  return { clock, stops, told, hook, ended, signal: () => signal };
}

test('a command that outlives the grace period runs on, and its container gets two seconds more', async () => {
  const { clock, stops, told, hook, ended, signal } = world({ exec: { command: ['loop'] } });
  await clock.advance(29_999);
  assert.deepEqual(stops, []);
  await clock.advance(1);
  await ended;
  assert.deepEqual(stops, [2]);
  assert.equal(signal()?.aborted, false);
  // As its container ends, so does the command.
  hook.resolve({ ok: false, message: 'exited with 137' });
  await clock.advance(0);
  assert.deepEqual(told, ['Killing', 'FailedPreStopHook']);
});

test('a pause or a request that outlives the grace period is given up', async () => {
  const { clock, stops, told, hook, ended, signal } = world({ sleep: { seconds: 3600 } });
  await clock.advance(30_000);
  await ended;
  assert.deepEqual(stops, [2]);
  assert.equal(signal()?.aborted, true);
  hook.resolve({ ok: false, message: 'stopped' });
  await clock.advance(0);
  assert.deepEqual(told, ['Killing']);
});
