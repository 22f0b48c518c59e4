/** What begins late does not begin: ends that come while something is being prepared, and calls of a process that is gone. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { pods } from '../../base/kubeapi/refs.ts';
import { AgentWorld } from './agent-world.ts';

const plain = 'spec: {containers: [{name: m}]}';
const never = 'spec: {restartPolicy: Never, containers: [{name: m}]}';

async function started(manifest: string, before: (world: AgentWorld) => void): Promise<AgentWorld> {
  const world = new AgentWorld();
  before(world);
  await world.start();
  await world.command(['pod', 'add'], manifest);
  return world;
}

/** Directories take five seconds to be made, from the `from`-th on. */
function slowDisk(world: AgentWorld, from: number): void {
  const mkdir = world.files.mkdir.bind(world.files);
  let made = 0;
  world.files.mkdir = async (path) => {
    made += 1;
    if (made >= from) await world.clock.sleep(5000);
    await mkdir(path);
  };
}

const calls = (world: AgentWorld, method: string): string[] => world.criLines.filter((line) => line.includes(` ${method} `));

for (const [what, from, method] of [
  ['no sandbox', 1, 'RunPodSandbox'],
  ['no container', 2, 'CreateContainer'],
] as const) {
  test(`${what} is made for a pod that was removed while its directory was made`, async () => {
    await using world = await started(plain, (fresh) => slowDisk(fresh, from));
    await world.clock.advance(1000);
    await world.command(['remove', 'p'], '');
    await world.clock.advance(30_000);
    assert.deepEqual(calls(world, method), []);
    assert.deepEqual(world.leftovers(), []);
  });
}

test('a container that was being made when its pod was removed is not started', async () => {
  await using world = await started(plain, (fresh) => fresh.failpoints.set('CreateContainer', 'delay(5000)'));
  await world.clock.advance(1000);
  await world.command(['remove', 'p'], '');
  await world.clock.advance(30_000);
  assert.deepEqual([calls(world, 'CreateContainer').length, calls(world, 'StartContainer')], [1, []]);
  assert.deepEqual(world.leftovers(), []);
});

test('what comes up after the end of its pod is stopped, and the pod stays as it ended', async () => {
  await using world = await started(never, (fresh) => fresh.runtime.script('m', { exitAfterMs: 1000 }));
  await world.clock.advance(5000);
  const pod = (): Pod | undefined => world.api.find<Pod>(pods('default', 'p'));
  assert.equal(pod()?.status?.phase, 'Succeeded');
  const sandbox = [...world.runtime.sandboxes.values()][0]!.config;
  const container = [...world.runtime.containers.values()][0]!.config;
  // As a call that a killed agent had sent, and that the runtime gets to only now.
  world.runtime.script('m', {});
  const again = { ...sandbox, metadata: { ...sandbox.metadata!, attempt: 1 } };
  const { podSandboxId } = await world.cri.runtime.runPodSandbox({ config: again });
  const config = { ...container, metadata: { ...container.metadata!, attempt: 1 } };
  const { containerId } = await world.cri.runtime.createContainer({ podSandboxId, config, sandboxConfig: again });
  await world.cri.runtime.startContainer({ containerId });
  await world.clock.advance(10_000);
  assert.notEqual(world.runtime.containers.get(containerId)?.status.state, 'running');
  assert.equal(world.runtime.sandboxes.get(podSandboxId)?.ready ?? false, false);
  assert.deepEqual([...world.cgroups.pods], []);
  assert.equal(pod()?.status?.phase, 'Succeeded');
  await world.command(['delete', 'p'], '');
  await world.clock.advance(10_000);
  assert.deepEqual(world.leftovers(), []);
});

test('an agent that ends leaves no timer behind, which would keep its process', async () => {
  await using world = new AgentWorld();
  await world.clock.settle();
  const before = world.clock.armed;
  await world.start();
  await world.clock.advance(3000);
  await world.stop();
  await world.clock.settle();
  assert.equal(world.clock.armed, before);
});
