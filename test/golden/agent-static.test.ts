/** Pods of files: what their going and coming back does to what runs. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { keyOf } from '../../agent/core/containers.ts';
import { staticPod } from '../../agent/core/static-pod.ts';
import type { PodView } from '../../agent/core/types.ts';
import { AgentWorld } from './agent-world.ts';

function viewOf(restartPolicy: string): PodView {
  const document = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'web' }, spec: { restartPolicy, containers: [{ name: 'm', image: 'busybox:1' }] } };
  const made = staticPod(document, { nodeName: 'node-1', source: 'file', seen: '2026-01-01T00:00:00Z', hash: 'hash-a' });
  assert.ok(made.ok);
  return { key: keyOf(made.pod), source: 'static', pod: made.pod };
}

async function started(restartPolicy: string) {
  const world = new AgentWorld();
  const view = viewOf(restartPolicy);
  world.runtime.images.add({ name: 'busybox:1', present: true });
  await world.start();
  const there = new Map([[view.key.uid, view]]);
  world.statics.replace(there);
  await world.clock.advance(5000);
  world.criLines.length = 0;
  return { world, there, calls: (): string[] => world.criLines.map((line) => line.split(' ').slice(1, 3).join(' ')) };
}

test('a file that goes and is back before anybody has looked ends the pod, and begins it again with a restart counted', async () => {
  const { world, there, calls } = await started('Always');
  await using _world = world;
  world.statics.replace(new Map());
  world.statics.replace(there);
  await world.clock.advance(10_000);
  assert.deepEqual(
    calls().filter((line) => /Stop|Run|Create|Start/.test(line)),
    [
      'StopContainer web-node-1/m#0',
      'StopPodSandbox web-node-1#0',
      'StopPodSandbox web-node-1#0',
      'RunPodSandbox web-node-1#1',
      'CreateContainer web-node-1/m#1',
      'StartContainer web-node-1/m#1',
    ],
  );
  world.statics.replace(new Map());
  await world.clock.advance(60_000);
  assert.deepEqual(world.leftovers(), []);
});

test('a pod that is to run once begins anew when its file is back', async () => {
  const { world, there, calls } = await started('Never');
  await using _world = world;
  world.statics.replace(new Map());
  world.statics.replace(there);
  await world.clock.advance(10_000);
  assert.deepEqual(calls().slice(-3), ['RunPodSandbox web-node-1#0', 'CreateContainer web-node-1/m#0', 'StartContainer web-node-1/m#0']);
});
