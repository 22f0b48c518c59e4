import { test } from 'node:test';
import assert from 'node:assert/strict';
import { readdir, readFile, readlink, stat, writeFile } from 'node:fs/promises';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { pack } from 'tar-stream';
import { buffer } from 'node:stream/consumers';
import { OpError, type OpCode } from '../../base/errors.ts';
import type { AssetName } from './catalogue.ts';
import { findAssets } from './find.ts';
import { packAssets, unpackAssets, type Packed } from './pack.ts';
import type { Manifest } from './store.ts';
import { fakeGo, makeWorld, type World } from './world.ts';

interface Entry {
  name: string;
  body?: string;
  type?: 'file' | 'symlink';
  linkname?: string;
}

async function archive(entries: readonly Entry[]): Promise<Buffer> {
  const tar = pack();
  for (const { body = '', ...header } of entries) tar.entry({ ...header, mode: 0o755 }, body);
  tar.finalize();
  return zstdCompressSync(await buffer(tar));
}

/** What is there of a set after an unpacking that was refused. */
const leftIn = (world: World): Promise<string[]> => readdir(world.root).catch(() => []);

const { signal } = new AbortController();
const unpack = (world: World, file: string, expected?: string): Promise<Manifest> =>
  unpackAssets(world.root, file, { expected, platform: 'linux/amd64', signal });
const refusal =
  (code: OpCode, words: RegExp) =>
  (error: unknown): boolean =>
    error instanceof OpError && error.code === code && words.test(error.message);

async function packed(from: World, names: readonly AssetName[]): Promise<Packed> {
  await fakeGo(from);
  await from.build(names);
  return packAssets(from.root, from.folder, signal);
}

test('a packed set is the same on another machine, and there needs no Go', async () => {
  await using from = await makeWorld();
  await using to = await makeWorld();
  const { file, content } = await packed(from, ['kubelet', 'cni/ptp']);
  assert.ok(file.endsWith(`/nodelet-assets-${content}.tar.zst`));
  const first = await readFile(file);
  await packAssets(from.root, `${from.folder}/again`, signal);
  assert.deepEqual(await readFile(`${from.folder}/again`), first, 'the same content is the same file');
  const result = await to.assets(['unpack', file, '--json']);
  assert.equal(result.code, 0, result.stderr);
  const set = await readlink(`${to.root}/current`);
  assert.equal(set, await readlink(`${from.root}/current`));
  assert.deepEqual(await readFile(`${to.root}/${set}/cni/ptp`), await readFile(`${from.root}/${set}/cni/ptp`));
  assert.equal((await stat(`${to.root}/${set}/kubelet`)).mode & 0o777, 0o755);
  assert.equal((await findAssets({ env: to.env, cniFolders: [] })).path('cni/ptp'), `${to.root}/current/cni/ptp`);
  assert.deepEqual((await leftIn(to)).sort(), [set, 'current'].sort());
});

test('unpacking keeps what the set had beyond the file', async () => {
  await using from = await makeWorld();
  await using to = await makeWorld();
  const { file } = await packed(from, ['kubelet']);
  await fakeGo(to);
  await to.build(['crictl']);
  await unpack(to, file);
  assert.deepEqual((await to.build(['kubelet', 'crictl'])).kept, ['kubelet', 'crictl']);
});

test('a file is named where the caller is, and a folder that is not there is told before the work', async () => {
  await using world = await makeWorld();
  await fakeGo(world);
  await world.build(['kubectl']);
  const named = await world.assets(['pack', world.folder]);
  assert.equal(named.code, 0, named.stderr);
  assert.equal((await readdir(world.folder)).filter((name) => name.startsWith('nodelet-assets-')).length, 1);
  const nowhere = await world.assets(['pack', `${world.folder}/missing/file`]);
  assert.equal(nowhere.code, 2);
  assert.match(nowhere.stderr, /no file can be written in/);
});

