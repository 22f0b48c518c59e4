import assert from 'node:assert/strict';
import { appendFile, mkdtemp, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { watchConfigFile } from './config-watch.ts';

async function watched(t: TestContext, path = 'config'): Promise<{ dir: string; changes: () => number; until: Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), 'proxy-config-'));
  await writeFile(join(dir, 'config'), 'mode: nftables\n');
  if (path !== 'config') await symlink('config', join(dir, path));
  let count = 0;
  const { promise, resolve } = Promise.withResolvers<void>();
  const watching = await watchConfigFile(join(dir, path), () => {
    count += 1;
    resolve();
  });
  t.after(async () => {
    await watching[Symbol.asyncDispose]();
    await rm(dir, { recursive: true });
  });
  return { dir, changes: () => count, until: promise };
}

test('a file that is written, or moved away, is told once', async (t) => {
  const one = await watched(t);
  await utimes(join(one.dir, 'config'), 1, 1);
  assert.equal(one.changes(), 0);
  await appendFile(join(one.dir, 'config'), 'clusterCIDR: 10.1.0.0/16\n');
  await one.until;
  await appendFile(join(one.dir, 'config'), '\n');
  const two = await watched(t);
  await rename(join(two.dir, 'config'), join(two.dir, 'other'));
  await two.until;
  assert.deepEqual([one.changes(), two.changes()], [1, 1]);
});

test('a link that leads elsewhere, its file removed, tells nothing', async (t) => {
  const { dir, changes } = await watched(t, 'link');
  await writeFile(join(dir, 'next'), 'mode: iptables\n');
  await symlink('next', join(dir, 'new-link'));
  await rename(join(dir, 'new-link'), join(dir, 'link'));
  await rm(join(dir, 'config'));
  // What another watch of the same folder is told comes after what this one would have been told.
  const later = await watched(t);
  await appendFile(join(later.dir, 'config'), '\n');
  await later.until;
  assert.equal(changes(), 0);
});

test('a file that is not there', async () => {
  await assert.rejects(
    watchConfigFile('/nowhere/config', () => {}),
    (error) => hasCode(error, 'failed'),
  );
});
