import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { containerdCommand } from '../../node/core/containerd.ts';

const skip = process.geteuid?.() === 0 ? false : 'makes network namespaces: root only';

test('before containerd starts, network namespaces that no process is in are taken away, and no other', { skip, timeout: 30_000 }, async () => {
  const dir = mkdtempSync(join(tmpdir(), 'sweep-'));
  const persistent = (name: string, ...command: string[]): [string, string[]] => [`unshare`, [`--net=${dir}/${name}`, ...command]];
  for (const name of ['cni-used', 'cni-left', 'cni-unmounted', 'other']) writeFileSync(join(dir, name), '');
  const user = spawn(...persistent('cni-used', 'sh', '-c', 'echo there; exec sleep 60'), { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    await once(user.stdout, 'data');
    for (const name of ['cni-left', 'other']) execFileSync(...persistent(name, 'true'));
    const [program = '', ...args] = containerdCommand(['echo', 'started', 'with words'], dir);
    assert.equal(execFileSync(program, args, { encoding: 'utf8' }), 'started with words\n');
    assert.deepEqual(readdirSync(dir).toSorted(), ['cni-used', 'other']);
    execFileSync('nsenter', [`--net=${dir}/cni-used`, 'true']);
  } finally {
    user.kill('SIGKILL');
    execFileSync('sh', ['-c', `umount ${dir}/* 2>/dev/null; true`]);
    rmSync(dir, { recursive: true });
  }
});
