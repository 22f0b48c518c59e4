import { test } from 'node:test';
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, readlink, rename, stat, symlink } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { goEnv } from './go.ts';
import { readManifest } from './store.ts';
import { fakeGo, makeWorld, type World } from './world.ts';

const builds = (world: World): Promise<string[]> =>
  readFile(`${world.folder}/builds`, 'utf8').then(
    (text) => text.trim().split('\n'),
    () => [],
  );

async function until(what: string, met: () => Promise<boolean>): Promise<void> {
  const deadline = performance.now() + 60_000;
  while (!(await met())) {
    assert.ok(performance.now() < deadline, what);
    await delay(20);
  }
}

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

test('what is built is not built again, and a set that moved is linked', async () => {
  await using world = await makeWorld();
  await fakeGo(world);
  const first = await world.assets(['build', 'kubelet', 'crictl', '--json']);
  assert.equal(first.code, 0, first.stderr);
  assert.match(first.stderr, /ok kubelet 1\.37\.2 \(1 of 2\).*s\)\n.*ok crictl 1\.37\.0 \(2 of 2\)/);
  assert.deepEqual(await builds(world), ['k8s.io/kubernetes/cmd/kubelet', 'sigs.k8s.io/cri-tools/cmd/crictl']);
  const set = await readlink(`${world.root}/current`);
  assert.equal((JSON.parse(first.stdout) as { set: string }).set, set);
  assert.deepEqual((await world.build(['kubelet', 'crictl'])).kept, ['kubelet', 'crictl']);
  await rename(`${world.root}/${set}`, `${world.root}/0123456789abcdef`);
  assert.deepEqual((await world.build(['kubelet'])).kept, ['kubelet']);
  assert.equal((await builds(world)).length, 2);
  assert.equal((await stat(`${world.root}/${set}/crictl`)).nlink, 2);
});

test('without a command it builds only what was not found', async () => {
  await using world = await makeWorld();
  await fakeGo(world, 'case "$package" in */kubeadm) ;; *) echo "no such package" >&2; exit 1 ;; esac');
  for (const name of ['kubelet', 'kube-proxy']) await world.script(`${world.bin}/${name}`, 'echo Kubernetes v1.37.2');
  const result = await world.assets([]);
  assert.equal(result.code, 1, 'the others failed');
  const tried = await builds(world);
  assert.ok(tried.includes('k8s.io/kubernetes/cmd/kubeadm') && !tried.includes('k8s.io/kubernetes/cmd/kubelet'));
  assert.match(result.stdout, /1 built in .* 0 were there, \d+ failed \(go1\.26\.8\)/);
  assert.match(result.stdout, /^etcd: building etcd: no such package$/m);
  assert.equal((await world.assets(['path', 'kubeadm'])).stdout, `${world.root}/current/kubeadm\n`);
});

test('a killed build leaves nothing half, and the next goes on from there', async () => {
  await using world = await makeWorld();
  await fakeGo(
    world,
    `case "$package" in */kubelet) if [ ! -e ${world.folder}/go-on ]; then echo half > "$out"; echo $$ > ${world.folder}/pid; exec sleep 60; fi ;; esac`,
  );
  const main = new URL('main.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, [main, 'build', 'kube-scheduler', 'kubelet'], { env: world.env, stdio: 'ignore' });
  await until('the compiler runs', () => exists(`${world.folder}/pid`));
  await assert.rejects(world.build(['kube-proxy']), new RegExp(`another command \\(process ${child.pid}\\) is at it`));
  child.kill('SIGKILL');
  await once(child, 'close');
  process.kill(Number(await readFile(`${world.folder}/pid`, 'utf8')), 'SIGKILL');
  const set = await readlink(`${world.root}/current`);
  assert.equal(await exists(`${world.root}/${set}/kubelet`), false);
  assert.deepEqual(Object.keys((await readManifest(`${world.root}/${set}`))?.programs ?? {}), ['kube-scheduler']);
  await symlink('.', `${world.folder}/go-on`);
  const next = await world.build(['kube-scheduler', 'kubelet']);
  assert.deepEqual([next.kept, Object.keys(next.built)], [['kube-scheduler'], ['kubelet']]);
  assert.deepEqual((await readdir(world.root)).sort(), [set, 'current'].sort());
});

test('asked to stop, it ends the compiler, says so, and cleans up', async () => {
  await using world = await makeWorld();
  // The linker is a child of Go's, and must go with it.
  await fakeGo(world, `sleep 60 & echo $! > ${world.folder}/pid; wait`);
  const main = new URL('main.ts', import.meta.url).pathname;
  const child = spawn(process.execPath, [main, 'build', 'kubelet'], { env: world.env, stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  await until('the compiler runs', () => exists(`${world.folder}/pid`));
  child.kill('SIGTERM');
  const [code] = (await once(child, 'close')) as [number];
  assert.equal(code, 130);
  assert.match(stderr, /what was built stays/);
  const pid = Number(await readFile(`${world.folder}/pid`, 'utf8'));
  await until('the linker is gone', async () => /^\d+ \(.*\) Z|^$/.test(await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')));
  assert.deepEqual(
    (await readdir(world.root)).filter((name) => name.startsWith('.work') || name === 'lock'),
    [],
  );
});

test('a wrong version stamp is no success', async () => {
  await using world = await makeWorld();
  await fakeGo(world, 'flags=');
  assert.deepEqual((await world.build(['kubelet'])).failed, { kubelet: 'building kubelet: what was built says nothing: it does not tell its version' });
});

test('the command line takes the folder before and behind the command', async () => {
  await using world = await makeWorld();
  await world.script(`${world.folder}/own/crictl`, 'echo crictl version v1.37.0');
  const own = ['--assets', `${world.folder}/own`];
  for (const args of [
    ['path', 'crictl', ...own],
    [...own, 'path', 'crictl'],
  ])
    assert.equal((await world.assets(args)).stdout, `${world.folder}/own/crictl\n`);
  const list = JSON.parse((await world.assets(['list', '--json', ...own])).stdout) as { components: { name: string; from: string | null }[] };
  assert.equal(list.components.find(({ name }) => name === 'crictl')?.from, '--assets');
  const nothing = await world.assets(['path', 'kubelett']);
  assert.equal(nothing.code, 2);
  assert.match(nothing.stderr, /there is no component "kubelett"/);
});

test('without Go it says what to do', async () => {
  await using world = await makeWorld();
  const result = await world.assets(['--json']);
  assert.equal(result.code, 1);
  assert.match(result.stderr, /there is no Go on PATH\n {2}install Go 1\.26 or later/);
  assert.equal(await exists(world.root), false);
});

test('no environment of the caller lets a download go unchecked', () => {
  const env = goEnv({ GOFLAGS: '-mod=mod -insecure', GONOSUMDB: '*', GOPRIVATE: '*', GOINSECURE: '*', GOPROXY: 'https://proxy.example' }, false);
  assert.equal(env['GOFLAGS'], '-mod=readonly -trimpath -buildvcs=false');
  assert.deepEqual([env['GONOSUMDB'], env['GOPRIVATE'], env['GOINSECURE']], ['', '', '']);
  assert.equal(env['GOPROXY'], 'https://proxy.example');
});
