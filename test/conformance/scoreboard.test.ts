import assert from 'node:assert/strict';
import { test } from 'node:test';
import { page } from './page.ts';
import { plain, table } from './page-text.ts';
import { addOutcomes, type Results, type RunFacts } from './results.ts';
import { EMPTY, entriesOf, furtherOf, scoreboard, type Kinds, type Known } from './scoreboard.ts';
import { formatScoreboard } from './store.ts';
import type { Spec } from './suites.ts';

const SPECS: readonly Spec[] = [
  { name: '[sig-node] Pods should run [NodeConformance] [Conformance]', labels: ['NodeConformance', 'Conformance'] },
  { name: '[sig-node] Privileged pod [NodeConformance]', labels: ['NodeConformance'] },
  { name: '[sig-node] Resize [NodeConformance]', labels: ['NodeConformance', 'Slow'] },
  { name: '[sig-storage] EmptyDir *tmpfs* <a|b> [NodeConformance]', labels: ['NodeConformance'] },
  { name: '[sig-network] Netpol', labels: [] },
];
const [PODS, PRIVILEGED, RESIZE, EMPTYDIR] = SPECS.map((spec) => spec.name) as [string, string, string, string, string];
const FACTS: RunFacts = {
  id: 'r1',
  date: '2026-11-29T22:10:05.000Z',
  commit: 'abc',
  versions: { kubernetes: 'v1.37.2', runc: '1.4.4' },
  nodes: 2,
  parallel: 8,
};
const NONE: Results = new Map();
const passed = (name: string) => ({ name, result: 'passed' as const, reason: '', seconds: 2 });
const failed = (name: string, reason: string) => ({ name, result: 'failed' as const, reason, seconds: 3 });

const KINDS: Kinds = {
  e2e: {
    upstream: addOutcomes(NONE, 'r1', [passed(PODS), failed(PRIVILEGED, 'no dummy links'), passed(EMPTYDIR)]),
    ours: addOutcomes(addOutcomes(NONE, 'r1', [passed(PODS), failed(EMPTYDIR, 'mode was -rw-r--r-- *not* 0666')]), 'r2', [
      passed(EMPTYDIR),
      passed('[sig-network] Netpol'),
    ]),
  },
  e2eNode: {
    upstream: addOutcomes(NONE, 'r1', [passed('Restart'), failed('Slices', 'open /sys/fs/cgroup/cpu/kubepods: no such file')]),
    ours: addOutcomes(NONE, 'r1', [failed('Restart', 'it did not come back'), passed('gone since')]),
  },
  features: {},
  networkFeatures: {},
  nodeFeatures: {},
  critest: { 'containerd-2.4': addOutcomes(NONE, 'r1', [passed('[k8s.io] Exec'), failed('[k8s.io] Image', 'digest')]) },
};

const KNOWN: Known = {
  ...EMPTY,
  tests: entriesOf(SPECS),
  e2eNode: furtherOf([
    { name: 'Restart', labels: ['Serial'] },
    { name: 'Slices', labels: [] },
    { name: 'GracefulNodeShutdown', labels: [] },
  ]),
};

test('the scoreboard has the shape that others read, and says what never ran by saying nothing', () => {
  const board = scoreboard(KNOWN, KINDS, { r1: FACTS, r2: { ...FACTS, id: 'r2' }, r0: { ...FACTS, id: 'r0' } });
  assert.equal(Object.keys(board.tests).length, 4, 'specs that nobody promises are not counted');
  assert.deepEqual(board.tests[PODS], {
    suite: 'node',
    marks: ['Conformance', 'NodeConformance'],
    upstream: { result: 'passed', runs: 1, run: 'r1', seconds: 2 },
    ours: { result: 'passed', runs: 1, run: 'r1', seconds: 2 },
  });
  assert.deepEqual(board.tests[RESIZE], { suite: 'node', marks: ['NodeConformance', 'Slow'] });
  assert.deepEqual(board.tests[PRIVILEGED]?.upstream, { result: 'failed', reason: 'no dummy links', runs: 1, run: 'r1', seconds: 3 });
  assert.deepEqual(board.tests[EMPTYDIR]?.ours?.flake, { failed: 1, of: 2 });
  assert.deepEqual(Object.keys(board.runs), ['r1', 'r2'], 'runs that nothing rests on are left out');
  assert.deepEqual(JSON.parse(formatScoreboard(board)), board);
});

test('the page counts by suite and side and gives a reason for each that is not passed', () => {
  const text = page(scoreboard(KNOWN, KINDS, { r1: FACTS }));
  const rows = text.split('\n').filter((line) => line.startsWith('| '));
  const cells = (title: string): string[] =>
    (rows.find((row) => row.startsWith(`| ${title} `)) ?? '')
      .split('|')
      .slice(1, -1)
      .map((one) => one.trim());
  // suite, specs, then passed, failed, skipped, not run, fewer than three runs: of upstream, of ours.
  assert.deepEqual(cells('node'), ['node', '3', '1', '1', '0', '1', '2', '1', '0', '0', '2', '1']);
  assert.deepEqual(cells('storage'), ['storage', '1', '1', '0', '0', '0', '1', '0', '1', '0', '0', '1']);
  assert.deepEqual(cells('all'), ['all', '4', '2', '1', '0', '1', '3', '1', '1', '0', '2', '2']);
  assert.match(text, /- \\\[sig-node\\\] Privileged pod [^\n]+\n {2}- upstream: failed \(1 of 3 runs\) – no dummy links\n {2}- ours: not run/);
  assert.match(text, /ours: failed \(flaky: 1 of 2 failed\) \(2 of 3 runs\) – mode was -rw-r--r-- \\\*not\\\* 0666/);
  assert.match(text, /\| containerd-2\.4 \| 1 +\| 1 /);
  assert.ok(!text.includes('Netpol'));
});

