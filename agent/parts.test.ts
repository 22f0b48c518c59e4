import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runParts, untilDefect } from './parts.ts';

const untilEnd = (signal: AbortSignal): Promise<void> => new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));

test('a part that ends by itself ends the others, and is told of as a defect', async () => {
  const { signal, onBug, rethrow } = untilDefect(new AbortController().signal);
  await runParts(
    [
      ['long', untilEnd(signal)],
      ['short', Promise.resolve()],
    ],
    signal,
    onBug,
  );
  assert.throws(rethrow, /the part "short" ended by itself/);
});

test('the first of two defects is the one that is told of', async () => {
  const { signal, onBug, rethrow } = untilDefect(new AbortController().signal);
  await runParts(
    [
      ['long', untilEnd(signal)],
      ['a', Promise.reject(new Error('first'))],
      ['b', Promise.reject(new Error('second'))],
    ],
    signal,
    onBug,
  );
  assert.throws(rethrow, /^Error: first$/);
});

test('parts that end when they are told to are no defect', async () => {
  const stop = new AbortController();
  const { signal, onBug, rethrow } = untilDefect(stop.signal);
  const all = runParts([['long', untilEnd(signal)]], signal, onBug);
  stop.abort();
  await all;
  rethrow();
});
