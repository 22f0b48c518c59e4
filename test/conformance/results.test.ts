import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Outcome, Result } from './ginkgo-report.ts';
import { addOutcomes, formatResults, KEPT, parseResults, standing, type Kept, type Results } from './results.ts';

const outcome = (name: string, result: Result, reason = ''): Outcome => ({ name, result, reason, seconds: 1.5 });
const kept = (...results: Result[]): Kept[] =>
  results.map((result, at) => ({ run: `r${at}`, result, seconds: 1, ...(result === 'passed' ? {} : { reason: `${result} in r${at}` }) }));

test('a spec is passed when its last three results are passes', () => {
  const rows: [string, Result[], Result, number, { failed: number; of: number } | undefined, string | undefined][] = [
    ['once', ['passed'], 'passed', 1, undefined, undefined],
    ['twice', ['passed', 'passed'], 'passed', 2, undefined, undefined],
    ['three times', ['passed', 'passed', 'passed'], 'passed', 3, undefined, undefined],
    ['failed long ago', ['failed', 'passed', 'passed', 'passed'], 'passed', 3, { failed: 1, of: 4 }, undefined],
    ['failed two runs ago', ['failed', 'passed', 'passed'], 'failed', 3, { failed: 1, of: 3 }, 'failed in r0'],
    ['failed last', ['passed', 'passed', 'failed'], 'failed', 3, { failed: 1, of: 3 }, 'failed in r2'],
    ['always failed', ['failed', 'failed'], 'failed', 2, undefined, 'failed in r1'],
    ['skipped', ['skipped'], 'skipped', 1, undefined, 'skipped in r0'],
    ['skipped after a failure', ['failed', 'skipped'], 'skipped', 2, { failed: 1, of: 2 }, 'skipped in r1'],
  ];
  for (const [title, results, result, runs, flake, reason] of rows) {
    const stands = standing(kept(...results));
    assert.ok(stands !== null, title);
    assert.deepEqual([stands.result, stands.runs, stands.flake, stands.reason], [result, runs, flake, reason], title);
    assert.equal(stands.run, `r${results.length - 1}`, title);
  }
  assert.equal(standing([]), null, 'never run is no result');
});

test('adding a run again, or runs in another order, changes nothing', () => {
  const first = [outcome('a', 'passed'), outcome('b', 'failed', 'no')];
  const second = [outcome('a', 'failed', 'late')];
  const none: Results = new Map();
  const once = addOutcomes(addOutcomes(none, 'r1', first), 'r2', second);
  assert.deepEqual(addOutcomes(once, 'r1', first), once);
  assert.deepEqual(addOutcomes(addOutcomes(none, 'r2', second), 'r1', first), once);
  assert.deepEqual(
    once.get('a')?.map((one) => one.run),
    ['r1', 'r2'],
  );
});

test('only the last results are kept', () => {
  let results: Results = new Map();
  for (let at = 0; at < KEPT + 5; at += 1) results = addOutcomes(results, `r${String(at).padStart(3, '0')}`, [outcome('a', 'passed')]);
  assert.equal(results.get('a')?.length, KEPT);
  assert.equal(results.get('a')?.at(-1)?.run, `r${String(KEPT + 4).padStart(3, '0')}`);
});

test('results as text are sorted lines, and come back the same', () => {
  const results = addOutcomes(new Map(), 'r1', [outcome('b "quoted"', 'failed', 'why'), outcome('a', 'passed')]);
  const text = formatResults(results);
  assert.equal(text.split('\n')[0], '{"name":"a","last":[{"run":"r1","result":"passed","seconds":1.5}]}');
  assert.deepEqual(formatResults(parseResults(text)), text);
  assert.throws(() => parseResults('<<<<<<< ours\n'));
});
