import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { createFallbackSys } from '../../base/sys/fallback.ts';
import type { Sys } from '../../base/sys/types.ts';

/* Descriptors that another process hands over: the part of the contract of sys that needs a second program, python3. */
const soonMs = 5000;
const giver = `import socket, os, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print('listening', flush=True)
other, _ = listener.accept()
asked = other.recv(100)
reading, writing = os.pipe()
if asked == b'give':
  socket.send_fds(other, [b'here'], [writing])
os.close(writing)
print('given', flush=True)
os.read(reading, 1)
print('closed', flush=True)
sys.stdin.read()`;

function hasPython(): boolean {
  try {
    execFileSync('python3', ['-c', 'import socket; socket.send_fds'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

function needs(): string | false {
  if (!hasPython()) return 'needs python3, which can send descriptors';
  try {
    execFileSync('cc', ['--version'], { stdio: 'ignore' });
    return false;
  } catch {
    return 'needs a C compiler (cc)';
  }
}

const skip = needs();
if (skip !== false) console.log(`held descriptors: skipped, ${skip}`);

describe('held descriptors: real', { skip }, () => {
  const withSys = async (body: (sys: Sys, dir: string) => Promise<void>): Promise<void> => {
    const dir = mkdtempSync(join(tmpdir(), 'sys-hold-'));
    try {
      const path = process.env['NODELET_SYS'] ?? join(dir, 'sys');
      if (process.env['NODELET_SYS'] === undefined) execFileSync('sh', [join(import.meta.dirname, '../../sys/build.sh'), path]);
      await using sys = createSysClient({ path, log: silentLog });
      await body(sys, dir);
    } finally {
      rmSync(dir, { recursive: true });
    }
  };

  test('it stays open until it is let go', () =>
    withSys(async (sys, dir) => {
      const path = join(dir, 'giver');
      const child = spawn('python3', ['-c', giver, path], { stdio: ['pipe', 'pipe', 'inherit'] });
      const words: string[] = [];
      child.stdout.on('data', (chunk: Buffer) => words.push(...chunk.toString().trim().split('\n')));
      const until = async (word: string): Promise<void> => {
        while (!words.includes(word)) await once(child.stdout, 'data');
      };
      await until('listening');
      const held = await sys.holdDescriptor({ path, bytes: Buffer.from('give'), timeoutMs: soonMs });
      await until('given');
      await sys.statfs(dir, { timeoutMs: soonMs });
      assert.equal(words.includes('closed'), false);
      await held[Symbol.asyncDispose]();
      await until('closed');
      child.stdin.end();
      await once(child, 'exit');
    }));

  test('who gives none is not waited for for ever', () =>
    withSys(async (sys, dir) => {
      await assert.rejects(sys.holdDescriptor({ path: join(dir, 'nobody'), bytes: Buffer.from('give'), timeoutMs: soonMs }));
      const path = join(dir, 'miser');
      const child = spawn('python3', ['-c', giver, path], { stdio: ['pipe', 'pipe', 'inherit'] });
      await once(child.stdout, 'data');
      await assert.rejects(sys.holdDescriptor({ path, bytes: Buffer.from('keep'), timeoutMs: 100 }), (error) => hasCode(error, 'deadline'));
      child.stdin.end();
      await once(child, 'exit');
    }));

  test('nor is who does not even take the call', () =>
    withSys(async (sys, dir) => {
      const path = join(dir, 'deaf');
      // A listener whose line is full: the next caller waits for a place in it.
      const deaf = `import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(0)
first = socket.socket(socket.AF_UNIX)
first.connect(sys.argv[1])
print('listening', flush=True)
sys.stdin.read()`;
      const child = spawn('python3', ['-c', deaf, path], { stdio: ['pipe', 'pipe', 'inherit'] });
      await once(child.stdout, 'data');
      await assert.rejects(sys.holdDescriptor({ path, bytes: Buffer.from('give'), timeoutMs: 100 }), (error) => hasCode(error, 'deadline'));
      child.stdin.end();
      await once(child, 'exit');
    }));
});

test('held descriptors: fake', async () => {
  const sys = createFakeSys();
  const asked = { bytes: Buffer.from('give'), timeoutMs: soonMs };
  await assert.rejects(sys.holdDescriptor({ path: '/nobody', ...asked }));
  sys.put('/giver', '');
  const held = await sys.holdDescriptor({ path: '/giver', ...asked });
  assert.equal(sys.descriptors.size, 1);
  await held[Symbol.asyncDispose]();
  assert.equal(sys.descriptors.size, 0);
});

test('held descriptors: the fallback says that it cannot', async () => {
  await using sys = createFallbackSys({ log: silentLog });
  await assert.rejects(sys.holdDescriptor({ path: '/giver', bytes: Buffer.from('give'), timeoutMs: soonMs }), (error) => hasCode(error, 'unsupported'));
});
