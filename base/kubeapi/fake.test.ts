import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { hasCode } from '../errors.ts';
import { createFakeClock } from '../fake-clock.ts';
import { isApiError } from './errors.ts';
import { FakeKubeApi, refusals } from './fake.ts';
import { configMaps, nodes, pods } from './refs.ts';

const node = 'n1';

function pod(name: string, nodeName?: string): Pod {
  return { metadata: { name, namespace: 'a' }, spec: { containers: [{ name: 'c', image: 'i' }], ...(nodeName !== undefined && { nodeName }) } };
}

function watch(api: FakeKubeApi, stop: AbortController): { heard: string[]; loop: Promise<void> } {
  const heard: string[] = [];
  const loop = api.reflect<Pod>(
    pods(),
    { fieldSelector: `spec.nodeName=${node}` },
    {
      replaced: (items) => void heard.push(`replaced ${items.map((item) => item.metadata.name).join(',')}`),
      changed: (type, object) => void heard.push(`${type} ${object.metadata.name}`),
      trouble: (error) => void heard.push(`trouble ${String((error as { code: number | string }).code)}`),
    },
    stop.signal,
  );
  return { heard, loop };
}

test('a copy hears what its selector means, and goes on after a cut without listing', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const stop = new AbortController();
  api.put(pods(), pod('one', node));
  const { heard, loop } = watch(api, stop);
  await clock.settle();
  api.put(pods(), pod('two'));
  await api.create({ ...pods('a', 'two'), subresource: 'binding' }, { metadata: {}, target: { name: node } });
  api.cutWatches();
  api.remove(pods('a', 'one'));
  await clock.advance(5000);
  api.compact();
  api.put(pods(), pod('three', node));
  api.cutWatches();
  await clock.advance(10_000);
  stop.abort();
  await loop;
  assert.deepEqual(heard, ['replaced one', 'ADDED two', 'trouble unavailable', 'MODIFIED one', 'DELETED one', 'ADDED three', 'trouble unavailable']);
  assert.equal(api.openWatches, 0);
});

test('forgotten versions make a copy list again', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock, streaming: false });
  const stop = new AbortController();
  const { heard, loop } = watch(api, stop);
  await clock.settle();
  api.goAway();
  api.put(pods(), pod('one', node));
  api.compact();
  await clock.advance(60_000);
  api.back();
  await clock.advance(60_000);
  stop.abort();
  await loop;
  assert.equal(heard[0], 'replaced ');
  assert.equal(heard.at(-1), 'replaced one');
  assert.ok(heard.includes('trouble 410'));
});

test('a refused copy waits as long as the server asks', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  api.inject({ verb: 'watch', error: refusals.tooMany(20) });
  const stop = new AbortController();
  const { heard, loop } = watch(api, stop);
  await clock.advance(19_000);
  assert.deepEqual(heard, ['trouble 429']);
  await clock.advance(2_000);
  assert.deepEqual(heard, ['trouble 429', 'replaced ']);
  stop.abort();
  await loop;
});

test('faults hit as many calls as they say, before or after the work', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  api.inject({ verb: 'create', resource: 'configmaps', error: refusals.internal(), after: true });
  const map = { metadata: { name: 'm', namespace: 'a' } };
  await assert.rejects(api.create(configMaps('a'), map), (error) => isApiError(error, 500));
  await assert.rejects(api.create(configMaps('a'), map), (error) => isApiError(error, 409));
  api.inject({ resource: 'nodes/status', times: 2, error: refusals.conflict() });
  api.put(nodes(), { metadata: { name: node }, status: {} } as never);
  const patch = (): Promise<unknown> => api.patch({ ...nodes(node), subresource: 'status' }, 'strategic', { status: { x: 1 } });
  await assert.rejects(patch(), (error) => isApiError(error, 409));
  await assert.rejects(patch(), (error) => isApiError(error, 409));
  await patch();
  api.inject({ verb: 'get', error: 'hang' });
  const hanging = assert.rejects(api.get(nodes(node), { timeoutMs: 10_000 }), (error) => hasCode(error, 'deadline'));
  await clock.advance(10_000);
  await hanging;
  assert.deepEqual(api.calls.map((call) => `${call.verb} ${call.path}`).slice(-2), ['patch /api/v1/nodes/n1/status', 'get /api/v1/nodes/n1']);
});

test('a running pod is only marked until its agent lets it go', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  api.put(pods(), pod('p', node));
  const marked = await api.delete(pods('a', 'p'), { gracePeriodSeconds: 5 });
  assert.equal(marked.metadata.deletionTimestamp, '2026-01-01T00:00:05Z');
  assert.equal(marked.metadata.deletionGracePeriodSeconds, 5);
  await api.delete(pods('a', 'p'), { gracePeriodSeconds: 0, preconditions: { uid: marked.metadata.uid ?? '' } });
  assert.equal(api.find(pods('a', 'p')), undefined);
});

test('a pod is new without status, and its token can be asked for', async () => {
  const api = new FakeKubeApi({ clock: createFakeClock() });
  const made = await api.create<Pod>(pods('a'), { ...pod('p'), status: { phase: 'Running' } });
  assert.equal(made.status?.phase, 'Pending');
  api.put({ group: '', version: 'v1', resource: 'serviceaccounts' }, { metadata: { name: 'default', namespace: 'a' } });
  const token = await api.create<never, object>(
    { group: '', version: 'v1', resource: 'serviceaccounts', namespace: 'a', name: 'default', subresource: 'token' },
    { spec: { expirationSeconds: 600 } },
  );
  assert.equal((token as { status: { expirationTimestamp: string } }).status.expirationTimestamp, '2026-01-01T00:10:00Z');
});
