import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { lockFile, lockSet } from './lock.ts';

async function folderOf(t: { after(work: () => Promise<void>): void }): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'lock-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

test('one holds it, the next is told who has it, and what a dead one left is taken over', async (t) => {
  const folder = await folderOf(t);
  const path = join(folder, 'lock');
  {
    await using _held = await lockFile(path, 'trying', 0);
    await assert.rejects(lockFile(path, 'trying', 0), { code: 'conflict', message: new RegExp(`process ${process.pid}`) });
  }
  assert.deepEqual(await readdir(folder), []);
  await symlink('999999999-1', path);
  await using _taken = await lockFile(path, 'trying', 0);
  assert.deepEqual(await readdir(folder), ['lock']);
});

test('something else in its place is told of, not waited for', { timeout: 5_000 }, async (t) => {
  const folder = await folderOf(t);
  const path = join(folder, 'lock');
  await writeFile(path, 'not ours');
  await assert.rejects(lockFile(path, 'trying', 0), { code: 'conflict', message: /is no lock of ours/ });
});

test('the last to hold a set takes the empty folder away', async (t) => {
  const folder = await folderOf(t);
  const home = join(folder, 'home');
  {
    await using _held = await lockSet(home, 'one');
    assert.deepEqual(await readdir(home), ['one.lock']);
  }
  assert.deepEqual(await readdir(folder), []);
});