test('tables are padded, and text of others is no markup', () => {
  assert.deepEqual(table(['a', 'long'], [['1|2', 'ö']]), ['| a    | long |', '| ---- | ---- |', '| 1\\|2 | ö    |']);
  assert.equal(plain('<b> *x* [y](z) `c`'), '\\<b\\> \\*x\\* \\[y\\](z) \\`c\\`');
});

test('of the further sections every spec is counted, those without results too, and each that is not passed has its reason', () => {
  const board = scoreboard(KNOWN, KINDS, { r1: FACTS });
  assert.deepEqual(Object.keys(board.e2eNode), ['GracefulNodeShutdown', 'Restart', 'Slices']);
  assert.equal(board.e2eNode['Restart']?.alone, true);
  const text = page(board);
  assert.match(text, /Ours passed 0 of 3, upstream’s kubelet 1 of those/);
  const row = (why: string): string => text.split('\n').find((line) => line.startsWith(`| ${why}`)) ?? '';
  assert.match(row('failed: by its own words'), /\| 0 +\| 1 +\|$/);
  assert.match(row('failed: looks for cgroups below the machine’s root'), /\| 1 +\| 0 +\|$/);
  assert.match(row('not run: needs systemd’s bus'), /\| 1 +\| 1 +\|$/);
  assert.match(text, /ours does not pass, upstream does\n\n- Restart\n {2}- ours: failed \(1 of 3 runs\) – it did not come back\n/);
  assert.match(text, /run with neither\n\n- GracefulNodeShutdown\n/);
});

test('what the network’s features said is counted for each service proxy, whoever made it', () => {
  const specs = ['Affinity', 'Loopback', 'Zones'].map((name): Spec => ({ name, labels: [] }));
  const runs = Object.fromEntries(
    ['nftables', 'iptables', 'upstream-iptables'].map((proxy, at) => [`r${at}`, { ...FACTS, id: `r${at}`, versions: { proxy } }] as const),
  );
  const ours = addOutcomes(addOutcomes(NONE, 'r0', [passed('Affinity'), failed('Loopback', 'timed out'), passed('gone since')]), 'r1', [passed('Loopback')]);
  const networkFeatures = { ours, upstream: addOutcomes(NONE, 'r2', [passed('Affinity'), failed('Zones', 'three')]) };
  const board = scoreboard({ ...KNOWN, networkFeatures: furtherOf(specs) }, { ...KINDS, networkFeatures }, runs);
  assert.deepEqual(board.networkProxies, {
    iptables: { passed: 1, failed: 0, skipped: 0 },
    nftables: { passed: 1, failed: 1, skipped: 0 },
    'upstream-iptables': { passed: 1, failed: 1, skipped: 0 },
  });
  const rows = page(board).split('\n');
  assert.ok(rows.includes('| nftables          | 1      | 1      | 0       | 1       |'), rows.filter((row) => row.includes('nftables')).join('\n'));
  assert.ok(rows.includes('| iptables          | 1      | 0      | 0       | 2       |'));
});

test('what the host lacks is answered by the machine with cgroup v2 and systemd, and nothing else is', () => {
  const host = addOutcomes(NONE, 'r1', [failed('Restart', 'it did not come back'), failed('Slices', 'open /sys/fs/cgroup/cpu/kubepods: no such file')]);
  const ours = addOutcomes(host, 'r2', [passed('Restart'), passed('Slices'), failed('GracefulNodeShutdown', 'no condition')]);
  const runs = { r1: FACTS, r2: { ...FACTS, id: 'r2', versions: { cgroup: 'v2', systemd: '252' } } };
  const board = scoreboard(KNOWN, { ...KINDS, e2eNode: { ours } }, runs);
  const stands = (name: string): unknown[] => [board.e2eNode[name]?.ours?.result, board.e2eNode[name]?.ours?.place];
  assert.deepEqual(stands('Restart'), ['failed', undefined], 'a failure that is nobody else’s stays');
  assert.deepEqual(stands('Slices'), ['passed', 'machine']);
  assert.deepEqual(stands('GracefulNodeShutdown'), ['failed', 'machine'], 'and a failure there is one');
  const text = page(board);
  assert.match(
    text,
    /in the cgroup v2 machine\n\n[^\n]+\n\n\| spec +\| upstream \| ours +\|\n[^\n]+\n\| GracefulNodeShutdown \| not run +\| failed \|\n\| Slices +\| not run +\| passed \|\n/,
  );
  assert.match(text, /\| failed in the cgroup v2 machine +\| 0 +\| 1 +\|/);
});
