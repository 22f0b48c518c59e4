import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { pods } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Pod, PodStatus } from '../../proto/kube/types.ts';
import { createStatusApi } from './status-api.ts';

const ref = pods('ns', 'p');
const never = new AbortController().signal;

function setUp(t: TestContext, status: PodStatus = { phase: 'Pending' }, metadata: object = {}) {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const pod = api.put<Pod>(ref, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'ns', uid: 'u1', ...metadata },
    spec: { nodeName: 'n1', containers: [] },
    status,
  });
  const writer = createStatusApi({ clock, rng: seededRng(1), log: silentLog, api });
  t.after(() => writer[Symbol.asyncDispose]());
  const writes = () => api.calls.filter(({ verb }) => verb === 'patch' || verb === 'delete').map(({ verb, path }) => `${verb} ${path}`);
  return { clock, api, pod, writer, writes, stored: () => api.find<Pod>(ref) };
}

test('one wish is one patch; the same wish again is none', async (t) => {
  const { clock, pod, writer, writes, stored } = setUp(t);
  writer.set(pod, { phase: 'Running' });
  await clock.settle();
  writer.set(pod, { phase: 'Running' });
  await clock.settle();
  assert.deepEqual(writes(), ['patch /api/v1/namespaces/ns/pods/p/status']);
  assert.equal(stored()?.status?.phase, 'Running');
  assert.deepEqual(writer.current('u1'), { phase: 'Running' });
});

test('wishes during a write cost one more write, also back to where it was', async (t) => {
  const { clock, pod, writer, writes, stored } = setUp(t);
  writer.set(pod, { phase: 'Running' });
  for (const podIP of ['10.0.0.1', '10.0.0.2', '10.0.0.3']) writer.set(pod, { phase: 'Running', podIP });
  writer.set(pod, { phase: 'Pending' });
  await clock.settle();
  assert.ok(writes().length <= 2);
  assert.equal(stored()?.status?.phase, 'Pending');
});

test('what somebody else changed is put right at the next wish, and conditions of others stay', async (t) => {
  const { clock, api, pod, writer, stored } = setUp(t);
  const wish: PodStatus = { phase: 'Running', conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: '2026-01-01T00:00:00Z' }] };
  writer.set(pod, wish);
  await clock.settle();
  const changed = api.put<Pod>(ref, { ...(stored() as Pod), status: { phase: 'Pending', conditions: [{ type: 'example.com/gate', status: 'True' }] } });
  writer.set(changed, wish);
  await clock.settle();
  assert.equal(stored()?.status?.phase, 'Running');
  assert.deepEqual(
    stored()
      ?.status?.conditions?.map(({ type }) => type)
      .toSorted(),
    ['Ready', 'example.com/gate'],
  );
});

test('a refused write is tried again with growing pauses, the newest wish wins', async (t) => {
  const { clock, api, pod, writer, writes, stored } = setUp(t);
  api.inject({ verb: 'patch', times: 3, error: refusals.internal() });
  writer.set(pod, { phase: 'Running' });
  await clock.advance(400);
  assert.equal(writes().length, 1);
  writer.set(pod, { phase: 'Running', podIP: '10.0.0.9' });
  await clock.advance(6_000);
  assert.equal(stored()?.status?.podIP, '10.0.0.9');
});

test('an answer that was lost does no harm', async (t) => {
  const { clock, api, pod, writer, stored } = setUp(t);
  api.inject({ verb: 'patch', error: refusals.unavailable(), after: true });
  writer.set(pod, { phase: 'Running' });
  await clock.advance(2_000);
  assert.equal(stored()?.status?.phase, 'Running');
});

test('another pod of the same name is left alone', async (t) => {
  const { clock, api, pod, writer, stored } = setUp(t);
  api.remove(ref);
  api.put<Pod>(ref, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'p', namespace: 'ns', uid: 'u2' },
    spec: { containers: [] },
    status: { phase: 'Pending' },
  });
  writer.set(pod, { phase: 'Failed' });
  await clock.advance(30_000);
  assert.equal(stored()?.status?.phase, 'Pending');
  await writer.finish(pod, { phase: 'Failed' }, never);
  assert.equal(stored()?.metadata.uid, 'u2');
});

test('finish writes the last status, then deletes a pod that is to go, with grace 0 and its UID', async (t) => {
  const { api, pod, writer, writes, stored } = setUp(
    t,
    { phase: 'Running' },
    { deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 30, finalizers: [] },
  );
  await writer.finish(pod, { phase: 'Succeeded' }, never);
  assert.deepEqual(writes(), ['patch /api/v1/namespaces/ns/pods/p/status', 'delete /api/v1/namespaces/ns/pods/p']);
  const [deletion] = api.calls.filter(({ verb }) => verb === 'delete');
  assert.deepEqual(deletion?.body, { gracePeriodSeconds: 0, preconditions: { uid: 'u1' } });
  assert.equal(stored(), undefined);
});

test('finish of a pod that stays writes only, and one that is gone is done', async (t) => {
  const { api, pod, writer, writes } = setUp(t, { phase: 'Running' });
  await writer.finish(pod, { phase: 'Succeeded' }, never);
  assert.deepEqual(writes(), ['patch /api/v1/namespaces/ns/pods/p/status']);
  api.remove(ref);
  await writer.finish(pod, { phase: 'Succeeded', podIP: '10.0.0.1' }, never);
});

test('finish can be given up', async (t) => {
  const { api, pod, writer } = setUp(t);
  api.inject({ verb: 'patch', times: 1_000, error: refusals.unavailable() });
  const stop = new AbortController();
  const finishing = writer.finish(pod, { phase: 'Failed' }, stop.signal);
  stop.abort(new Error('stopped'));
  await assert.rejects(finishing, { message: 'stopped' });
  writer.forget('u1');
  assert.equal(writer.current('u1'), undefined);
});
