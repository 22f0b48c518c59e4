import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { runSpecs, type Ran } from './run.ts';

test('what specs leave in the folder for temporary files goes with the run', async (t) => {
  const dir = await mkdtemp(`${tmpdir()}/run-`);
  t.after(() => rm(dir, { recursive: true }));
  const specs = [{ name: 'one', labels: [] }];
  const ran: Ran = {
    run: {
      dir,
      asked: { kind: 'e2e', side: 'ours', suite: 'all', focus: [], skip: [], shard: '' },
      facts: { id: 'x', date: '', commit: '', versions: {}, nodes: 1, parallel: 1 },
      earlier: [],
      names: ['one'],
    },
    target: {
      argv: () => ['/bin/sh', '-c', `mkdir "$TMPDIR/left" && echo "$TMPDIR" > ${dir}/said`],
      env: {},
      isReady: () => Promise.resolve(true),
      collect: () => Promise.resolve(),
    },
    description: 'suite',
    specs,
    chosen: specs,
    before: 0,
    parallel: 1,
    paths: null,
    progress: { times: [], note: () => undefined, step: (_title, work) => work() },
    signal: new AbortController().signal,
  };
  await assert.rejects(runSpecs(ran), { code: 'failed', message: /1 specs have no result/ });
  const scratch = (await readFile(`${dir}/said`, 'utf8')).trim();
  assert.match(scratch, /nodelet-specs-/);
  await assert.rejects(stat(scratch), { code: 'ENOENT' });
});
