import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { installPlugin } from './install.ts';

test('the plugin goes into a folder, also one that is not there, and a file in its place is told', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'cni-install-'));
  t.after(() => rm(folder, { recursive: true }));
  const from = { front: join(folder, 'front'), node: 'node', bundle: '/b/x.mjs', sys: '/s' };
  await writeFile(from.front, 'x');
  await installPlugin(join(folder, 'a/b'), from);
  assert.deepEqual((await readdir(join(folder, 'a/b'))).toSorted(), ['fallback', 'loopback', 'nodelet']);
  await assert.rejects(installPlugin(from.front, from), { code: 'invalid', message: `install the CNI plugin: ${from.front} is no folder` });
});
