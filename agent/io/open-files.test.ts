import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlink } from 'node:fs/promises';
import { test } from 'node:test';
import { openFiles } from './open-files.ts';

/** Has a thousand files open until its input ends. */
const PROGRAM =
  "const { openSync } = require('node:fs'); for (let i = 0; i < 1000; i++) openSync('/dev/null', 'r'); console.log('open'); process.stdin.resume();";

test('the open files of a process are looked at a few at a time, however many a pod opens', async (t) => {
  const child = spawn(process.execPath, ['-e', PROGRAM], { stdio: ['pipe', 'pipe', 'inherit'] });
  t.after(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  let [running, most, looked] = [0, 0, 0];
  const look = async (path: string): Promise<string> => {
    looked += 1;
    most = Math.max(most, (running += 1));
    try {
      return await readlink(path);
    } finally {
      running -= 1;
    }
  };
  const { files } = await openFiles(child.pid ?? 0, 500, look);
  assert.ok(files >= 1000, String(files));
  assert.equal(looked, 500);
  assert.ok(most <= 64, String(most));
});

test('sockets are counted, and a process that is gone has nothing open', async (t) => {
  const listening =
    "const { createServer } = require('node:net'); let count = 0; for (let i = 0; i < 9; i++) createServer().listen(0, '127.0.0.1', () => ++count === 9 && console.log('open'));";
  const child = spawn(process.execPath, ['-e', listening], { stdio: ['ignore', 'pipe', 'ignore'] });
  t.after(() => child.kill('SIGKILL'));
  await once(child.stdout, 'data');
  const { files, sockets } = await openFiles(child.pid ?? 0);
  // Its output is one as well, where Node makes pipes of them.
  assert.ok(sockets === 9 || sockets === 10, String(sockets));
  assert.ok(files > sockets, String(files));
  assert.deepEqual(await openFiles(2 ** 30), { files: 0, sockets: 0 });
});
