import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UserNamespaceInput } from '../../proto/cri/types.ts';
import { makeAgentWorld } from './agent-world.ts';

test('a pod with a user namespace counts as failed once a round, for what fails in the round that makes its sandbox', async () => {
  await using world = await makeAgentWorld();
  const users: UserNamespaceInput = { mode: 'POD', uids: [], gids: [] };
  const counts = (): string[] => {
    const text = world.lives.text({ pods: [], isActive: () => true, mirrors: 0, workers: [] });
    const names = ['pods_total', 'pods_errors_total', 'user_namespaced_pods_total', 'user_namespaced_pods_errors_total'];
    return names.map((name) => new RegExp(`^kubelet_started_${name} (\\d+)$`, 'm').exec(text)?.[1] ?? '');
  };
  await world.command(['pod', 'add'], 'metadata: {name: none}\nspec: {hostUsers: false, containers: [{name: m}]}');
  await world.command(['tick', '2s'], '');
  assert.deepEqual(counts(), ['1', '1', '1', '1'], 'a runtime that knows none');
  await world.command(['delete', 'none'], '');
  await world.command(['agent', 'stop'], '');
  world.userNamespaces = { userNamespaces: { of: async () => users, release() {} } };
  await world.command(['agent', 'start'], '');
  await world.command(['fail', 'CreateContainer', '1*error(unknown: no)->off'], '');
  await world.command(['pod', 'add'], 'metadata: {name: late}\nspec: {hostUsers: false, containers: [{name: m}]}');
  await world.command(['tick', '2s'], '');
  assert.deepEqual(counts(), ['2', '1', '2', '2'], 'its container could not be made');
  await world.command(['tick', '60s'], '');
  await world.command(['fail', 'CreateContainer', '1*error(unknown: no)->off'], '');
  await world.command(['pod', 'add'], 'metadata: {name: plain}\nspec: {containers: [{name: m}]}');
  await world.command(['tick', '2s'], '');
  assert.deepEqual(counts(), ['3', '1', '2', '2'], 'one without does not count');
});
