import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { killLeft } from './boot.ts';

test('what left its process group is ended by the disk that it was started with, and nothing else', async () => {
  const runDir = `/nonexistent/${process.pid}`;
  const started = [`ubd0=${runDir}/cow,/image`, `ubd0=${runDir}0/cow,/image`].map((word) =>
    spawn(process.execPath, ['-e', 'setInterval(() => 0, 1000)', word], { stdio: 'ignore', detached: true }),
  );
  await Promise.all(started.map((child) => once(child, 'spawn')));
  const [mine, other] = started;
  const [mineEnded, otherEnded] = started.map((child) => once(child, 'exit'));
  await killLeft(runDir);
  await mineEnded;
  assert.equal(mine?.signalCode, 'SIGKILL');
  assert.equal(other?.exitCode ?? other?.signalCode, null);
  other?.kill('SIGKILL');
  await otherEnded;
});
