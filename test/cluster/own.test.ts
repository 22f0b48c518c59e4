import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { requireWritable, type Program } from '../../scripts/command.ts';
import { claimCluster, holdCluster, useCluster } from './own.ts';

async function folderOf(t: { after(work: () => Promise<void>): void }): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'own-'));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

test('a cluster is one command’s at a time, and its name is a name', async (t) => {
  const folder = join(await folderOf(t), 'held');
  {
    await using _held = await holdCluster('one', folder);
    await assert.rejects(holdCluster('one', folder), { code: 'conflict' });
    await using _other = await holdCluster('two', folder);
  }
  await assert.rejects(readdir(folder), { code: 'ENOENT' });
  await assert.rejects(holdCluster('../one', folder), { code: 'invalid' });
});

test('a cluster that is there is not claimed by a command that would end it', async (t) => {
  const home = await folderOf(t);
  const folder = join(home, 'held');
  const env = { NODELET_STATE: join(home, 'sets') };
  await mkdir(join(home, 'sets/one'), { recursive: true });
  await writeFile(join(home, 'sets/one/set.json'), '{"version": 1}');
  await assert.rejects(claimCluster(env, 'one', folder), { code: 'conflict', message: /would end it/ });
  await assert.rejects(readdir(folder), { code: 'ENOENT' });
  await using _claimed = await claimCluster(env, 'two', folder);
  assert.deepEqual(await readdir(folder), ['two']);
});

test(
  'who comes second neither starts nor ends the cluster of the first, and one that does not come up is ended',
  { skip: process.getuid?.() !== 0 && 'needs root' },
  async (t) => {
    const root = await folderOf(t);
    const said = join(root, 'said');
    await writeFile(join(root, 'nodelet'), `#!/bin/sh\necho "$2 $*" >> ${said}\n[ "$2" != up ] || [ ! -e ${root}/broken ]\n`);
    await chmod(join(root, 'nodelet'), 0o755);
    const program = { host: { signal: new AbortController().signal }, progress: { note: () => undefined } } as unknown as Program;
    const ownName = `own-test-${process.pid}`;
    const use = (): ReturnType<typeof useCluster> => useCluster(program, { root, name: undefined, ownName, up: ['--nodes', '1'], keep: false });
    const verbs = async (): Promise<string[]> =>
      (await readFile(said, 'utf8'))
        .trim()
        .split('\n')
        .map((line) => line.split(' ')[0] ?? '');
    {
      await using first = await use();
      assert.equal(first.name, ownName);
      await assert.rejects(use(), { code: 'conflict' });
      assert.deepEqual(await verbs(), ['up']);
    }
    assert.deepEqual(await verbs(), ['up', 'down']);
    await writeFile(join(root, 'broken'), '');
    await assert.rejects(use(), { code: 'failed' });
    assert.deepEqual(await verbs(), ['up', 'down', 'up', 'down']);
  },
);

test('a file that cannot be written is refused before the work', async (t) => {
  const folder = await folderOf(t);
  await requireWritable('--out', join(folder, 'new'));
  await requireWritable('--out', undefined);
  await assert.rejects(requireWritable('--out', folder), { code: 'invalid', message: /is a folder/ });
  await assert.rejects(requireWritable('--out', join(folder, 'missing/new')), { code: 'invalid', message: /no file can be written/ });
});
