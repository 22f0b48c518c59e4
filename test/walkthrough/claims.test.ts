import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Event, PersistentVolume, PersistentVolumeClaim } from '../../proto/kube/types.ts';
import { eventually, testSet, type TestSet } from '../set.ts';
import { realProblem } from '../real.ts';
import { redisConfig, redisSet } from './manifests.ts';
import { podNamed, ready, skip as skipSet } from './world.ts';

/*
 * The storage part needs controllers that only a real control plane has. In place of rancher.io/local-path the test
 * itself makes the volume, a folder of the node that was picked, as soon as one is picked.
 */
const skip = skipSet !== false ? skipSet : ((await realProblem()) ?? false);
const image = 'redis:8.2-alpine';
const server = new URL('../cluster/walkthrough/redis-server.sh', import.meta.url).pathname;

let set: TestSet;
const stop = new AbortController();
let provisioning: Promise<void> = Promise.resolve();
before(
  async () => {
    if (skip !== false) return;
    set = await testSet('wt-claims', ['--control-plane', 'real']);
    const made = await set.nodelet(['image', 'make', image, '--from', 'busybox', '--file', `${server}:/bin/redis-server:0755`]);
    assert.equal(made.code, 0, made.err);
    await set.k(['create', 'namespace', 'shop']);
    await set.k(['apply', '-f', '-'], redisConfig);
    provisioning = provision();
  },
  { timeout: 300_000 },
);
after(async () => {
  stop.abort();
  await provisioning;
  await set?.[Symbol.asyncDispose]();
});

const storageClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: standard }
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
`;

const pickedNode = 'volume.kubernetes.io/selected-node';
const claims = async (): Promise<PersistentVolumeClaim[]> =>
  (JSON.parse(await set.k(['-n', 'shop', 'get', 'pvc', '-o', 'json'])) as { items: PersistentVolumeClaim[] }).items;
const claim = async (name: string): Promise<PersistentVolumeClaim> =>
  JSON.parse(await set.k(['-n', 'shop', 'get', 'pvc', name, '-o', 'json'])) as PersistentVolumeClaim;
const bound = (name: string): Promise<PersistentVolumeClaim> =>
  eventually(`${name} is bound`, 60_000, async () => {
    const found = await claim(name);
    return found.status?.phase === 'Bound' ? found : null;
  });

/** What a provisioner does: a volume for each claim that has a node and no volume. */
async function provision(): Promise<void> {
  const node = (await set.status()).nodes[0];
  while (!stop.signal.aborted) {
    await eventually('a second goes by', 1000, async () => (stop.signal.aborted ? true : null)).catch(() => undefined);
    for (const { metadata, spec } of await claims().catch(() => [])) {
      const picked = metadata.annotations?.[pickedNode];
      if (picked === undefined || (spec.volumeName ?? '') !== '') continue;
      const { uid, name, namespace, resourceVersion } = metadata;
      const values = [picked];
      const volume = {
        apiVersion: 'v1',
        kind: 'PersistentVolume',
        metadata: { name: `pvc-${uid}`, annotations: { 'pv.kubernetes.io/provisioned-by': 'rancher.io/local-path' } },
        spec: {
          capacity: { storage: '1Gi' },
          accessModes: ['ReadWriteOnce'],
          persistentVolumeReclaimPolicy: 'Delete',
          storageClassName: 'standard',
          hostPath: { path: `${node?.directory ?? ''}/volumes/${uid}`, type: 'DirectoryOrCreate' },
          nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [{ key: 'kubernetes.io/hostname', operator: 'In', values }] }] } },
          claimRef: { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace, name, uid, resourceVersion },
        },
      };
      await set.kubectl(['create', '-f', '-'], { input: JSON.stringify(volume) });
    }
  }
}

test('1.53: a claim gets its volume when a node is picked for its pod, and the volume is of that node', { skip, timeout: 240_000 }, async () => {
  await set.k(['apply', '-f', '-'], storageClass);
  const alone = { apiVersion: 'v1', kind: 'PersistentVolumeClaim', metadata: { name: 'alone', namespace: 'shop' } };
  const spec = { accessModes: ['ReadWriteOnce'], storageClassName: 'standard', resources: { requests: { storage: '1Gi' } } };
  await set.k(['apply', '-f', '-'], JSON.stringify({ ...alone, spec }));
  await set.k(['apply', '-f', '-'], redisSet({ image }));
  await ready(set, 'shop', 'redis-0', 120_000);
  const { metadata, spec: wanted, status } = await bound('data-redis-0');
  assert.deepEqual([wanted.storageClassName, status?.capacity, status?.accessModes], ['standard', { storage: '1Gi' }, ['ReadWriteOnce']]);
  const { spec: pod } = await podNamed(set, 'shop', 'redis-0');
  assert.equal(metadata.annotations?.[pickedNode], pod.nodeName);
  assert.equal(metadata.annotations?.['volume.kubernetes.io/storage-provisioner'], 'rancher.io/local-path');
  const volume = JSON.parse(await set.k(['get', 'pv', wanted.volumeName ?? '', '-o', 'json'])) as PersistentVolume;
  assert.deepEqual(volume.spec.nodeAffinity?.required?.nodeSelectorTerms?.[0]?.matchExpressions?.[0]?.values, [pod.nodeName]);
  assert.equal(volume.spec.persistentVolumeReclaimPolicy, 'Delete');
  // Claim, node, volume: the volume was made for the claim as it stood with its node.
  assert.ok(Date.parse(metadata.creationTimestamp ?? '') <= Date.parse(volume.metadata.creationTimestamp ?? ''));
  const events = (JSON.parse(await set.k(['-n', 'shop', 'get', 'events', '-o', 'json'])) as { items: Event[] }).items;
  const of = (name: string): string[] => events.filter(({ involvedObject }) => involvedObject.name === name).map(({ reason }) => reason ?? '');
  assert.ok(of('data-redis-0').includes('ExternalProvisioning'), of('data-redis-0').join());
  // Without a pod a claim waits, whatever time goes by.
  assert.equal((await claim('alone')).status?.phase, 'Pending');
  assert.deepEqual([...new Set(of('alone'))], ['WaitForFirstConsumer']);
  const revisions = (await set.k(['-n', 'shop', 'get', 'controllerrevisions', '-o', 'name'])).split('\n');
  assert.equal(revisions.length, 1);
  assert.match(revisions[0] ?? '', /^controllerrevision\.apps\/redis-[a-z0-9]+$/);
});

test('1.54: data outlives its StatefulSet; replicas come and go in order; a claim in use stays Terminating', { skip, timeout: 300_000 }, async () => {
  await set.k(['-n', 'shop', 'exec', 'redis-0', '--', 'sh', '-c', 'echo kept > /data/note']);
  const before = await claim('data-redis-0');
  await set.k(['-n', 'shop', 'delete', 'statefulset', 'redis']);
  await eventually('redis-0 is gone', 60_000, async () => ((await set.kubectl(['-n', 'shop', 'get', 'pod', 'redis-0'])).code !== 0 ? true : null));
  const left = await claim('data-redis-0');
  assert.deepEqual([left.metadata.uid, left.status?.phase], [before.metadata.uid, 'Bound']);
  await set.k(['apply', '-f', '-'], redisSet({ image, replicas: 2 }));
  const first = await ready(set, 'shop', 'redis-0', 120_000);
  assert.equal(await set.k(['-n', 'shop', 'exec', 'redis-0', '--', 'cat', '/data/note']), 'kept');
  assert.equal((await set.k(['-n', 'shop', 'exec', 'redis-0', '--', 'cat', '/data/starts'])).split('\n').length, 2);
  const second = await ready(set, 'shop', 'redis-1', 120_000);
  const readySince = Date.parse(first.status.conditions?.find(({ type }) => type === 'Ready')?.lastTransitionTime ?? '');
  assert.ok(Date.parse((second.metadata as { creationTimestamp?: string }).creationTimestamp ?? '') >= readySince, 'redis-1 after redis-0 is Ready');
  await set.k(['-n', 'shop', 'scale', 'statefulset/redis', '--replicas=1']);
  await eventually('redis-1 is gone', 60_000, async () => ((await set.kubectl(['-n', 'shop', 'get', 'pod', 'redis-1'])).code !== 0 ? true : null));
  assert.equal((await podNamed(set, 'shop', 'redis-0')).metadata.uid, first.metadata.uid);

  await set.k(['-n', 'shop', 'delete', 'pvc', 'data-redis-0', '--wait=false']);
  assert.match(await set.k(['-n', 'shop', 'get', 'pvc', 'data-redis-0', '--no-headers']), /^data-redis-0 +Terminating /);
  assert.deepEqual((await claim('data-redis-0')).metadata.finalizers, ['kubernetes.io/pvc-protection']);
  assert.equal(await set.k(['-n', 'shop', 'exec', 'redis-0', '--', 'cat', '/data/note']), 'kept');
  await set.k(['-n', 'shop', 'delete', 'statefulset', 'redis']);
  await eventually('the claim goes with its last pod', 60_000, async () =>
    (await set.kubectl(['-n', 'shop', 'get', 'pvc', 'data-redis-0'])).code !== 0 ? true : null,
  );
});
