import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

/*
 * Whether each case of the list, and each step of the walkthroughs' first part, is held by something that is there: a
 * row of the table in this folder's README, a file for each name in that row, a test that names the step.
 */
const root = new URL('../..', import.meta.url).pathname;
const readme = readFileSync(`${root}test/cases/README.md`, 'utf8');
const rows = readme.split('\n').filter((line) => /^\| (KB-\d+|1\.\d+)/.test(line));
const cell = (row: string, index: number): string => (row.split(' | ')[index] ?? '').trim();

const cases = [1, 2, 4, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 18, 19, 21, 23, 24, 26, 27, 28, 29, 30, 31, 34, 35, 36, 38, 39, 40, 41, 42, 43].map(
  (number) => `KB-${String(number).padStart(2, '0')}`,
);
const steps = Array.from({ length: 72 }, (_, index) => `1.${index + 1}`);

/** Files that a name of the table means: a test of this folder, a script of the agent's, or a path. */
const filesOf = (name: string): string[] => [`test/cases/${name}.test.ts`, `agent/testdata/${name}`, name].filter((path) => existsSync(`${root}${path}`));
const namesIn = (text: string): string[] => [...text.matchAll(/`([^`]+)`/g)].map(([, name]) => name ?? '').filter((name) => /[-/.]/.test(name));

test('each case has a row, its files are there, and upstream’s value stands beside it', () => {
  for (const id of cases) {
    const own = rows.filter((row) => row.startsWith(`| ${id} `));
    assert.equal(own.length, 1, `${id} has ${own.length} rows in test/cases/README.md`);
    const [row = ''] = own;
    const names = namesIn(cell(row, 1));
    assert.ok(names.length > 0, `${id} names no file`);
    for (const name of names) assert.notEqual(filesOf(name).length, 0, `${id}: there is no ${name}`);
    assert.doesNotMatch(cell(row, 2), /^(not tried.*)?\|?$/, `${id} has no value of the real kubelet`);
  }
});

test('what the table says is held by a set has a test of that name there', () => {
  for (const row of rows.filter((line) => line.startsWith('| KB-'))) {
    const id = row.slice(2, 7);
    for (const name of namesIn(cell(row, 1)).filter((each) => each.startsWith('kubelet-'))) {
      const text = readFileSync(`${root}test/cases/${name}.test.ts`, 'utf8');
      // A case of a table in the file has its name in small letters.
      assert.ok(text.includes(id) || text.includes(id.toLowerCase().replace('-', '')), `${name} does not name ${id}`);
    }
  }
});

test('each step of the walkthroughs’ first part has a test, or a row that says where it is held', () => {
  const titles = globSync(`${root}test/walkthrough/*.test.ts`).flatMap((path) =>
    [...readFileSync(path, 'utf8').matchAll(/^test\('([\d., to]+):/gm)].map(([, title]) => title ?? ''),
  );
  const held = new Set(
    titles.flatMap((title) => {
      const [, from, to] = /^1\.(\d+) to 1\.(\d+)$/.exec(title) ?? [];
      if (from !== undefined) return Array.from({ length: Number(to) - Number(from) + 1 }, (_, index) => `1.${Number(from) + index}`);
      return title.split(', ');
    }),
  );
  for (const step of steps) {
    const row = rows.find((line) => line.startsWith(`| ${step} `));
    assert.ok(held.has(step) || row !== undefined, `${step} has neither a test in test/walkthrough nor a row in test/cases/README.md`);
    if (row === undefined) continue;
    assert.ok(!held.has(step), `${step} has a test in test/walkthrough and a row beside it`);
    for (const name of namesIn(cell(row, 1))) assert.notEqual(filesOf(name).length, 0, `${step}: there is no ${name}`);
  }
});
