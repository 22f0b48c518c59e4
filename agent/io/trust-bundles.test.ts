import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import type { KubeObject, ResourceRef } from '../../base/kubeapi/types.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { ClusterTrustBundle } from '../../proto/kube/types.ts';
import { TrustBundles } from './trust-bundles.ts';

const signal = new AbortController().signal;
const refOf = (version: string, name?: string): ResourceRef => ({
  group: 'certificates.k8s.io',
  version,
  resource: 'clustertrustbundles',
  ...(name === undefined ? {} : { name }),
  // The fake knows no scope of what is not in Kubernetes any more and puts it into a namespace.
  ...(name === undefined || version === 'v1' ? {} : { namespace: 'default' }),
});

/** An API server that serves the bundles in the versions named. */
function world(served: string[]) {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  for (const version of ['v1', 'v1beta1', 'v1alpha1'])
    api.react('raw', `GET /apis/certificates.k8s.io/${version}`, () => {
      const resources = served.includes(version) ? [{ name: 'clustertrustbundles' }] : [];
      return { metadata: {}, text: JSON.stringify({ resources }) } as KubeObject;
    });
  const changed: string[] = [];
  const bundles = new TrustBundles({ api, clock, rng: seededRng(1), log: silentLog, onChange: (uid) => changed.push(uid) });
  const put = (version: string, name: string): void =>
    void api.put<ClusterTrustBundle>(refOf(version, name), { metadata: { name }, spec: { trustBundle: `pem of ${name}` } });
  const read = async (uid: string): Promise<string[] | string> => {
    const copy = await bundles.read(uid, signal);
    return 'error' in copy ? copy.error : copy.bundles.map(({ metadata }) => metadata.name ?? '').toSorted();
  };
  return { clock, api, bundles, changed, put, read };
}

test('bundles are watched from the first read on, in the newest version that is served, and readers are told', async () => {
  for (const version of ['v1', 'v1beta1']) {
    const { clock, api, bundles, changed, put, read } = world([version]);
    await using _ = bundles;
    put(version, 'a');
    assert.equal(api.openWatches, 0);
    assert.deepEqual(await read('u1'), ['a']);
    assert.deepEqual(await read('u2'), ['a']);
    await clock.advance(1000);
    changed.length = 0;
    put(version, 'b');
    put(version, 'c');
    await clock.advance(1000);
    assert.deepEqual(changed, ['u1', 'u2']);
    assert.deepEqual(await read('u1'), ['a', 'b', 'c']);
    bundles.release('u1');
    api.remove(refOf(version, 'a'));
    await clock.advance(1000);
    assert.deepEqual(changed, ['u1', 'u2', 'u2']);
    assert.deepEqual(await read('u2'), ['b', 'c']);
  }
});

test('a server without bundles is said to be one, and asked again', async () => {
  const served: string[] = [];
  const { clock, bundles, changed, put, read } = world(served);
  await using _ = bundles;
  assert.equal(await read('u1'), 'the API server does not serve ClusterTrustBundles');
  served.push('v1');
  put('v1', 'a');
  await clock.advance(31_000);
  assert.deepEqual(changed, ['u1']);
  assert.deepEqual(await read('u1'), ['a']);
});
