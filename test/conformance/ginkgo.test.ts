import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { runGinkgo, type GinkgoPass } from './ginkgo.ts';

const shell = (script: string, log: string, signal = new AbortController().signal): GinkgoPass => ({
  argv: ['/bin/sh', '-c', script],
  cwd: '/',
  env: { PATH: '/usr/bin:/bin' },
  log,
  specs: [],
  onEvent: () => undefined,
  signal,
});

test('all output is kept, and the exit status is Ginkgo’s', async (t) => {
  const dir = await mkdtemp(`${tmpdir()}/ginkgo-`);
  t.after(() => rm(dir, { recursive: true }));
  assert.equal(await runGinkgo(shell('echo one; echo two >&2; exit 3', `${dir}/log.gz`)), 3);
  assert.equal(
    gunzipSync(await readFile(`${dir}/log.gz`))
      .toString()
      .split('\n')
      .sort()
      .join(' '),
    ' one two',
  );
});

test('a log that cannot be written ends the run with the reason, and no process stays', { timeout: 20_000 }, async (t) => {
  const dir = await mkdtemp(`${tmpdir()}/ginkgo-`);
  t.after(() => rm(dir, { recursive: true }));
  const begunAt = performance.now();
  await assert.rejects(runGinkgo(shell('head -c 4000000 /dev/urandom | base64; exec sleep 100', '/dev/full')), { code: 'ENOSPC' });
  assert.ok(performance.now() - begunAt < 15_000);
});
