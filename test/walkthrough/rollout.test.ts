import assert from 'node:assert/strict';
import { before, after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually, type TestSet } from '../set.ts';
import { isReady, podList, skip, withShop, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip !== false) return;
  set = await world('wt-rollout');
  await withShop(set);
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

interface ReplicaSet {
  metadata: { name: string };
  spec: { replicas: number };
  status: { replicas?: number; readyReplicas?: number };
}
const replicaSets = async (): Promise<ReplicaSet[]> => (JSON.parse(await set.k(['-n', 'shop', 'get', 'rs', '-o', 'json'])) as { items: ReplicaSet[] }).items;

test('1.55: a new image goes 3/0, 3/1, 2/2, 1/3, 0/3, never more than four pods nor fewer than three Ready', { skip }, async () => {
  const old = (await replicaSets())[0]?.metadata.name;
  await set.k(['-n', 'shop', 'set', 'image', 'deploy/web', 'nginx=nginx:1.31-alpine']);
  const seen: string[] = [];
  const ended = new AbortController();
  const rollout = set.kubectl(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=90s'], { timeoutMs: 100_000 }).then((answer) => {
    ended.abort();
    return answer;
  });
  while (!ended.signal.aborted) {
    const sets = await replicaSets();
    const from = sets.find((one) => one.metadata.name === old)?.spec.replicas ?? 0;
    const to = sets.find((one) => one.metadata.name !== old)?.spec.replicas ?? 0;
    if (seen.at(-1) !== `${from}/${to}`) seen.push(`${from}/${to}`);
    const pods = (await podList(set, 'shop', 'app=web')).filter((pod) => pod.metadata.deletionTimestamp === undefined);
    assert.ok(pods.length <= 4, `${pods.length} pods`);
    assert.ok(pods.filter(isReady).length >= 3, `${pods.filter(isReady).length} Ready`);
    await delay(50);
  }
  assert.equal((await rollout).code, 0);
  const order = ['3/0', '3/1', '2/1', '2/2', '1/2', '1/3', '0/3'];
  assert.deepEqual(
    seen,
    [...seen].sort((a, b) => order.indexOf(a) - order.indexOf(b)),
  );
  assert.ok(
    seen.every((step) => order.includes(step)),
    seen.join(', '),
  );
});

test('1.56: old 0 0 0, new 3 3 3; history; undo brings the old ReplicaSet back', { skip }, async () => {
  const rows = await eventually('settled', 10_000, async () => {
    const text = await set.k(['-n', 'shop', 'get', 'rs', '--no-headers']);
    const found = text.split('\n').map((line) => line.split(/\s+/));
    return found.some((row) => row.slice(1, 4).join(' ') === '3 3 3') && found.some((row) => row.slice(1, 4).join(' ') === '0 0 0') ? found : null;
  });
  assert.equal(rows.length, 2);
  const history = await set.k(['-n', 'shop', 'rollout', 'history', 'deploy/web']);
  assert.match(history, /^1\s/m);
  assert.match(history, /^2\s/m);
  const old = rows.find((row) => row[1] === '0')?.[0];
  await set.k(['-n', 'shop', 'rollout', 'undo', 'deploy/web']);
  await set.k(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=60s']);
  const sets = await replicaSets();
  assert.equal(sets.length, 2);
  assert.equal(sets.find((one) => one.metadata.name === old)?.spec.replicas, 3);
});

test('1.57: an image that never gets ready stops at the surge; progress runs out; Recreate ends all first', { skip, timeout: 120_000 }, async () => {
  await set.k(['-n', 'shop', 'patch', 'deploy', 'web', '-p', '{"spec":{"progressDeadlineSeconds":8}}']);
  await set.k(['-n', 'shop', 'set', 'image', 'deploy/web', 'nginx=localhost:1/none:x']);
  await eventually('ProgressDeadlineExceeded', 30_000, async () =>
    (await set.k(['-n', 'shop', 'get', 'deploy', 'web', '-o', 'jsonpath={.status.conditions[?(@.type=="Progressing")].reason}'])) === 'ProgressDeadlineExceeded'
      ? true
      : null,
  );
  const pods = await podList(set, 'shop', 'app=web');
  assert.equal(pods.filter(isReady).length, 3);
  assert.equal(pods.length, 4);
  const rollout = await set.kubectl(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=5s']);
  assert.notEqual(rollout.code, 0);
  assert.match(`${rollout.out}${rollout.err}`, /1 out of 3 new replicas have been updated|exceeded its progress deadline/);
  await set.k(['-n', 'shop', 'rollout', 'undo', 'deploy/web']);
  await set.k(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=60s']);

  await set.k(['-n', 'shop', 'patch', 'deploy', 'web', '--type=merge', '-p', '{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}']);
  const before = new Set((await podList(set, 'shop', 'app=web')).map((pod) => pod.metadata.uid));
  await set.k(['-n', 'shop', 'set', 'image', 'deploy/web', 'nginx=nginx:1.29']);
  await eventually('recreated', 60_000, async () => {
    const now = await podList(set, 'shop', 'app=web');
    const fresh = now.filter((pod) => !before.has(pod.metadata.uid));
    if (fresh.length > 0) assert.equal(now.filter((pod) => before.has(pod.metadata.uid)).length, 0, 'old ones go first');
    return fresh.length === 3 && fresh.every(isReady) ? true : null;
  });
});
