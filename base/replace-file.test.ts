import assert from 'node:assert/strict';
import { lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { replaceFile } from './replace-file.ts';

test('a file is replaced in one step, with its mode, and nothing that lies in the way is followed', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'replace-'));
  t.after(() => rm(dir, { recursive: true }));
  const [path, other] = [join(dir, 'a'), join(dir, 'other')];
  await writeFile(path, 'old', { mode: 0o666 });
  await writeFile(other, 'untouched');
  await symlink(other, `${path}.new`);
  await replaceFile(path, 'new');
  assert.equal(await readFile(path, 'utf8'), 'new');
  assert.equal((await lstat(path)).mode & 0o777, 0o600);
  assert.equal(await readFile(other, 'utf8'), 'untouched');
  await replaceFile(path, 'open', 0o666);
  assert.equal((await lstat(path)).mode & 0o777, 0o666);
  assert.deepEqual((await readdir(dir)).toSorted(), ['a', 'other']);
});

test('what cannot be put in place leaves nothing beside it', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'replace-'));
  t.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 'a');
  await mkdir(join(path, 'full'), { recursive: true });
  await assert.rejects(replaceFile(path, 'new'));
  assert.deepEqual(await readdir(dir), ['a']);
});
