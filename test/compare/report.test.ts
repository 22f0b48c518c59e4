import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cpuSecondsOf } from '../../scripts/cost.ts';
import { pageOf } from './page.ts';
import { quantile, rowsOf, textOf, type Comparison, type Sample } from './report.ts';
import { podFor } from './workload.ts';

const sample = (side: 'upstream' | 'ours', readyMs: number[]): Sample => ({
  side,
  flavour: 'plain',
  count: readyMs.length,
  readyMs,
  goneMs: readyMs,
  agentCpuSeconds: 1,
  runtimeCpuSeconds: 2,
  calls: 10 * readyMs.length,
  callSeconds: 0.5,
  loopMaxMs: side === 'ours' ? 12 : null,
});
const comparison: Comparison = {
  date: '2026-11-29T00:00:00Z',
  versions: { kubernetes: 'v1.37.2' },
  cpus: 2,
  samples: [sample('upstream', [100, 200]), sample('ours', [50, 100]), sample('upstream', [300, 400]), sample('ours', [60, 300])],
  idle: [
    { side: 'upstream', flavour: null, pods: 0, agentCores: 0.02, runtimeCores: 0.01, anonMiB: 40, fileMiB: 60, loopP99Ms: null },
    { side: 'ours', flavour: null, pods: 0, agentCores: 0.01, runtimeCores: 0.01, anonMiB: 25, fileMiB: 25, loopP99Ms: 4 },
  ],
  writes: [
    { side: 'upstream', flavour: 'plain', pods: 10, perPod: { 'patch pods/status': 4 } },
    { side: 'ours', flavour: 'plain', pods: 10, perPod: { 'patch pods/status': 3, 'delete pods': 1 } },
  ],
};

test('a quantile is a value that was measured', () => {
  assert.equal(quantile([3, 1, 2], 0.5), 2);
  assert.equal(quantile([1, 2, 3, 4], 0.5), 2);
  assert.equal(quantile([1, 2, 3, 4], 0.99), 4);
  assert.ok(Number.isNaN(quantile([], 0.5)));
});

test('a figure is the median over rounds, and its ratio is ours over upstream’s', () => {
  const rows = new Map(rowsOf(comparison).map((row) => [row.what, row]));
  assert.deepEqual(rows.get('plain 2: created → Ready p50'), { what: 'plain 2: created → Ready p50', unit: 'ms', upstream: 100, ours: 50, ratio: 0.5 });
  assert.equal(rows.get('idle, 0 pods: memory')?.ratio, 0.5);
  assert.equal(rows.get('plain: API patch pods/status per pod life')?.ratio, 0.75);
});

test('what one side has not is a dash, never a number', () => {
  const rows = new Map(rowsOf(comparison).map((row) => [row.what, row]));
  assert.deepEqual(rows.get('plain 2: longest delay of the event loop')?.upstream, null);
  assert.equal(rows.get('plain: API delete pods per pod life')?.ratio, null);
  assert.ok(textOf(comparison).some((line) => /longest delay.*-\s+12\.0\s+-/.test(line)));
});

test('the page draws every group and carries its numbers', () => {
  const page = pageOf(comparison);
  assert.match(page, /<svg/);
  assert.match(page, /plain 2/);
  assert.doesNotMatch(page, /https?:\/\/(?!www\.w3\.org)/);
});

test('CPU time is read behind the name, whatever is in it', () => {
  assert.equal(cpuSecondsOf('1 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 250 150 50 50 20 0'), 5);
  assert.equal(cpuSecondsOf(''), 0);
});

test('a plain pod has no token; a probed one has both probes at 10 s', () => {
  assert.equal(podFor('n', 'plain', 0).spec?.automountServiceAccountToken, false);
  const container = podFor('n', 'probed', 1).spec?.containers[0];
  assert.equal(container?.readinessProbe?.periodSeconds, 10);
  assert.equal(container?.livenessProbe?.periodSeconds, 10);
});
