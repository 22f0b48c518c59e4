import { test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { hasCode, OpError } from '../../base/errors.ts';
import { findAssets, namesOf } from './find.ts';
import { fakeGo, makeWorld } from './world.ts';

const none: readonly string[] = [];

test('a component on PATH counts only if its version fits, and the wrong one is told', async () => {
  await using world = await makeWorld();
  await world.script(`${world.bin}/kubelet`, 'echo Kubernetes v1.31.0');
  await world.script(`${world.bin}/kube-proxy`, 'echo Kubernetes v1.37.2');
  await world.script(`${world.bin}/runc`, 'echo runc version 1.1.5+ds1');
  await world.script(`${world.bin}/etcd`, 'exit 3');
  const assets = await findAssets({ env: world.env, cniFolders: none });
  assert.equal(assets.path('kubelet'), null);
  assert.equal(assets.path('kube-proxy'), `${world.bin}/kube-proxy`);
  assert.deepEqual(assets.refused(), {
    kubelet: [{ path: `${world.bin}/kubelet`, from: 'PATH', version: '1.31.0', why: 'it must be 1.37.2' }],
    runc: [{ path: `${world.bin}/runc`, from: 'PATH', version: '1.1.5+ds1', why: 'it must be 1.3.0 or later' }],
    etcd: [{ path: `${world.bin}/etcd`, from: 'PATH', version: null, why: 'it does not tell its version' }],
  });
  assert.throws(
    () => assets.require('kubelet', 'starting a node'),
    (error) =>
      error instanceof OpError &&
      error.code === 'not-found' &&
      /starting a node: kubelet 1\.37\.2 is not there; .*1\.31\.0, and it must be/.test(error.message),
  );
});

test('named folders come before the cache and PATH, in their order', async () => {
  await using world = await makeWorld();
  const [option, own, envtest] = ['a', 'b', 'c'].map((name) => `${world.folder}/${name}`);
  for (const folder of [option, own, envtest, world.bin]) await world.script(`${folder}/etcd`, 'echo etcd Version: 3.7.3');
  for (const folder of [own, envtest, world.bin]) await world.script(`${folder}/kubelet`, 'echo Kubernetes v1.37.2');
  for (const folder of [envtest, world.bin]) await world.script(`${folder}/kube-apiserver`, 'echo Kubernetes v1.37.2');
  await world.script(`${own}/e2e_node.test`, '');
  await world.script(`${envtest}/images/consume-cpu`, '');
  const env = { ...world.env, NODELET_ASSETS: own, KUBEBUILDER_ASSETS: envtest };
  const assets = await findAssets({ env, dir: option, cniFolders: none });
  assert.deepEqual(Object.fromEntries(Object.entries(assets.versions()).map(([name, one]) => [name, one.from])), {
    etcd: '--assets',
    kubelet: 'NODELET_ASSETS',
    'kube-apiserver': 'KUBEBUILDER_ASSETS',
    'e2e_node.test': 'NODELET_ASSETS',
  });
  await assert.rejects(findAssets({ env, dir: `${world.folder}/none` }), (error) => hasCode(error, 'invalid'));
});

test('a folder counts when all that belongs together is in it', async () => {
  await using world = await makeWorld();
  const own = `${world.folder}/own`;
  const env = { ...world.env, NODELET_ASSETS: own };
  await world.script(`${own}/containerd-2.4/containerd`, 'echo containerd example.org/containerd v2.4.1 abc');
  await world.script(`${own}/containerd-2.4/ctr`, 'echo ctr example.org/containerd v2.4.1');
  const before = await findAssets({ env, cniFolders: none });
  assert.equal(before.dir('containerd-2.4'), null);
  assert.throws(() => before.requireDir('containerd-2.4', 'starting a node'), /containerd-shim-runc-v2 2\.4\.2 is not there/);
  await world.script(`${own}/containerd-2.4/containerd-shim-runc-v2`, 'printf "shim:\\n  Version:  v2.4.1\\n"');
  assert.equal((await findAssets({ env, cniFolders: none })).dir('containerd-2.4'), `${own}/containerd-2.4`);
});

test('a version is asked for once while the file stays the same', async () => {
  await using world = await makeWorld();
  const asked = (): Promise<number> => readFile(`${world.folder}/asked`, 'utf8').then((text) => text.length / 2);
  await world.script(`${world.bin}/kubelet`, `echo x >> ${world.folder}/asked; echo Kubernetes v1.37.2`);
  await findAssets({ env: world.env, cniFolders: none });
  await findAssets({ env: world.env, cniFolders: none });
  assert.equal(await asked(), 1);
  await world.script(`${world.bin}/kubelet`, `echo x >> ${world.folder}/asked; echo Kubernetes v1.30.1`);
  assert.equal((await findAssets({ env: world.env, cniFolders: none })).path('kubelet'), null);
  assert.equal(await asked(), 2);
});

test('of the cache only what the manifest names counts, and only whole', async () => {
  await using world = await makeWorld();
  await fakeGo(world);
  await world.build(['kubelet', 'kube-proxy']);
  const current = `${world.root}/current`;
  await mkdir(`${current}/cni`, { recursive: true });
  await writeFile(`${current}/kubeadm`, 'half', { mode: 0o755 });
  const assets = await findAssets({ env: world.env, cniFolders: none });
  assert.equal(assets.path('kubelet'), `${current}/kubelet`);
  assert.equal(assets.path('kubeadm'), null);
  await truncate(`${current}/kubelet`, 5);
  const after = await findAssets({ env: world.env, cniFolders: none });
  assert.equal(after.path('kubelet'), null);
  assert.equal(after.path('kube-proxy'), `${current}/kube-proxy`);
  await writeFile(`${current}/assets.json`, '{"set": "x", "pro');
  assert.deepEqual((await findAssets({ env: world.env, cniFolders: none })).versions(), {});
});

test('names of components and of folders', () => {
  assert.deepEqual(namesOf(['runc', 'containerd-2.4', 'runc']), [
    'containerd-2.4/containerd',
    'containerd-2.4/containerd-shim-runc-v2',
    'containerd-2.4/ctr',
    'runc',
  ]);
  assert.throws(
    () => namesOf(['kubelett']),
    (error) => hasCode(error, 'invalid'),
  );
  assert.throws(() => namesOf(['toString']));
});
