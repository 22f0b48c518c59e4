import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AgentWorld } from './agent-world.ts';

/* Calls of a process that was killed come through when the next one is at work. */

const pod = 'spec: {containers: [{name: m}]}';

/** A pod whose first container was made and not started, while its second is being made. */
async function whileReplaced(world: AgentWorld): Promise<void> {
  await world.start();
  await world.command(['fail', 'StartContainer', '1*error(unknown: lost)->off'], '');
  await world.command(['fail', 'CreateContainer', '1*off->1*delay(3000)->off'], '');
  await world.command(['pod', 'add'], pod);
  await world.clock.advance(2000);
}

const states = ({ runtime }: AgentWorld): string[] =>
  [...runtime.containers.values()].map(({ config, status }) => `${config.metadata?.name}#${config.metadata?.attempt} ${status.state}`);

test('a container that was started after all stays, and the one made in its place goes', async () => {
  await using world = new AgentWorld();
  await whileReplaced(world);
  world.runtime.start(world.runtime.container('m')!);
  await world.clock.advance(20_000);
  assert.deepEqual(states(world), ['m#0 running']);
  assert.match(await world.command(['status', 'p'], ''), /m: running started ready restarts=0$/);
});

test('one that could not go is seen beside the one that runs, and goes before a late call starts it', async () => {
  await using world = new AgentWorld();
  await whileReplaced(world);
  world.runtime.start(world.runtime.container('m')!);
  await world.command(['fail', 'RemoveContainer', '1*error(unknown: busy)->off'], '');
  await world.clock.advance(20_000);
  assert.deepEqual(states(world), ['m#0 running']);
  assert.match(await world.command(['status', 'p'], ''), /m: running started ready restarts=0$/);
});

test('what ended while a sandbox was made is not told of as running when it is there', async () => {
  await using world = new AgentWorld();
  await world.start();
  await world.command(['pod', 'add'], pod);
  await world.clock.advance(3000);
  await world.command(['fail', 'RunPodSandbox', '1*delay(5000)->off'], '');
  await world.command(['patches'], '');
  for (const sandbox of world.runtime.sandboxes.values()) sandbox.ready = false;
  await world.clock.advance(20_000);
  const told = (await world.command(['patches'], '')).split('\n').flatMap((line) => / m:(\w+)/.exec(line)?.[1] ?? []);
  assert.deepEqual(told, ['terminated', 'running']);
});
