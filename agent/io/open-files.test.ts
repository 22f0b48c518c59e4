import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { openFiles } from './open-files.ts';

/** Has a thousand files open until its input ends, and its input is a socket or a pipe. */
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
  const before = await openFiles(process.pid);
  const server = createServer();
  t.after(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const after = await openFiles(process.pid);
  assert.equal(after.sockets, before.sockets + 1);
  assert.deepEqual(await openFiles(2 ** 30), { files: 0, sockets: 0 });
});
