import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { runSpecs, type Ran } from './run.ts';
import type { Spec } from './suites.ts';

/** A run of these specs by a line of shell. */
function ranOf(dir: string, specs: readonly Spec[], parallel: number, line: string): Ran {
  return {
    run: {
      dir,
      asked: { kind: 'e2e', side: 'ours', suite: 'all', focus: [], skip: [], shard: '' },
      facts: { id: 'x', date: '', commit: '', versions: {}, nodes: 1, parallel },
      earlier: [],
      names: specs.map(({ name }) => name),
    },
    target: {
      argv: ({ procs, report }) => ['/bin/sh', '-c', line, 'sh', String(procs), report],
      env: {},
      isReady: () => Promise.resolve(true),
      collect: () => Promise.resolve(),
    },
    description: 'suite',
    specs,
    chosen: specs,
    before: 0,
    parallel,
    paths: null,
    progress: { times: [], note: () => undefined, step: (_title, work) => work() },
    signal: new AbortController().signal,
  };
}

test('what specs leave in the folder for temporary files goes with the run', async (t) => {
  const dir = await mkdtemp(`${tmpdir()}/run-`);
  t.after(() => rm(dir, { recursive: true }));
  const ran = ranOf(dir, [{ name: 'one', labels: [] }], 1, `mkdir "$TMPDIR/left" && echo "$TMPDIR" > ${dir}/said`);
  await assert.rejects(runSpecs(ran), { code: 'failed', message: /1 specs have no result/ });
  const scratch = (await readFile(`${dir}/said`, 'utf8')).trim();
  assert.match(scratch, /nodelet-specs-/);
  await assert.rejects(stat(scratch), { code: 'ENOENT' });
});

test('one at once, what needs the cluster alone runs with the rest: the suite starts only once', async (t) => {
  const dir = await mkdtemp(`${tmpdir()}/run-`);
  t.after(() => rm(dir, { recursive: true }));
  const specs = [
    { name: 'any', labels: [] },
    { name: 'lonely', labels: ['Serial'] },
  ];
  const reports = specs.map(({ name }) => ({ LeafNodeType: 'It', LeafNodeText: name, State: 'passed', RunTime: 1 }));
  const starts = async (parallel: number): Promise<string> => {
    await rm(`${dir}/said`, { force: true });
    for (const title of ['together', 'alone']) await writeFile(`${dir}/report-${title}.json`, JSON.stringify([{ SpecReports: reports }]));
    const outcomes = await runSpecs(ranOf(dir, specs, parallel, `echo "$1 $2" >> ${dir}/said`));
    assert.deepEqual(outcomes.map(({ name, result }) => `${name} ${result}`).toSorted(), ['any passed', 'lonely passed']);
    return readFile(`${dir}/said`, 'utf8');
  };
  assert.equal(await starts(2), '1 report-together.json\n1 report-alone.json\n');
  assert.equal(await starts(1), '1 report-alone.json\n');
});
