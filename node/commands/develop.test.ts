import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Host } from '../../base/host.ts';
import { createContext } from './context.ts';
import { makesNodes, proving } from './develop.ts';

const quiet: Omit<Host, 'env' | 'signal'> = { args: [], pid: process.pid, stdout: () => undefined, stderr: () => undefined, isTerminal: false };

test('a program of test/ runs where the caller is, so that files named on its command line are the caller’s', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'develop-'));
  t.after(() => rm(root, { recursive: true }));
  await mkdir(join(root, 'test/asked'), { recursive: true });
  await writeFile(join(root, 'test/asked/main.ts'), 'process.exitCode = process.cwd() === process.argv[2] ? 7 : 1;\n');
  const context = createContext(
    { ...quiet, env: { ...process.env, NODELET_ROOT: root }, signal: new AbortController().signal },
    { name: 'default', json: false },
  );
  assert.equal(await proving(context, 'asked', [process.cwd()]), 7);
  await assert.rejects(proving(context, 'missing', []), { code: 'not-found' });
});

test('what makes nodes brings the packages for them; what asks or helps does not', () => {
  for (const [name, args] of [
    ['compare', []],
    ['churn', ['run', '--minutes', '1']],
    ['contract', ['record']],
    ['cluster', ['up', '--name', 'x']],
    ['cluster', ['images', '--no-build']],
    ['conformance', ['run', '--suite', 'node']],
  ] as const)
    assert.equal(makesNodes(name, args), true, `${name} ${args.join(' ')}`);
  for (const [name, args] of [
    ['compare', ['--help']],
    ['churn', ['help', 'run']],
    ['cluster', ['kubectl', 'get', 'pods']],
    ['cluster', []],
    ['conformance', ['page']],
    ['assets', ['build']],
    ['machine', ['down']],
  ] as const)
    assert.equal(makesNodes(name, args), false, `${name} ${args.join(' ')}`);
});
