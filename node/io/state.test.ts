import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { listSets, loadSet } from './state.ts';

test('a set that is not there is told from one that cannot be read', async (t) => {
  const home = await mkdtemp(join(tmpdir(), 'sets-'));
  t.after(() => rm(home, { recursive: true }));
  assert.equal(await loadSet(home, 'none'), null);
  assert.equal(await loadSet(join(home, 'nowhere'), 'none'), null);
  await mkdir(join(home, 'folder', 'set.json'), { recursive: true });
  await assert.rejects(loadSet(home, 'folder'), (error) => hasCode(error, 'failed'));
  await mkdir(join(home, 'damaged'));
  await writeFile(join(home, 'damaged', 'set.json'), '{"version":');
  await assert.rejects(loadSet(home, 'damaged'), (error) => hasCode(error, 'invalid'));
  await rm(join(home, 'folder'), { recursive: true });
  assert.deepEqual(await listSets(home), []);
});

test('another user hears that it is root’s, and not that nothing runs', { skip: process.geteuid?.() !== 0 ? 'needs root' : false }, async (t) => {
  const home = await mkdtemp(join(tmpdir(), 'sets-'));
  t.after(() => rm(home, { recursive: true }));
  await mkdir(join(home, 'one'), { mode: 0o700 });
  await writeFile(join(home, 'one', 'set.json'), '{}');
  // The folder above is for everybody, as /var/lib is.
  await chmod(home, 0o755);
  process.seteuid?.(65_534);
  try {
    await assert.rejects(loadSet(home, 'one'), (error) => hasCode(error, 'denied'));
  } finally {
    process.seteuid?.(0);
  }
});
