import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, mkdirSync, openSync, read, readSync, writeSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { buildProgram, sysProblem } from './program.ts';

const skip = sysProblem() || (existsSync('/dev/fuse') ? false : 'needs /dev/fuse');
if (skip !== false) console.log(`sys on a hung file system: skipped, ${skip}`);

/** A file system that shakes hands and then never answers, as a dead NFS server or a stopped FUSE daemon. */
function mountHung(target: string): void {
  const fd = openSync('/dev/fuse', 'r+');
  execFileSync('mount', ['-i', '-t', 'fuse', '-o', 'fd=3,rootmode=40000,user_id=0,group_id=0', 'hung', target], { stdio: ['ignore', 'ignore', 'inherit', fd] });
  const request = Buffer.alloc(65_536 + 4096);
  readSync(fd, request);
  const answer = Buffer.alloc(80);
  answer.writeUInt32LE(80, 0);
  request.copy(answer, 8, 8, 16); // the request's number
  answer.writeUInt32LE(7, 16); // protocol 7.31
  answer.writeUInt32LE(31, 20);
  answer.writeUInt32LE(65_536, 36); // max_write
  writeSync(fd, answer);
  // Requests are taken, which makes their callers uninterruptible, and kept.
  const swallow = (): void => read(fd, request, 0, request.length, null, (error) => (error === null ? swallow() : closeSync(fd)));
  swallow();
}

test('a file system that hangs holds nobody but those who asked for it', { skip }, async () => {
  using program = buildProgram();
  const target = `${program.dir}/hung`;
  mkdirSync(target);
  mountHung(target);
  await using sys = createSysClient({ path: program.path, log: silentLog });
  try {
    const late = (error: unknown): boolean => hasCode(error, 'deadline');
    const startedMs = performance.now();
    const stuck = [
      assert.rejects(sys.statfs(target, { timeoutMs: 500 }), late),
      assert.rejects(sys.diskUsage(target, { timeoutMs: 500 }), late),
      assert.rejects(sys.chownTree(target, { gid: 1, timeoutMs: 500 }), late),
      assert.rejects(sys.fileOps({ root: target, ops: [{ op: 'stat', path: 'x' }], timeoutMs: 500 }), late),
      assert.rejects(sys.fileOps({ root: target, ops: [{ op: 'list', path: '' }], timeoutMs: 20_000 }, AbortSignal.timeout(300)), (error) =>
        hasCode(error, 'aborted'),
      ),
      sys.run({ argv: ['ls', target], timeoutMs: 500 }).then((result) => assert.equal(result.timedOut, true)),
    ];
    for (let round = 0; round < 10; round++) {
      const fromMs = performance.now();
      assert.equal((await sys.run({ argv: ['true'], timeoutMs: 5000 })).code, 0);
      await stat('/');
      assert.ok(performance.now() - fromMs < 400, 'others are not held up');
    }
    await Promise.all(stuck);
    assert.ok(performance.now() - startedMs < 3500, 'deadlines are kept even where the child cannot be killed');
  } finally {
    // By force: the kernel gives up on the server, and everything that waited for it ends.
    assert.equal(await sys.umount(target, { lazy: true, force: true }), 'unmounted');
  }
});
