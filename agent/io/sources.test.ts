import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { configMaps, secrets, services } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import type { ConfigMap, Pod, Secret, Service } from '../../proto/kube/types.ts';
import { Sources } from './sources.ts';

const signal = new AbortController().signal;
const open: Sources[] = [];
afterEach(async () => {
  for (const sources of open.splice(0)) await sources[Symbol.asyncDispose]();
});

function world() {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const sources = new Sources({ api, clock, log: silentLog });
  open.push(sources);
  return { clock, api, sources };
}

const podOf = (uid: string, ...names: string[]): Pod => ({
  metadata: { name: uid, namespace: 'n', uid },
  spec: { containers: [], volumes: names.map((name) => ({ name, configMap: { name } })) },
});
const put = (api: FakeKubeApi, name: string, value: string, immutable = false): void =>
  void api.put<ConfigMap>(configMaps('n', name), { metadata: { name, namespace: 'n' }, data: { k: value }, ...(immutable ? { immutable } : {}) });

test('one watch for each named object, never a list of all', async () => {
  const { clock, api, sources } = world();
  put(api, 'a', '1');
  put(api, 'b', '1');
  sources.hold(podOf('u1', 'a', 'b'));
  sources.hold(podOf('u2', 'a'));
  await clock.settle();
  assert.equal((await sources.configMap('n', 'a', signal))?.data?.['k'], '1');
  assert.equal(sources.watchCount, 2);
  const asked = api.calls.filter((call) => call.ref?.resource === 'configmaps');
  assert.ok(
    asked.length > 0 && asked.every((call) => /^metadata\.name=[ab]$/.test(call.query['fieldSelector'] ?? '')),
    JSON.stringify(asked.map((call) => call.query)),
  );
});

test('the pods that name a changed object are told, and only those', async () => {
  const { clock, api, sources } = world();
  put(api, 'a', '1');
  put(api, 'b', '1');
  sources.hold(podOf('u1', 'a'));
  sources.hold(podOf('u2', 'b'));
  const told: string[] = [];
  sources.onChange((uid) => told.push(uid));
  await clock.settle();
  assert.deepEqual(told, [], 'the first copy is no change');
  put(api, 'a', '2');
  await clock.settle();
  assert.deepEqual(told, ['u1']);
  assert.equal((await sources.configMap('n', 'a', signal))?.data?.['k'], '2');
});

test('what is not there is null, and told when it comes', async () => {
  const { clock, api, sources } = world();
  sources.hold(podOf('u1', 'late'));
  await clock.settle();
  assert.equal(await sources.configMap('n', 'late', signal), null);
  const told: string[] = [];
  sources.onChange((uid) => told.push(uid));
  put(api, 'late', '1');
  await clock.settle();
  assert.deepEqual(told, ['u1']);
  api.remove(configMaps('n', 'late'));
  await clock.settle();
  assert.equal(await sources.configMap('n', 'late', signal), null);
});

test('watches end with the last pod, with immutable objects and when nobody reads', async () => {
  const { clock, api, sources } = world();
  put(api, 'a', '1');
  put(api, 'fixed', '1', true);
  sources.hold(podOf('u1', 'a', 'fixed'));
  await clock.settle();
  assert.equal((await sources.configMap('n', 'fixed', signal))?.data?.['k'], '1');
  assert.equal(sources.watchCount, 1, 'an immutable object is not watched');
  await clock.advance(11 * 60_000);
  assert.equal(sources.watchCount, 0, 'an idle one is not either');
  put(api, 'a', '2');
  const read = sources.configMap('n', 'a', signal);
  await clock.settle();
  assert.equal((await read)?.data?.['k'], '2', 'until the next read');
  assert.equal(sources.watchCount, 1);
  sources.hold(podOf('u1', 'fixed'));
  assert.equal(sources.watchCount, 0, 'a pod that no longer names it lets it go');
  sources.release('u1');
  await assert.rejects(sources.configMap('n', 'fixed', signal), /object "n"\/"fixed" not registered/);
});

test('a read waits a bounded time for the first copy', async () => {
  const { clock, api, sources } = world();
  api.inject({ resource: 'configmaps', error: refusals.unavailable(), times: 4 });
  sources.hold(podOf('u1', 'a'));
  const read = sources.configMap('n', 'a', signal);
  const failed = assert.rejects(
    read,
    (error) => error instanceof OpError && error.code === 'deadline' && error.message.startsWith('failed to sync configmap cache: '),
  );
  await clock.advance(1000);
  await failed;
  const told: string[] = [];
  sources.onChange((uid) => told.push(uid));
  await clock.advanceUntil(() => told.length > 0, 120_000);
  assert.deepEqual(told, ['u1'], 'who gave up is told when the copy is there');
});

test('secrets and Services', async () => {
  const { clock, api, sources } = world();
  api.put<Secret>(secrets('n', 's'), { metadata: { name: 's', namespace: 'n' }, data: { k: 'dg==' } });
  for (const namespace of ['n', 'other'])
    api.put<Service>(services(namespace, 'web'), {
      metadata: { name: 'web', namespace, annotations: { big: 'x' } },
      spec: { clusterIP: '10.96.0.1', ports: [{ port: 80 }], selector: { a: 'b' } },
    });
  sources.hold({ metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [], imagePullSecrets: [{ name: 's' }] } });
  const [secret, list] = [sources.secret('n', 's', signal), sources.services('n', signal)];
  await clock.settle();
  assert.equal((await secret)?.data?.['k'], 'dg==');
  const [web, ...rest] = await list;
  assert.deepEqual([web?.metadata.name, web?.spec?.clusterIP, web?.metadata.annotations, rest.length], ['web', '10.96.0.1', undefined, 0]);
});
