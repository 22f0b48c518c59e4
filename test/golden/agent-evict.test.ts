import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pods } from '../../base/kubeapi/refs.ts';
import { makeAgentWorld } from './agent-world.ts';

test('who waits for an eviction is let go when the agent stops, however long the pod takes', async () => {
  await using world = await makeAgentWorld();
  await world.command(['pod', 'add'], 'spec: {containers: [{name: m}]}');
  await world.command(['tick', '3s'], '');
  await world.command(['fail', 'StopContainer', 'delay(3600000)'], '');
  const { uid = '' } = world.api.find(pods('default', 'p'))!.metadata;
  const stop = new AbortController();
  let over = false;
  const evicted = world.loop.evict(uid, { reason: 'Evicted', message: 'm', graceMs: 1000 }, stop.signal).finally(() => (over = true));
  evicted.catch(() => undefined);
  await world.command(['tick', '5s'], '');
  assert.equal(over, false);
  stop.abort();
  await world.command(['tick', '1s'], '');
  assert.equal(over, true);
  await assert.rejects(evicted, { code: 'aborted' });
});
