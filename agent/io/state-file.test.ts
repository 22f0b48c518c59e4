import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StateFile } from './state-file.ts';

test('a full disk does not keep a program from starting with the state it has', async () => {
  let text = 'as before';
  const full = { read: async () => 'as before', write: () => Promise.reject(new Error('ENOSPC')) };
  const file = new StateFile(full, () => text, await full.read());
  await file.save();
  text = 'other';
  await assert.rejects(file.save(), /ENOSPC/);
});

test('it tells of no change, and writes none', async () => {
  const writes: string[] = [];
  const file = new StateFile({ read: async () => '', write: async (text) => void writes.push(text) }, () => 'now');
  await file.saved();
  assert.deepEqual(writes, []);
  file.touch();
  await file.saved();
  await file.save();
  assert.deepEqual(writes, ['now']);
});
