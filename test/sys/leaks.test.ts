import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { assertNothingLeft, leftSince, takeFootprint, watchLeaks } from '../leaks.ts';

const owns = 'of-this-test-alone';

test('a child, a timer and a server are found, and forgotten once they are gone', async () => {
  const before = takeFootprint();
  const child = spawn('sleep', ['60'], { stdio: 'ignore' });
  await once(child, 'spawn');
  const timer = setTimeout(() => {}, 60_000);
  const server = createServer().listen(0);
  await once(server, 'listening');
  const left = leftSince(before);
  assert.deepEqual(left.children, ['sleep']);
  assert.ok(left.handles.includes('Timeout') && left.handles.includes('TCPServerWrap') && left.handles.includes('ProcessWrap'), left.handles.join());
  await assert.rejects(assertNothingLeft(before, { withinMs: 20, owns }), /left something behind/);
  child.kill('SIGKILL');
  clearTimeout(timer);
  server.close();
  await assertNothingLeft(before, { owns });
});

test('a test that cleans up passes', async () => {
  await using _ = watchLeaks({ owns });
  const child = spawn('true', { stdio: 'ignore' });
  await once(child, 'exit');
});
