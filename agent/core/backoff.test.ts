import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoffRules, grow, heldUntilMs, rebuilt } from './backoff.ts';
import type { Backoff } from './backoff.ts';

test('delays are 10, 20, 40 … 300 s, and a run of over ten minutes wipes the slate', () => {
  const rules = backoffRules();
  let state: Backoff | undefined;
  let nowMs = 0;
  const delays: number[] = [];
  for (let failure = 0; failure < 7; failure += 1) {
    state = grow(state, rules, nowMs, nowMs);
    delays.push(state.delayMs / 1000);
    nowMs += state.delayMs;
  }
  assert.deepEqual(delays, [10, 20, 40, 80, 160, 300, 300]);
  assert.equal(grow(state, rules, nowMs + 601_000, nowMs + 601_000).delayMs, 10_000);
  assert.equal(heldUntilMs(state, rules, nowMs + 601_000, nowMs + 601_000), null);
});

test('a smaller cap bounds the first delay too', () => {
  const rules = backoffRules(3000);
  const first = grow(undefined, rules, 0, 0);
  assert.deepEqual([first.delayMs, grow(first, rules, 5000, 5000).delayMs], [3000, 3000]);
});

test('with the reduced decay the first delay is a second', () => {
  assert.equal(grow(undefined, backoffRules(undefined, true), 0, 0).delayMs, 1_000);
  assert.equal(grow(undefined, backoffRules(500, true), 0, 0).delayMs, 500);
});

test('the delay counts from the event; a clock set back holds nobody for hours', () => {
  const rules = backoffRules();
  const state = grow(undefined, rules, 0, 0);
  assert.equal(heldUntilMs(state, rules, 1000, 2000), 11_000);
  assert.equal(heldUntilMs(state, rules, 1000, 11_000), null);
  assert.equal(heldUntilMs(state, rules, 3_600_000, 0), null);
});

test('restarts that the runtime remembers set the delay of a new process', () => {
  const rules = backoffRules();
  assert.deepEqual(
    [0, 1, 3, 50].map((attempt) => rebuilt(attempt, rules, 0)?.delayMs),
    [undefined, 10_000, 40_000, 300_000],
  );
});
