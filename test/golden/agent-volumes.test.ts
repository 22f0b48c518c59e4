import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pods } from '../../base/kubeapi/refs.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { makeAgentWorld } from './agent-world.ts';

test('volumes of pods that run are asked for again by a new process at once, not at the next regular look', async () => {
  await using world = await makeAgentWorld();
  await world.command(['pod', 'add'], 'spec: {containers: [{name: m}]}');
  await world.command(['tick', '5s'], '');
  const { uid = '' } = world.api.find(pods('default', 'p'))!.metadata;
  const refreshes = (): number => world.volumes.log.filter((line) => line === `refresh ${uid}`).length;
  assert.equal(refreshes(), 0, 'what was just set up is not looked at again');
  await world.command(['agent', 'stop'], '');
  await world.command(['agent', 'start'], '');
  await world.command(['tick', '3s'], '');
  assert.equal(refreshes(), 1);
  await world.command(['tick', '20s'], '');
  assert.equal(refreshes(), 1);
});

test('a pod whose volumes the node cannot attach any more is refused, and ends', async () => {
  await using world = await makeAgentWorld();
  const message = 'Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v]';
  world.volumes.failure = { ok: false, reason: 'VolumeAttachmentLimitExceeded', message };
  await world.command(['pod', 'add'], 'spec: {containers: [{name: m}]}');
  await world.command(['tick', '5s'], '');
  const { status } = world.api.find(pods('default', 'p')) as Pod;
  assert.deepEqual([status?.phase, status?.reason, status?.message], ['Failed', 'VolumeAttachmentLimitExceeded', `Pod was rejected: ${message}`]);
});
