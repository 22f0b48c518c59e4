import assert from 'node:assert/strict';
import { test } from 'node:test';
import { realRng, seededRng } from './rng.ts';

test('a seed repeats itself and another seed does not', () => {
  const draw = (seed: number): number[] => {
    const rng = seededRng(seed);
    return Array.from({ length: 20 }, () => rng.int(1000));
  };
  assert.deepEqual(draw(7), draw(7));
  assert.notDeepEqual(draw(7), draw(8));
});

test('draws stay in their range and cover it', () => {
  for (const rng of [seededRng(3), realRng]) {
    const seen = new Set(Array.from({ length: 2000 }, () => rng.int(10)));
    assert.equal(seen.size, 10);
    assert.match(rng.uuid(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.match(rng.suffix(5), /^[bcdfghjklmnpqrstvwxz2456789]{5}$/);
    assert.throws(() => rng.pick([]));
    assert.throws(() => rng.int(0));
  }
});
