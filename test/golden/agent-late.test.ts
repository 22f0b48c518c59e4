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

const two = 'spec: {containers: [{name: m}, {name: side}]}';

/** A pod whose newest m runs, beside an older one in a state that is not known and that cannot be stopped. */
async function besideUnknown(world: AgentWorld): Promise<void> {
  await world.start();
  await world.command(['pod', 'add'], two);
  await world.clock.advance(3000);
  await world.command(['exit', 'm', '1'], '');
  await world.clock.advance(3000);
  const older = [...world.runtime.containers.values()].find(({ config }) => config.metadata?.name === 'm' && config.metadata.attempt === 0)!;
  older.status = { state: 'unknown', startedAtNs: 1n };
  await world.command(['fail', 'StopContainer', '1000*error(unknown: stuck)'], '');
}

test('an older container that cannot be stopped holds up nothing while a newer one of its name runs', async () => {
  await using world = new AgentWorld();
  await besideUnknown(world);
  await world.command(['exit', 'side', '1'], '');
  await world.clock.advance(60_000);
  assert.deepEqual(states(world), ['m#0 unknown', 'side#0 exited', 'm#1 running', 'side#1 running']);
  assert.match(await world.command(['status', 'p'], ''), /m: running started ready restarts=1.*\n.*side: running started ready restarts=1/);
  assert.ok((world.counts.get('StopContainer') ?? 0) <= 5, `asked to stop ${world.counts.get('StopContainer')} times`);
});

test('when none of its name runs any more, the next one waits for it, and the rest of the pod does not', async () => {
  await using world = new AgentWorld();
  await besideUnknown(world);
  await world.command(['exit', 'm', '1'], '');
  await world.command(['exit', 'side', '1'], '');
  await world.clock.advance(60_000);
  assert.deepEqual(states(world), ['m#0 unknown', 'side#0 exited', 'm#1 exited', 'side#1 running']);
  assert.match(await world.command(['events'], ''), /another container m may still run: .*stuck/);
  await world.command(['fail', 'StopContainer', ''], '');
  await world.clock.advance(300_000);
  assert.deepEqual(states(world), ['m#0 exited', 'side#0 exited', 'm#1 exited', 'side#1 running', 'm#2 running']);
});

test('one that stays in a state that is not known although it was stopped is not asked again and again', async () => {
  await using world = new AgentWorld();
  await besideUnknown(world);
  await world.command(['fail', 'StopContainer', '1000*error(not-found: no such container)'], '');
  await world.clock.advance(60_000);
  assert.ok((world.counts.get('StopContainer') ?? 0) <= 5, `asked to stop ${world.counts.get('StopContainer')} times`);
});

test('a dead init container that cannot be removed holds up no new sandbox', async () => {
  await using world = new AgentWorld();
  await world.start();
  await world.command(['pod', 'add'], 'spec: {initContainers: [{name: i}], containers: [{name: m}]}');
  await world.clock.advance(2000);
  await world.command(['exit', 'i', '0'], '');
  await world.clock.advance(3000);
  await world.command(['fail', 'RemoveContainer', '1000*error(unknown: busy)'], '');
  for (const sandbox of world.runtime.sandboxes.values()) sandbox.ready = false;
  await world.clock.advance(20_000);
  await world.command(['exit', 'i', '0'], '');
  await world.clock.advance(20_000);
  assert.deepEqual(states(world).slice(-2), ['i#1 exited', 'm#1 running']);
});

test('a container in a state that is not known is one restart, however long the next one takes, and no pod that never ran', async () => {
  for (const fault of ['1*delay(8000)->off', '2*error(unknown: busy)->off']) {
    await using world = new AgentWorld();
    await world.start();
    await world.command(['pod', 'add'], pod);
    await world.clock.advance(3000);
    await world.command(['patches'], '');
    await world.command(['fail', 'CreateContainer', fault], '');
    await world.command(['fail', 'StopContainer', '2*error(unknown: stuck)->off'], '');
    await world.command(['unknown', 'm'], '');
    await world.clock.advance(90_000);
    assert.doesNotMatch(await world.command(['patches'], ''), /Pending/, fault);
    assert.match(await world.command(['status', 'p'], ''), /m: running started ready restarts=1/, fault);
  }
});
