import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { seededRng } from '../../base/rng.ts';
import { createPodFiles } from './files.ts';

test('a tree is removed whole, and nothing that its links lead to', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'files-'));
  try {
    mkdirSync(`${folder}/outside`);
    writeFileSync(`${folder}/outside/kept`, '');
    mkdirSync(`${folder}/logs/a/deep`, { recursive: true });
    for (const name of ['a/0.log', 'a/deep/1.log', 'top']) writeFileSync(`${folder}/logs/${name}`, '');
    symlinkSync(`${folder}/outside`, `${folder}/logs/link`);
    symlinkSync(`${folder}/outside`, `${folder}/itself`);
    const files = createPodFiles(seededRng(1));
    for (const name of ['logs', 'itself', 'never-there']) await files.removeTree(`${folder}/${name}`);
    assert.deepEqual(readdirSync(folder), ['outside']);
    assert.equal(existsSync(`${folder}/outside/kept`), true);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
