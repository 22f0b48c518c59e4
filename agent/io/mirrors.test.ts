import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { nodes, pods } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { keyOf } from '../core/containers.ts';
import { mirrorOf, staticPod } from '../core/static-pod.ts';
import type { PodKey } from '../core/types.ts';
import { createMirrors } from './mirrors.ts';
import { createApiPods } from './pods-api.ts';
import { createStatusApi } from './status-api.ts';

function podOf(image: string): Pod {
  const document = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'web' }, spec: { containers: [{ name: 'main', image }] } };
  const made = staticPod(document, { nodeName: 'n1', source: 'file', seen: '2026-01-01T00:00:00Z', hash: `hash-${image.replace(':', '-')}` });
  assert.ok(made.ok);
  return made.pod;
}

async function setUp(t: TestContext, first: Pod | null) {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const node = api.put({ ...nodes(), name: 'n1' }, { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1' }, spec: {} } as never);
  const apiPods = createApiPods({ api, nodeName: 'n1', log: silentLog, clock });
  const writer = createStatusApi({ clock, rng: seededRng(1), log: silentLog, api });
  let current = first;
  const runs = { value: false };
  const retold: string[] = [];
  const callbacks: ((key: PodKey, change: 'wish') => void)[] = [];
  const mirrors = createMirrors({
    clock,
    log: silentLog,
    api,
    node: { name: 'n1', node: () => node, hostIPs: () => [], ready: async () => node, onChange: () => undefined },
    statics: {
      source: 'static',
      list: () => (current === null ? [] : [{ key: keyOf(current), source: 'static', pod: current }]),
      get: () => undefined,
      synced: () => true,
      onUpdate: (callback) => void callbacks.push(callback),
    },
    apiPods,
    mayRun: () => runs.value,
    statuses: writer,
    retell: (uid) => void retold.push(uid),
  });
  const stop = new AbortController();
  const running = [apiPods.run(stop.signal), mirrors.run(stop.signal)];
  t.after(async () => {
    stop.abort();
    await Promise.all(running);
    await writer[Symbol.asyncDispose]();
  });
  await clock.advance(3_000);
  const ref = pods('default', 'web-n1');
  return {
    clock,
    api,
    mirrors,
    runs,
    retold,
    ref,
    mirror: () => api.find<Pod>(ref),
    set: async (pod: Pod | null, waitMs = 3_000) => {
      const before = current;
      current = pod;
      const told = pod ?? before;
      if (told !== null) for (const callback of callbacks) callback(keyOf(told), 'wish');
      await clock.advance(waitMs);
    },
  };
}

test('a mirror is made, gets the status, and is made again when somebody deletes it', async (t) => {
  const pod = podOf('a:1');
  const { api, clock, mirror, mirrors, ref } = await setUp(t, pod);
  const made = mirror();
  assert.deepEqual([made?.metadata.annotations?.['kubernetes.io/config.mirror'], made?.metadata.ownerReferences?.[0]?.kind], ['hash-a-1', 'Node']);
  mirrors.statuses.set(pod, { phase: 'Running' });
  await clock.advance(1_000);
  assert.equal(mirror()?.status?.phase, 'Running');
  assert.equal(mirrors.statuses.current(pod.metadata.uid ?? '')?.phase, 'Running');
  api.remove(ref);
  await clock.advance(3_000);
  assert.notEqual(mirror()?.metadata.uid, made?.metadata.uid);
  assert.deepEqual([mirror()?.metadata.annotations?.['kubernetes.io/config.hash'], mirror()?.status?.phase], ['hash-a-1', 'Running']);
});

test('another version gets another mirror; an ended pod loses its own only when nothing of it runs', async (t) => {
  const { clock, mirror, mirrors, runs, set } = await setUp(t, podOf('a:1'));
  await set(podOf('a:2'));
  assert.equal(mirror()?.metadata.annotations?.['kubernetes.io/config.mirror'], 'hash-a-2');
  runs.value = true;
  await set(null);
  assert.notEqual(mirror(), undefined);
  runs.value = false;
  mirrors.statuses.forget('hash-a-2');
  await clock.advance(3_000);
  assert.equal(mirror(), undefined);
});

test('while the version before still stops its mirror stays, and the next one comes then', async (t) => {
  const { clock, mirror, runs, set } = await setUp(t, podOf('a:1'));
  const before = mirror()?.metadata.uid;
  runs.value = true;
  await set(podOf('a:2'));
  assert.equal(mirror()?.metadata.uid, before);
  runs.value = false;
  await clock.advance(3_000);
  assert.equal(mirror()?.metadata.annotations?.['kubernetes.io/config.mirror'], 'hash-a-2');
});

test('without an API server nothing is waited for, and the mirror comes when it answers', async (t) => {
  const pod = podOf('a:1');
  const { api, clock, mirror, mirrors, ref, set } = await setUp(t, null);
  api.inject({ verb: 'create', resource: 'pods', times: 2, error: refusals.unavailable() });
  await mirrors.statuses.finish(pod, { phase: 'Failed' }, new AbortController().signal);
  assert.equal(mirror(), undefined);
  api.put(ref, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web-n1', namespace: 'default', annotations: { 'kubernetes.io/config.mirror': 'old' } },
    spec: { nodeName: 'n1', containers: [] },
  } as never);
  await clock.advance(3_000);
  assert.equal(mirror(), undefined, 'a mirror of nothing goes');
  await set(pod);
  assert.equal(mirror(), undefined, 'it was refused');
  await clock.advance(4_000);
  assert.deepEqual([mirror()?.metadata.annotations?.['kubernetes.io/config.mirror'], mirror()?.status?.phase], ['hash-a-1', 'Failed']);
});

test('what the server refuses is not asked again with every change of another pod', async (t) => {
  const { api, clock, mirror, set } = await setUp(t, null);
  api.inject({ verb: 'create', resource: 'pods', times: 100, error: refusals.forbidden() });
  await set(podOf('a:1'));
  const asked = (): number => api.calls.filter(({ verb, ref }) => verb === 'create' && ref?.resource === 'pods').length;
  const before = asked();
  for (let at = 0; at < 20; at++) {
    api.put(pods('default', `other-${at}`), {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: `other-${at}`, namespace: 'default' },
      spec: { nodeName: 'n1', containers: [] },
    } as never);
    await clock.advance(10);
  }
  assert.ok(asked() - before <= 1, `${asked() - before} more requests in a fifth of a second`);
  await clock.advance(4_000);
  assert.ok(asked() > before, 'it is tried again later');
  assert.equal(mirror(), undefined);
});

for (const [what, isTold] of [
  ['is told again before it is written', true],
  ['is written all the same when nobody tells again', false],
] as const) {
  test(`what was told before the mirror of an earlier process was known ${what}`, async (t) => {
    const pod = podOf('a:1');
    const uid = pod.metadata.uid ?? '';
    const { api, clock, mirror, mirrors, ref, retold, set } = await setUp(t, null);
    mirrors.statuses.set(pod, { phase: 'Pending', startTime: '2026-01-02T00:00:00Z' });
    const earlier = { phase: 'Running', startTime: '2026-01-01T00:00:00Z' };
    api.put(ref, { ...mirrorOf(pod, { name: 'n1', uid: 'n' }), status: earlier } as never);
    await set(pod, 500);
    assert.deepEqual(mirror()?.status, earlier);
    assert.deepEqual([retold, mirrors.statuses.earlier?.(uid)], [[uid], earlier]);
    if (isTold) mirrors.statuses.set(pod, earlier);
    await clock.advance(5_000);
    assert.equal(mirror()?.status?.phase, isTold ? 'Running' : 'Pending');
    assert.deepEqual([retold, mirrors.statuses.earlier?.(uid)], [[uid], undefined]);
  });
}
