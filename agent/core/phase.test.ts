import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { advance, endOf, shorten } from './phase.ts';
import type { EndInput, PodEnd, PodLife } from './phase.ts';

const pod = (metadata: Partial<Pod['metadata']> = {}, more: Partial<Pod> = {}): Pod => ({
  metadata: { name: 'p', uid: 'u', ...metadata },
  spec: { containers: [], terminationGracePeriodSeconds: 60, ...more.spec },
  ...(more.status === undefined ? {} : { status: more.status }),
});
const input = (given: Partial<EndInput>): EndInput => ({
  pod: undefined,
  known: undefined,
  eviction: null,
  startTime: undefined,
  nowMs: 1_000_000,
  monoMs: 500,
  ...given,
});
const end = (graceSeconds: number | null, sinceMs: number): PodEnd => ({ cause: 'deleted', graceSeconds, sinceMs, verdict: null });

test('why a pod ends, and with how much grace', () => {
  const deleted = pod({ deletionTimestamp: '2026-01-01T00:00:00Z', deletionGracePeriodSeconds: 5 });
  const cases: [string, Partial<EndInput>, [string, number | null] | null][] = [
    ['wanted', { pod: pod(), known: pod() }, null],
    ['deleted', { pod: deleted, known: deleted }, ['deleted', 5]],
    ['removed without a deletion seen', { known: pod() }, ['removed', 60]],
    ['removed after a deletion', { known: deleted }, ['removed', 5]],
    ['known to the runtime alone', {}, ['orphan', 1]],
    ['ended before', { pod: pod({}, { status: { phase: 'Failed' } }), known: pod() }, ['completed', null]],
    ['over its deadline', { pod: pod({}, { spec: { containers: [], activeDeadlineSeconds: 10 } }), startTime: '1970-01-01T00:16:30Z' }, ['deadline', null]],
    ['before its deadline', { pod: pod({}, { spec: { containers: [], activeDeadlineSeconds: 11 } }), startTime: '1970-01-01T00:16:30Z' }, null],
    ['evicted', { pod: pod(), eviction: { graceMs: 1500, verdict: { reason: 'Evicted', message: '' } } }, ['evicted', 2]],
  ];
  for (const [name, given, wanted] of cases) {
    const found = endOf(input(given));
    assert.deepEqual(found === null ? null : [found.cause, found.graceSeconds], wanted, name);
    if (found !== null) assert.equal(found.sinceMs, 500, name);
  }
});

test('a second delete moves the end forward, never back, and gets all of its own grace', () => {
  const first = end(300, 0);
  assert.deepEqual(shorten(first, end(20, 10_000)), end(20, 10_000));
  assert.equal(shorten(first, end(300, 10_000)), first, 'the same delete, looked at again');
  const late = end(30, 0);
  assert.equal(shorten(late, end(20, 15_000)), late, 'it would end later than the first');
  assert.deepEqual(shorten(end(null, 0), end(5, 1000)), end(5, 1000));
  assert.equal(shorten(first, end(null, 0)), first);
});

test('a life goes forward alone', () => {
  const running: PodLife = { phase: 'running' };
  const terminating: PodLife = { phase: 'terminating', end: end(1, 0) };
  assert.equal(advance(running, terminating), terminating);
  assert.throws(() => advance(terminating, running), /went from terminating back to running/);
});
