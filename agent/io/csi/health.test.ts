import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../../base/clock.ts';
import { silentLog } from '../../../base/log.ts';
import type { Pod } from '../../../proto/kube/types.ts';
import type { Driver } from './drivers.ts';
import { CsiHealth } from './health.ts';

const pod: Pod = { metadata: { name: 'p', uid: 'u1' }, spec: { containers: [] } };

/** A driver whose calls end as `answer` says; the rest of a driver is not asked for. */
function healthOf(answer: (method: string, signal: AbortSignal | undefined) => Promise<unknown>): { health: CsiHealth; kicked: string[] } {
  const driver = {
    name: 'd',
    capabilities: async () => new Set(['GET_VOLUME_HEALTH', 'GET_STORAGE_HEALTH']),
    call: (method: string, _request: object, options?: { signal?: AbortSignal }) => answer(method, options?.signal),
  } as unknown as Driver;
  const kicked: string[] = [];
  const health = new CsiHealth({
    clock: realClock,
    log: silentLog,
    rootDir: '/nowhere',
    drivers: { list: () => [driver], find: () => driver },
    nodeObject: { tellHealth: async () => undefined },
    volumes: () => [{ pod, name: 'v', driver: 'd', handle: 'h', path: null }],
    kick: (uid) => kicked.push(uid),
    periodMs: 60_000,
  });
  return { health, kicked };
}

test('a driver that does not answer does not hold up the end of the agent', async () => {
  const asked: string[] = [];
  const { health } = healthOf(
    (method, signal) =>
      new Promise((_, reject) => {
        asked.push(method);
        signal?.addEventListener('abort', () => reject(new Error('cancelled')), { once: true });
      }),
  );
  const stop = new AbortController();
  const running = health.run(stop.signal);
  while (asked.length < 2) await delay(5);
  stop.abort();
  assert.equal(await Promise.race([running.then(() => 'ended'), delay(2_000, 'still asking', { ref: false })]), 'ended');
});

test('a pod is told of nothing that the API server would refuse', async () => {
  let reason = 'Path';
  const { health, kicked } = healthOf(async (method) =>
    method === 'NodeGetVolumeHealth'
      ? { volumeHealth: { volumeId: 'h', healthStatuses: [{ status: 'DEGRADED', reason, message: '' }] } }
      : { backendHealth: [] },
  );
  const signal = new AbortController().signal;
  await health.ask(signal);
  reason = 'no path at all';
  await health.ask(signal);
  assert.deepEqual(kicked, ['u1']);
  assert.deepEqual(health.withHealth('u1', {}).volumeHealth?.[0]?.healthConditions, [{ status: 'Degraded', reason: 'Path' }]);
});
