import assert from 'node:assert/strict';
import { before, after, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually, type TestSet } from '../set.ts';
import { web } from './manifests.ts';
import { isReady, podList, podNamed, skip, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip === false) set = await world('wt-loops');
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});
beforeEach(async () => {
  if (skip !== false) return;
  await set.k(['apply', '-f', '-'], web);
  await set.k(['scale', 'deploy/web', '--replicas=3']);
  await eventually('three pods ready', 60_000, async () => {
    const pods = (await podList(set, 'default', 'app=web')).filter((pod) => pod.metadata.deletionTimestamp === undefined);
    return pods.length === 3 && pods.every(isReady) ? true : null;
  });
});

const addresses = async (): Promise<string[]> =>
  (await set.k(['get', 'endpointslices', '-l', 'kubernetes.io/service-name=web', '-o', 'jsonpath={.items[*].endpoints[*].addresses[0]}'])).split(' ').sort();
const replicaSets = async (): Promise<{ name: string; uid: string; replicas: number }[]> =>
  (
    JSON.parse(await set.k(['get', 'rs', '-l', 'app=web', '-o', 'json'])) as {
      items: { metadata: { name: string; uid: string }; spec: { replicas: number } }[];
    }
  ).items.map((item) => ({ ...item.metadata, replicas: item.spec.replicas }));

test('1.33: a relabelled pod loses its owner and its traffic, and runs on; another takes its place', { skip }, async () => {
  const victim = (await podList(set, 'default', 'app=web'))[0];
  assert.ok(victim !== undefined);
  await set.k(['label', 'pod', victim.metadata.name, 'app=debug', '--overwrite']);
  await eventually('a new pod', 20_000, async () => ((await podList(set, 'default', 'app=web')).filter(isReady).length === 3 ? true : null));
  const now = await podNamed(set, 'default', victim.metadata.name);
  assert.equal(now.metadata.ownerReferences, undefined);
  assert.equal(now.status.containerStatuses?.[0]?.containerID, victim.status.containerStatuses?.[0]?.containerID);
  assert.equal(now.status.containerStatuses?.[0]?.restartCount, 0);
  await eventually('out of the Service', 10_000, async () => ((await addresses()).includes(victim.status.podIP ?? '') ? null : true));
  await set.k(['delete', 'pod', victim.metadata.name, '--wait=false']);
});

test('1.34: an orphaned ReplicaSet’s pods are adopted by the next one of the same name', { skip }, async () => {
  const [before] = await replicaSets();
  const pods = new Map((await podList(set, 'default', 'app=web')).map((pod) => [pod.metadata.name, pod.metadata.uid]));
  await set.k(['delete', 'rs', '-l', 'app=web', '--cascade=orphan']);
  await delay(3_000);
  const [after] = await replicaSets();
  assert.equal(after?.name, before?.name);
  assert.notEqual(after?.uid, before?.uid);
  for (const pod of await podList(set, 'default', 'app=web')) {
    assert.equal(pods.get(pod.metadata.name), pod.metadata.uid);
    assert.equal(pod.metadata.ownerReferences?.[0]?.uid, after?.uid);
    assert.equal(pod.status.containerStatuses?.[0]?.restartCount, 0);
  }
});

test('1.35: a deleted pod is replaced at once; only the template makes a second ReplicaSet', { skip }, async () => {
  const victim = (await podList(set, 'default', 'app=web'))[0]?.metadata.name ?? '';
  await set.k(['delete', 'pod', victim, '--wait=false']);
  await eventually('a new pod beside the ending one', 5_000, async () => {
    const pods = await podList(set, 'default', 'app=web');
    return pods.filter((pod) => pod.metadata.deletionTimestamp === undefined).length === 3 ? true : null;
  });
  await set.k(['scale', 'deploy/web', '--replicas=4']);
  await eventually('four', 20_000, async () =>
    (await podList(set, 'default', 'app=web')).filter((pod) => pod.metadata.deletionTimestamp === undefined).length === 4 ? true : null,
  );
  assert.equal((await replicaSets()).length, 1);
  await set.k(['patch', 'deploy', 'web', '-p', '{"spec":{"template":{"metadata":{"annotations":{"touched":"yes"}}}}}']);
  await eventually('a second ReplicaSet', 10_000, async () => ((await replicaSets()).length === 2 ? true : null));
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
});

test('1.36: three ways to delete a Deployment', { skip, timeout: 180_000 }, async () => {
  const gone = (): Promise<true> =>
    eventually('ReplicaSets and pods gone', 60_000, async () =>
      (await replicaSets()).length === 0 && (await podList(set, 'default', 'app=web')).length === 0 ? true : null,
    );
  await set.k(['delete', 'deploy', 'web']);
  assert.notEqual((await set.kubectl(['get', 'deploy', 'web'])).code, 0);
  await gone();
  await set.k(['apply', '-f', '-'], web);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  await set.k(['delete', 'deploy', 'web', '--cascade=foreground', '--wait=false']);
  const waiting = await set.kubectl(['get', 'deploy', 'web', '-o', 'jsonpath={.metadata.finalizers}']);
  if (waiting.code === 0) assert.match(waiting.out, /foregroundDeletion/);
  await gone();
  await eventually('the Deployment goes last', 10_000, async () => ((await set.kubectl(['get', 'deploy', 'web'])).code === 0 ? null : true));
  await set.k(['apply', '-f', '-'], web);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  await set.k(['delete', 'deploy', 'web', '--cascade=orphan']);
  await delay(2_000);
  assert.equal((await replicaSets()).length, 1);
  assert.equal((await podList(set, 'default', 'app=web')).length, 3);
  await set.k(['delete', 'rs', '-l', 'app=web']);
  await gone();
});

test('1.37: a finalizer holds an object', { skip }, async () => {
  await set.k(['create', 'configmap', 'note']);
  await set.k(['patch', 'configmap', 'note', '-p', '{"metadata":{"finalizers":["example.com/archive-first"]}}']);
  assert.match(await set.k(['delete', 'configmap', 'note', '--wait=false']), /configmap "note" deleted/);
  const held = JSON.parse(await set.k(['get', 'configmap', 'note', '-o', 'json'])) as { metadata: { deletionTimestamp?: string; finalizers?: string[] } };
  assert.ok(held.metadata.deletionTimestamp !== undefined);
  assert.deepEqual(held.metadata.finalizers, ['example.com/archive-first']);
  const refused = await set.kubectl(['patch', 'configmap', 'note', '-p', '{"metadata":{"finalizers":["example.com/archive-first","example.com/more"]}}']);
  assert.notEqual(refused.code, 0);
  await set.k(['patch', 'configmap', 'note', '--type=json', '-p', '[{"op":"remove","path":"/metadata/finalizers"}]']);
  const missing = await set.kubectl(['get', 'configmap', 'note']);
  assert.equal(missing.err.trim(), 'Error from server (NotFound): configmaps "note" not found');
  await set.k(['create', 'configmap', 'note']);
  await set.k(['patch', 'configmap', 'note', '-p', '{"metadata":{"finalizers":["example.com/archive-first"]}}']);
  await set.k(['delete', 'configmap', 'note', '--wait=false']);
  await set.k(['patch', 'configmap', 'note', '--type=merge', '-p', '{"metadata":{"finalizers":null}}']);
  assert.notEqual((await set.kubectl(['get', 'configmap', 'note'])).code, 0);
});
