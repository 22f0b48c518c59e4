import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { openBundler } from './bundle.ts';

test('a changed source is in the next program; a fault is told with its place, and the next build goes on', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'bundle-'));
  t.after(() => rm(root, { recursive: true }));
  await mkdir(join(root, 'node'));
  const source = join(root, 'node/main.ts');
  await writeFile(source, 'console.log("first" as string);');
  await using bundler = await openBundler(root);
  const file = await bundler.build();
  assert.match(await readFile(file, 'utf8'), /first/);
  await writeFile(source, 'console.log(;');
  await assert.rejects(bundler.build(), (error) => error instanceof OpError && error.code === 'invalid' && /main\.ts:1: Unexpected/.test(error.message));
  await writeFile(source, 'console.log("second");');
  await bundler.build();
  assert.match(await readFile(file, 'utf8'), /second/);
});
