import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pods } from '../../base/kubeapi/refs.ts';
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

test('rounds of a pod are counted by why they were made', async () => {
  await using world = await makeAgentWorld();
  const seen = (): string[] => [...new Set(world.worked.splice(0))];
  await world.command(['pod', 'add'], 'spec: {containers: [{name: m}]}');
  await world.command(['tick', '5s'], '');
  assert.deepEqual(seen(), ['create', 'sync']);
  const ref = pods('default', 'p');
  await world.api.patch(ref, 'merge', { spec: { activeDeadlineSeconds: 600 } }, { timeoutMs: 1_000 }, new AbortController().signal);
  await world.command(['tick', '1s'], '');
  assert.deepEqual(seen(), ['update']);
  await world.command(['delete', 'p'], '');
  await world.command(['tick', '60s'], '');
  assert.equal(seen().filter((each) => each === 'terminated').length, 1);
});

test('news that comes while a pod is looked at counts for the next look, which is made for it', async () => {
  await using world = await makeAgentWorld();
  await world.command(['fail', 'RunPodSandbox', '1*delay(5000)->off'], '');
  await world.command(['pod', 'add'], 'spec: {containers: [{name: m}]}');
  await world.command(['tick', '1s'], '');
  assert.deepEqual(world.worked, []);
  await world.api.patch(pods('default', 'p'), 'merge', { metadata: { labels: { a: 'b' } } }, { timeoutMs: 1_000 }, new AbortController().signal);
  await world.command(['tick', '6s'], '');
  assert.deepEqual(world.worked.slice(0, 2), ['create', 'update']);
});
