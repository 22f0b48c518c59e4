import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { PARTS, stepsOf } from './command.ts';
import type { Walk } from './step.ts';

const recorded = async (agent: string): Promise<Walk> => JSON.parse(await readFile(new URL(`expected/${agent}.json`, import.meta.url), 'utf8')) as Walk;
const [upstream, ours] = (await Promise.all(['upstream', 'ours'].map(recorded))) as [Walk, Walk];

test('every step was walked through with upstream’s kubelet and with ours, and passed', () => {
  const ids = stepsOf(PARTS).map(({ id }) => id);
  for (const walk of [upstream, ours]) {
    assert.deepEqual(Object.keys(walk.steps), ids);
    for (const [id, { passed, problem }] of Object.entries(walk.steps)) assert.ok(passed, `${walk.agent} ${id}: ${problem}`);
  }
});

test('what is the same on every run is the same with both', () => {
  for (const [id, { what, exact }] of Object.entries(upstream.steps)) assert.deepEqual(ours.steps[id]?.exact, exact, `${id} ${what}`);
});
