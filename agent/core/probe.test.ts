import assert from 'node:assert/strict';
import { test } from 'node:test';
import { counted, isNews, newCounter, nextDelayMs, timingOf, type ProbeCounter } from './probe.ts';
import type { ProbeKind, ProbeOutcome } from './types.ts';

const run = (kind: ProbeKind, results: string, probe = {}, start = newCounter()): ProbeCounter =>
  results.split('').reduce((counter, result) => counted(counter, kind, timingOf(probe), result === '+' ? 'success' : 'failure'), start);

test('defaults are the API server’s', () => {
  assert.deepEqual(timingOf({}), { initialDelayMs: 0, periodMs: 10_000, timeoutMs: 1_000, successThreshold: 1, failureThreshold: 3 });
});

test('a threshold counts results in a row', () => {
  assert.equal(run('readiness', '--').outcome, 'unknown');
  assert.equal(run('readiness', '---').outcome, 'failure');
  assert.equal(run('readiness', '--+--').outcome, 'success');
  assert.equal(run('readiness', '+', { successThreshold: 2 }).outcome, 'unknown');
  assert.equal(run('readiness', '+-++', { successThreshold: 2 }).outcome, 'success');
});

test('liveness and startup that failed are held, readiness goes on', () => {
  assert.equal(run('liveness', '---').held, true);
  assert.equal(run('startup', '-', { failureThreshold: 1 }).held, true);
  assert.equal(run('readiness', '---').held, false);
  assert.equal(run('liveness', '--').held, false);
});

test('an adopted state holds until a threshold is reached', () => {
  assert.equal(run('readiness', '--', {}, newCounter('success')).outcome, 'success');
  assert.equal(run('readiness', '---', {}, newCounter('success')).outcome, 'failure');
  assert.equal(run('readiness', '', {}, newCounter('failure')).outcome, 'failure');
});

test('periods count from the start of a run; a young container is asked again soon', () => {
  const timing = timingOf({ periodSeconds: 5 });
  assert.equal(nextDelayMs(newCounter(), 'liveness', timing, 100, 1_000), 4_000);
  assert.equal(nextDelayMs(newCounter(), 'liveness', timing, 100, 9_000), 0);
  assert.equal(nextDelayMs(newCounter(), 'readiness', timing, 100, 50), 200);
  assert.equal(nextDelayMs(newCounter('success'), 'readiness', timing, 100, 50), 4_950);
  assert.equal(nextDelayMs(newCounter(), 'readiness', timing, 3_000, 50), 4_950);
});

test('what is news of a probe', () => {
  const news = (kind: ProbeKind, ...outcomes: ProbeOutcome[]): boolean[] => outcomes.slice(1).map((after, at) => isNews(kind, outcomes[at]!, after));
  assert.deepEqual(news('readiness', 'unknown', 'failure', 'success', 'failure'), [false, true, true]);
  assert.deepEqual(news('readiness', 'unknown', 'success', 'success'), [true, false]);
  assert.deepEqual(news('liveness', 'unknown', 'success', 'failure'), [false, true]);
  assert.deepEqual(news('startup', 'unknown', 'failure', 'success'), [true, true]);
});
