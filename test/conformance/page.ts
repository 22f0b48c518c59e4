import { furtherSections } from './page-further.ts';
import { cell, plain, table } from './page-text.ts';
import { NEEDED, type RunFacts, type Standing } from './results.ts';
import { SIDES, type Entry, type Scoreboard, type Side } from './scoreboard.ts';

type Column = 'passed' | 'failed' | 'skipped' | 'not run';

const columnOf = (stands: Standing | undefined): Column => stands?.result ?? 'not run';

function totals(tests: readonly (readonly [string, Entry])[]): string[] {
  const count = (entries: readonly (readonly [string, Entry])[], side: Side, column: Column): string =>
    String(entries.filter(([, entry]) => columnOf(entry[side]) === column).length);
  const suites = [...new Set(tests.map(([, { suite }]) => suite))].sort((a, b) => (a === 'other' ? 1 : b === 'other' ? -1 : a < b ? -1 : 1));
  const row = (title: string, entries: readonly (readonly [string, Entry])[]): string[] => [
    title,
    String(entries.length),
    ...SIDES.flatMap((side) => [
      ...(['passed', 'failed', 'skipped', 'not run'] as const).map((column) => count(entries, side, column)),
      String(entries.filter(([, entry]) => (entry[side]?.runs ?? NEEDED) < NEEDED).length),
    ]),
  ];
  const marked = (mark: string): (readonly [string, Entry])[] => tests.filter(([, { marks }]) => marks.includes(mark));
  const rows = [
    ...suites.map((suite) =>
      row(
        suite,
        tests.filter(([, entry]) => entry.suite === suite),
      ),
    ),
    row('Conformance', marked('Conformance')),
    row('NodeConformance', marked('NodeConformance')),
    row('all', tests),
  ];
  const columns = SIDES.flatMap((side) => [`${side}: passed`, 'failed', 'skipped', 'not run', 'fewer than 3 runs']);
  return table(['suite', 'specs', ...columns], rows);
}

function specials(title: string, none: string, rows: readonly (readonly [string, { readonly [S in Side]?: Standing }])[]): string[] {
  if (rows.length === 0) return [`## ${title}`, '', none, ''];
  const lines = rows.flatMap(([name, entry]) => [`- ${plain(name)}`, ...SIDES.map((side) => `  - ${side}: ${cell(entry[side])}`)]);
  return [`## ${title}`, '', ...lines, ''];
}

function runsTable(runs: Readonly<Record<string, RunFacts>>): string[] {
  const keys = [...new Set(Object.values(runs).flatMap((run) => Object.keys(run.versions)))].sort();
  if (Object.keys(runs).length === 0) return ['Nothing has run yet.'];
  return table(
    ['run', 'commit', 'nodes', 'procs', ...keys],
    Object.entries(runs).map(([id, run]) => [id, run.commit, String(run.nodes), String(run.parallel), ...keys.map((key) => run.versions[key] ?? '')]),
  );
}

function critest(board: Scoreboard): string[] {
  const tests = Object.entries(board.critest);
  const ways = [...new Set(tests.flatMap(([, standings]) => Object.keys(standings)))].sort();
  if (ways.length === 0) return ['## critest', '', 'Not run yet.', ''];
  const count = (way: string, column: Column): string => String(tests.filter(([, standings]) => columnOf(standings[way]) === column).length);
  const columns = ['passed', 'failed', 'skipped', 'not run'] as const;
  const failing = tests.filter(([, standings]) => Object.values(standings).some((one) => one.result !== 'passed'));
  return [
    '## critest',
    '',
    ...table(
      ['runtime', ...columns],
      ways.map((way) => [way, ...columns.map((column) => count(way, column))]),
    ),
    '',
    ...failing.flatMap(([name, standings]) => [
      `- ${plain(name)}`,
      ...Object.entries(standings).flatMap(([way, one]) => (one.result === 'passed' ? [] : [`  - ${way}: ${cell(one)}`])),
    ]),
    ...(failing.length === 0 ? [] : ['']),
  ];
}

/** docs/conformance.md. */
export function page(board: Scoreboard): string {
  const tests = Object.entries(board.tests);
  const upstreamMissing = tests.filter(([, entry]) => entry.upstream !== undefined && entry.upstream.result !== 'passed');
  const oursMissing = tests.filter(([, entry]) => entry.ours !== undefined && entry.ours.result !== 'passed' && entry.upstream?.result === 'passed');
  const rest = tests.filter(
    ([, entry]) => entry.ours !== undefined && entry.ours.result !== (entry.upstream?.result ?? 'passed') && entry.upstream?.result !== 'passed',
  );
  const flaky = tests.filter(([, entry]) => SIDES.some((side) => entry[side]?.flake !== undefined));
  const lines = [
    '# Conformance',
    '',
    'Generated from `test/conformance/scoreboard.json` by `nodelet conformance page`; do not edit.',
    '',
    'Kubernetes’ own `e2e.test`, unchanged, against a real control plane with upstream’s kubelet (upstream) and with this project’s (ours). A spec counts as passed when its last three results are passes, from any runs; "fewer than 3 runs" counts those whose word rests on less. "Not run" is no result, good or bad. Conformance and NodeConformance overlap; `all` counts each spec once.',
    '',
    ...totals(tests),
    '',
    ...specials('Upstream does not pass', 'None of those that ran.', upstreamMissing),
    ...specials('Ours does not pass, upstream does', 'None of those that ran.', oursMissing),
    ...specials('Ours differs where upstream does not pass', 'None of those that ran.', rest),
    ...specials('Flaky', 'None: no spec has passed and failed.', flaky),
    ...critest(board),
    ...furtherSections(board),
    '## Runs',
    '',
    'Where the last results come from.',
    '',
    ...runsTable(board.runs),
    '',
  ];
  return lines.join('\n');
}
