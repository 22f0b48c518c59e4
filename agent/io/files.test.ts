import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { realRng } from '../../base/rng.ts';
import { createPodFiles, wholePath } from './files.ts';

const files = createPodFiles(realRng);

function world(t: TestContext) {
  const root = mkdtempSync(join(tmpdir(), 'pod-files-'));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  mkdirSync(join(root, 'outside'));
  writeFileSync(join(root, 'outside', 'kept'), '');
  return root;
}

test('all of a tree goes, links themselves and nothing behind them; nothing there is fine', async (t) => {
  const root = world(t);
  mkdirSync(join(root, 'pod', 'a', 'b'), { recursive: true });
  for (const name of ['a/0.log', 'a/b/1.log', 'c']) writeFileSync(join(root, 'pod', name), '');
  symlinkSync('../../outside', join(root, 'pod', 'a', 'link'));
  await files.removeTree(join(root, 'pod'));
  await files.removeTree(join(root, 'pod'));
  symlinkSync('outside', join(root, 'top'));
  await files.removeTree(join(root, 'top'));
  writeFileSync(join(root, 'file'), '');
  await files.removeTree(join(root, 'file'));
  assert.deepEqual(readdirSync(root), ['outside']);
  assert.deepEqual(readdirSync(join(root, 'outside')), ['kept']);
});

test('a directory that becomes a link while it is looked into leads nowhere', async (t) => {
  const root = world(t);
  for (let count = 0; count < 30; count += 1) {
    const dirs = Array.from({ length: 20 }, (_, at) => join(root, 'pod', `d${at}`));
    for (const dir of dirs) mkdirSync(dir, { recursive: true });
    const removing = files.removeTree(join(root, 'pod')).catch(() => undefined);
    for (const dir of dirs.toReversed()) {
      await turn();
      try {
        renameSync(dir, `${dir}.away`);
        symlinkSync(join(root, 'outside'), dir);
      } catch {
        // It is gone already.
      }
    }
    await removing;
    assert.ok(existsSync(join(root, 'outside', 'kept')), `round ${count}`);
    await files.removeTree(join(root, 'pod'));
  }
});

test('a termination message lies where it is said, from the root of the container', () => {
  assert.deepEqual(['/dev/termination-log', 'tmp/words', ''].map(wholePath), ['/dev/termination-log', '/tmp/words', '']);
});
