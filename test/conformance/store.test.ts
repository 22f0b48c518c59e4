import assert from 'node:assert/strict';
import { appendFile, mkdtemp, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import type { Outcome } from './ginkgo-report.ts';
import { createRun, lastRun, newRunId, readJournal, record, type Asked } from './journal.ts';
import type { RunFacts } from './results.ts';
import { keep, pathsIn, readScoreboard, refresh, render } from './store.ts';

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');
let dir = '';
before(async () => {
  dir = await mkdtemp(`${tmpdir()}/nodelet-store-`);
  await mkdir(`${dir}/test/conformance`, { recursive: true });
  await mkdir(`${dir}/docs`);
});
after(() => rm(dir, { recursive: true, force: true }));

const PODS = '[sig-node] Pods should run [Conformance]';
const passed: Outcome = { name: PODS, result: 'passed', reason: '', seconds: 2 };
const facts = (id: string): RunFacts => ({ id, date: '2026-11-29T22:00:00.000Z', commit: 'abc', versions: { containerd: '2.4.2' }, nodes: 2, parallel: 8 });

test('scoreboard.json and docs/conformance.md say what the results say', async () => {
  const paths = pathsIn(root);
  const made = await render(paths);
  const advice = 'run: nodelet conformance page';
  assert.equal(await readFile(paths.scoreboard, 'utf8'), made.scoreboard, advice);
  assert.equal(await readFile(paths.page, 'utf8'), made.page, advice);
  const marked = (mark: string): number => Object.values(made.board.tests).filter(({ marks }) => marks.includes(mark)).length;
  assert.deepEqual([Object.keys(made.board.tests).length, marked('Conformance'), marked('NodeConformance')], [710, 462, 389]);
});

test('keeping results twice, or by two at once, is keeping them once', async () => {
  const paths = pathsIn(dir);
  await refresh(paths, { e2e: [{ name: PODS, labels: ['Conformance'] }], features: [{ name: 'Sidecars', labels: [] }] });
  const other: Outcome = { name: '[sig-network] no promise', result: 'failed', reason: 'x', seconds: 1 };
  assert.equal(await keep(paths, 'e2e', 'ours', facts('r1'), [passed, other]), 1, 'what the scoreboard does not count is not kept');
  assert.equal(await keep(paths, 'features', 'ours', facts('r1'), [other]), 0, 'nor of a section');
  const once = await readFile(`${paths.results}/e2e.ours.jsonl`, 'utf8');
  await Promise.all([
    keep(paths, 'e2e', 'ours', facts('r1'), [passed]),
    keep(paths, 'e2e', 'upstream', facts('r2'), [passed]),
    keep(paths, 'critest', 'containerd-2.4', facts('r3'), [{ ...passed, name: 'Exec' }]),
  ]);
  assert.equal(await readFile(`${paths.results}/e2e.ours.jsonl`, 'utf8'), once);
  const board = await readScoreboard(paths);
  assert.equal(board.tests[PODS]?.ours?.result, 'passed');
  assert.equal(board.tests[PODS]?.upstream?.run, 'r2');
  assert.equal(board.critest['Exec']?.['containerd-2.4']?.runs, 1);
  assert.deepEqual(Object.keys(board.runs), ['r1', 'r2', 'r3']);
  assert.deepEqual((await readdir(paths.results)).sort(), ['critest.containerd-2.4.jsonl', 'e2e.ours.jsonl', 'e2e.upstream.jsonl', 'runs.json']);
});

test('a killed run’s results are there, but for a line that was cut short', async () => {
  const asked: Asked = { kind: 'e2e', side: 'ours', suite: 'node', focus: ['a'], skip: [], shard: '' };
  const run = await createRun(`${dir}/runs`, { asked, facts: facts(newRunId('ours')), earlier: [], names: [PODS, 'b', 'c'] });
  await record(run.dir, passed);
  await record(run.dir, { ...passed, name: 'b' });
  await appendFile(`${run.dir}/journal.jsonl`, '\n{"name":"c","resu');
  assert.deepEqual(
    (await readJournal(run.dir)).map((outcome) => outcome.name),
    [PODS, 'b'],
  );
  await record(run.dir, { ...passed, name: 'c' });
  assert.deepEqual(
    (await readJournal(run.dir)).map((outcome) => outcome.name),
    [PODS, 'b', 'c'],
  );
  assert.deepEqual(await lastRun(`${dir}/runs`, asked), run);
  assert.equal(await lastRun(`${dir}/runs`, { ...asked, side: 'upstream' }), null, 'another side is another run');
  assert.equal(await lastRun(`${dir}/nowhere`, asked), null);
});
