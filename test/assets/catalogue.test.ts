import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { ASSET_NAMES, MODULES, rowOf, type ModuleName } from './catalogue.ts';
import { moduleFolder } from './go.ts';
import { misfit } from './version.ts';

/** What a module is there for, when it is not a path that its name is in. */
const MAIN: Readonly<Record<ModuleName, string>> = {
  kubernetes: 'k8s.io/kubernetes',
  etcd: 'go.etcd.io/etcd/server/v3',
  'containerd-2.4': 'github.com/containerd/containerd/v2',
  'containerd-2.3': 'github.com/containerd/containerd/v2',
  runc: 'github.com/opencontainers/runc',
  cni: 'github.com/containernetworking/plugins',
  coredns: 'github.com/coredns/coredns',
  'cri-tools': 'sigs.k8s.io/cri-tools',
  kind: 'sigs.k8s.io/kind',
  'network-policy': 'sigs.k8s.io/network-policy-api',
};

for (const module of Object.keys(MODULES) as ModuleName[]) {
  test(`the Go module ${module} pins what the catalogue says`, async () => {
    const [mod, sum, tools] = await Promise.all(['go.mod', 'go.sum', 'tools.go'].map((file) => readFile(`${moduleFolder(module)}/${file}`, 'utf8')));
    assert.ok(mod?.includes(`${MAIN[module]} v${MODULES[module]}`), 'go.mod requires that version');
    assert.ok(sum?.includes(`${MAIN[module]} v${MODULES[module]} h1:`), 'go.sum has its checksum');
    const pinned = [...(tools ?? '').matchAll(/_ "([^"]+)"/g)].map(([, path]) => path ?? '').sort((a, b) => (a < b ? -1 : 1));
    const wanted = ASSET_NAMES.map(rowOf).filter((row) => row.module === module);
    assert.deepEqual(pinned, [...new Set(wanted.map((row) => row.package))].sort());
  });
}

test('every folder of modules is in the catalogue', async () => {
  assert.deepEqual((await readdir(moduleFolder('etcd').replace(/etcd$/, ''))).sort(), Object.keys(MODULES).sort());
});

test('the staging modules of Kubernetes are replaced by its release', async () => {
  const mod = await readFile(`${moduleFolder('kubernetes')}/go.mod`, 'utf8');
  const replaced = [...mod.matchAll(/^\tk8s\.io\/\S+ => k8s\.io\/\S+ (\S+)$/gm)].map(([, version]) => version);
  assert.equal(replaced.length, 33);
  assert.deepEqual([...new Set(replaced)], [`v0${MODULES.kubernetes.slice(1)}`]);
});

test('ginkgo is the one that e2e.test is built with', async () => {
  assert.ok((await readFile(`${moduleFolder('kubernetes')}/go.mod`, 'utf8')).includes(`github.com/onsi/ginkgo/v2 v${rowOf('ginkgo').version}`));
});

test('which versions fit', () => {
  const kubelet = rowOf('kubelet');
  assert.equal(misfit(kubelet, '1.37.2'), null);
  assert.equal(misfit(kubelet, '1.37.1'), 'it must be 1.37.2');
  assert.equal(misfit(kubelet, '1.37.2-rc.1'), 'it must be 1.37.2');
  const containerd = rowOf('containerd-2.4/containerd');
  assert.equal(misfit(containerd, '2.4.0'), null);
  assert.equal(misfit(containerd, '2.40.0'), 'it must be 2.4');
  assert.equal(misfit(containerd, '1.6.20~ds1'), 'it must be 2.4');
  const runc = rowOf('runc');
  assert.equal(misfit(runc, '1.10.0'), null);
  assert.equal(misfit(runc, '1.3.0'), null);
  assert.equal(misfit(runc, '1.1.5+ds1'), 'it must be 1.3.0 or later');
});