test('what was changed, cut off or is named by another content is refused, and nothing is put in place', async () => {
  await using from = await makeWorld();
  await using to = await makeWorld();
  const { file, content } = await packed(from, ['kubelet']);
  const bytes = await readFile(file);
  const plain = zstdDecompressSync(bytes).toString('latin1');
  const other = `${to.folder}/nodelet-assets-${content.replace(/^./, (digit) => (digit === '0' ? '1' : '0'))}.tar.zst`;
  const cases: [string, Buffer, RegExp, string?][] = [
    [`${to.folder}/changed`, zstdCompressSync(Buffer.from(plain.replace('echo', 'exec'), 'latin1')), /kubelet is not what the manifest says/],
    [`${to.folder}/cut`, bytes.subarray(0, bytes.length - 20), /the file is damaged/],
    [`${to.folder}/short`, zstdCompressSync(Buffer.from(plain.slice(0, 1024), 'latin1')), /the file is damaged|cannot be read|is missing/],
    [`${to.folder}/text`, Buffer.from('no archive'), /the file is damaged/],
    [`${to.folder}/empty`, Buffer.alloc(0), /the file is damaged|it is empty/],
    [other, bytes, /its content is .*, and its name says/],
    [`${to.folder}/good`, bytes, /and --hash says 0000/, '0'.repeat(64)],
  ];
  for (const [path, data, words, expected] of cases) {
    await writeFile(path, data);
    await assert.rejects(unpack(to, path, expected), refusal('invalid', words), path);
    assert.deepEqual(await leftIn(to), [], path);
  }
  await assert.rejects(unpack(to, `${to.folder}/nowhere`), refusal('not-found', /there is no such file/));
});

test('an archive cannot reach outside the set', async () => {
  await using world = await makeWorld();
  const made = { key: 'k', version: '1', sizeBytes: 4, sha256: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08', seconds: 1 };
  const manifest = (name: string, set = '0123456789abcdef'): Entry => ({
    name: 'assets.json',
    body: JSON.stringify({ set, go: 'go1', platform: 'linux/amd64', programs: { [name]: made } }),
  });
  const cases: [Entry[], RegExp][] = [
    [[manifest('../evil'), { name: '../evil', body: 'test' }], /no place below/],
    [[manifest('/etc/evil'), { name: '/etc/evil', body: 'test' }], /no place below/],
    [[manifest('a/../../evil'), { name: 'a/../../evil', body: 'test' }], /no place below/],
    [[manifest('kubelet', '../../evil'), { name: 'kubelet', body: 'test' }], /manifest cannot be read/],
    [[manifest('kubelet'), { name: '../kubelet', body: 'test' }], /which its manifest does not name/],
    [[manifest('kubelet'), { name: 'kubelet', type: 'symlink', linkname: '/etc' }], /a symlink, where only files belong/],
    [[{ name: 'kubelet', body: 'test' }], /does not begin with a manifest/],
    [[manifest('kubelet'), { name: 'kubelet', body: 'test' }, { name: 'kubelet', body: 'evil' }], /which its manifest does not name/],
    [[manifest('kubelet'), { name: 'kubelet', body: 'longer' }], /has 6 bytes, and the manifest says 4/],
    [[manifest('kubelet')], /kubelet is missing/],
  ];
  for (const [entries, words] of cases) {
    const path = `${world.folder}/evil.tar.zst`;
    await writeFile(path, await archive(entries));
    await assert.rejects(unpack(world, path), refusal('invalid', words));
    assert.deepEqual(await leftIn(world), []);
  }
  assert.deepEqual((await readdir(world.folder)).sort(), ['bin', 'cache', 'evil.tar.zst']);
});

test('a set for another platform is refused, and nothing built cannot be packed', async () => {
  await using world = await makeWorld();
  const path = `${world.folder}/other.tar.zst`;
  await writeFile(
    path,
    await archive([{ name: 'assets.json', body: JSON.stringify({ set: '0123456789abcdef', go: 'go1', platform: 'plan9/mips', programs: {} }) }]),
  );
  await assert.rejects(unpack(world, path), refusal('unsupported', /it is for plan9\/mips, and this machine is/));
  await assert.rejects(packAssets(world.root, path, signal), refusal('not-found', /nothing is built in/));
});
