import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseImageName } from '../../node/core/oci.ts';
import { checksOf } from './checks.ts';
import { layerPackages, readUris } from './packages.ts';
import { ABSENT, IMAGES, imagesNamed, LAYERS } from './recipes.ts';
import { digestPath, registryIndex } from './registry-tree.ts';

test('every image has a full name of its own, layers with recipes, and checks', () => {
  const names = IMAGES.map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
  for (const image of IMAGES) {
    const name = parseImageName(image.name);
    assert.ok(name !== null, image.name);
    assert.equal(`${name.host}/${name.repository}:${name.tag}`, image.name);
    for (const layer of image.layers) assert.ok(LAYERS[layer] !== undefined, `${image.name}: ${layer}`);
    assert.ok(checksOf(image.name).length > 0, `${image.name} is never looked at`);
    assert.ok(!ABSENT.some((absent) => absent.name === image.name), `${image.name} is listed as absent`);
  }
});

test('no layer is without an image, and packages stand on the common base', () => {
  const used = new Set(IMAGES.flatMap(({ layers }) => layers));
  assert.deepEqual(
    Object.keys(LAYERS).filter((name) => !used.has(name)),
    [],
  );
  for (const { name, layers } of IMAGES) {
    const onTop = layers.slice(1).some((layer) => LAYERS[layer]?.packages !== undefined);
    if (onTop) assert.equal(layers[0], 'base', name);
  }
});

test('what the tests look for is in the recipes', () => {
  const paths = (name: string) => (LAYERS[name]?.files ?? []).map((file) => file.path);
  for (const path of ['/agnhost', '/agnhost-2', '/localhost.crt', '/localhost.key', '/uploads']) assert.ok(paths('agnhost').includes(path), path);
  assert.equal(LAYERS['nonewprivs']?.files?.find((file) => file.path.endsWith('/nnp'))?.mode, 0o6755);
  assert.equal(imagesNamed('nonroot')[0]?.settings.user, '1234');
  const shell = LAYERS['busybox']?.files?.find((file) => file.path === '/bin/sh');
  assert.deepEqual(shell?.content, { kind: 'program', source: { kind: 'c', source: 'sh.c' } });
  for (const layers of imagesNamed('agnhost').map((image) => image.layers)) assert.deepEqual(layers.at(-1), 'agnhost');
});

test('images are chosen by full name, by last part and by name without tag', () => {
  const tags = (text: string) => imagesNamed(text).map(({ name }) => name.slice(name.lastIndexOf('/') + 1));
  assert.deepEqual(tags('nginx'), ['nginx:1.27.0-2', 'nginx:1.28.0-2', 'nginx:1.14-2', 'nginx:1.29', 'nginx:1.30-alpine', 'nginx:1.31-alpine']);
  assert.deepEqual(tags('nginx:1.28.0-2'), ['nginx:1.28.0-2']);
  assert.deepEqual(tags('registry.k8s.io/pause:3.10.2'), ['pause:3.10.2']);
  assert.deepEqual(tags('ngin'), []);
});

test('the packages of a layer are what apt names, without what stands below and what only scripts need', () => {
  const listing = [
    "'http://mirror/pool/b/bash/bash_5.2_amd64.deb' bash_5.2_amd64.deb 10 SHA256:00",
    "'http://mirror/pool/d/debconf/debconf_1.5_all.deb' debconf_1.5_all.deb 10 SHA256:00",
    "'http://mirror/pool/p/perl/perl-base_5.36_amd64.deb' perl-base_5.36_amd64.deb 10 SHA256:00",
    "'http://mirror/pool/u/util/util-linux_2.38%3a1_amd64.deb' util-linux_2.38%3a1_amd64.deb 10 SHA256:00",
    'a line of another kind',
  ].join('\n');
  const all = readUris(listing);
  assert.deepEqual(
    all.map(({ name, file }) => [name, file]),
    [
      ['bash', 'bash_5.2_amd64.deb'],
      ['debconf', 'debconf_1.5_all.deb'],
      ['perl-base', 'perl-base_5.36_amd64.deb'],
      ['util-linux', 'util-linux_2.38%3a1_amd64.deb'],
    ],
  );
  const names = (below: string[], wanted: string[], withScripting = false) => layerPackages(all, new Set(below), wanted, withScripting).map(({ name }) => name);
  assert.deepEqual(names([], ['bash', 'util-linux']), ['bash', 'util-linux']);
  assert.deepEqual(names(['bash'], ['util-linux']), ['util-linux']);
  assert.deepEqual(names(['bash', 'util-linux'], ['perl-base']), ['perl-base']);
  assert.deepEqual(names(['bash', 'util-linux'], ['perl'], true), ['debconf', 'perl-base']);
});

test('the fake registry finds a digest by its first two digits, and an index names its type', () => {
  const digest = `sha256:${'ab'.repeat(32)}`;
  assert.equal(digestPath('/r/blobs', digest), `/r/blobs/sha256/ab/${'ab'.repeat(32)}/data`);
  const index = JSON.parse(registryIndex({ digest, size: 7 }, 'amd64')) as { mediaType: string; manifests: unknown[] };
  assert.equal(index.mediaType, 'application/vnd.oci.image.index.v1+json');
  assert.deepEqual(index.manifests, [
    { mediaType: 'application/vnd.oci.image.manifest.v1+json', digest, size: 7, platform: { architecture: 'amd64', os: 'linux' } },
  ]);
});
