import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { execa } from 'execa';
import { hasCode } from '../../base/errors.ts';
import { blobPath, listImages, storeImage } from '../../node/io/images.ts';
import { layerBlob, makeLayer, requirePrograms, shareBlob, type LayerOptions } from './layers.ts';
import type { LayerRecipe } from './recipes.ts';

async function scratch(): Promise<AsyncDisposable & { dir: string; options: LayerOptions; steps: () => number }> {
  const dir = await mkdtemp(`${tmpdir()}/nodelet-layers-`);
  let steps = 0;
  await writeFile(`${dir}/agnhost`, 'a program');
  const options: LayerOptions = {
    assets: { path: (name) => (name === 'agnhost' ? `${dir}/agnhost` : null) },
    sources: dir,
    dir: `${dir}/cache`,
    build: false,
    refresh: false,
    signal: new AbortController().signal,
    note: () => undefined,
    step: async (work) => {
      steps++;
      return work();
    },
    fillRegistry: () => Promise.resolve(),
    digestOf: () => '',
  };
  return { dir, options, steps: () => steps, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) };
}

const RECIPE: LayerRecipe = {
  files: [
    { path: '/bin/tool', mode: 0o4755, content: { kind: 'program', source: { kind: 'asset', asset: 'agnhost' } } },
    { path: '/bin/other', content: { kind: 'link', to: 'tool' } },
    { path: '/tmp', mode: 0o1777, content: { kind: 'directory' } },
    { path: '/etc/motd', content: { kind: 'text', text: 'hello\n' } },
  ],
};

test('a layer keeps modes, links and set-user-ID, and the same recipe gives the same bytes', async () => {
  await using one = await scratch();
  await using two = await scratch();
  const layer = await makeLayer(one.options, RECIPE, []);
  const listing = (await execa('tar', ['--list', '--verbose', '--gzip', '--file', layerBlob(one.options.dir, layer.digest)])).stdout;
  assert.match(listing, /^-rwsr-xr-x .* \.\/bin\/tool$/m);
  assert.match(listing, /^l.* \.\/bin\/other -> tool$/m);
  assert.match(listing, /^drwxrwxrwt .* \.\/tmp\/$/m);
  assert.match(listing, /^-rw-r--r-- .* 6 .* \.\/etc\/motd$/m);
  assert.deepEqual(layer.programs, ['/bin/other', '/bin/tool']);
  assert.equal((await makeLayer(two.options, RECIPE, [])).digest, layer.digest);
});

test('a layer is made once, and again when a file of it changed', async () => {
  await using place = await scratch();
  const first = await makeLayer(place.options, RECIPE, []);
  assert.deepEqual(await makeLayer(place.options, RECIPE, []), first);
  assert.equal(place.steps(), 1);
  await writeFile(`${place.dir}/agnhost`, 'another program');
  assert.notEqual((await makeLayer(place.options, RECIPE, [])).digest, first.digest);
  assert.equal(place.steps(), 2);
});

test('a program that is not to be had is said before anything is made', async () => {
  await using place = await scratch();
  const recipe: LayerRecipe = { files: [{ path: '/coredns', content: { kind: 'program', source: { kind: 'asset', asset: 'coredns' } } }] };
  await assert.rejects(requirePrograms(place.options, recipe), (error) => hasCode(error, 'not-found') && /coredns/.test(String(error)));
  const module: LayerRecipe = { files: [{ path: '/x', content: { kind: 'program', source: { kind: 'module', module: 'm', version: 'v1', package: '.' } } }] };
  await assert.rejects(requirePrograms(place.options, module), (error) => hasCode(error, 'not-found') && /not built yet/.test(String(error)));
  assert.equal(place.steps(), 0);
});

test('an image of two layers lies whole in the store, its layers in order', async () => {
  await using place = await scratch();
  const store = { dir: `${place.dir}/store` };
  const layers = [
    await makeLayer(place.options, RECIPE, []),
    await makeLayer(place.options, { files: [{ path: '/etc/motd', content: { kind: 'text', text: 'over it\n' } }] }, []),
  ];
  for (const { digest } of layers) await shareBlob(layerBlob(place.options.dir, digest), blobPath(store, digest));
  const name = { host: 'registry.example', repository: 'a/b', tag: '1' };
  const image = await storeImage(store, name, layers, { user: '1234', labels: { is: 'a test' } });
  const manifest = JSON.parse(await readFile(blobPath(store, image.digest), 'utf8')) as {
    config: { digest: string };
    layers: { digest: string; size: number }[];
  };
  assert.deepEqual(
    manifest.layers.map(({ digest }) => digest),
    layers.map(({ digest }) => digest),
  );
  for (const { digest, size } of manifest.layers) assert.equal((await stat(blobPath(store, digest))).size, size);
  const config = JSON.parse(await readFile(blobPath(store, manifest.config.digest), 'utf8')) as { config: unknown; rootfs: { diff_ids: string[] } };
  assert.deepEqual(
    config.rootfs.diff_ids,
    layers.map(({ diffId }) => diffId),
  );
  assert.partialDeepStrictEqual(config.config, { User: '1234', Labels: { is: 'a test' } });
  assert.deepEqual(
    (await listImages(store)).map((entry) => entry.name),
    ['registry.example/a/b:1'],
  );
});
