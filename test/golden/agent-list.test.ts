import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AgentWorld } from './agent-world.ts';

test('a pod of which nothing changes is the same object each time it is listed, and another when something does', async () => {
  await using world = new AgentWorld();
  await world.start();
  await world.command(['pod', 'add'], 'spec: {containers: [{name: m, readinessProbe: {}}]}');
  await world.clock.advance(5000);
  const [first] = world.loop.list();
  assert.equal(first?.status?.phase, 'Running');
  assert.equal(world.loop.list()[0], first);
  await world.command(['probe', 'p', 'm', 'readiness', 'success'], '');
  await world.clock.advance(1000);
  assert.notEqual(world.loop.list()[0], first);
  assert.equal(world.loop.list()[0]?.status?.containerStatuses?.[0]?.ready, true);
});
