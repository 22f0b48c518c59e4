import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstFreeMap, MAP_SIZE, Slots } from './slots.ts';

test('a chain keeps its numbers while it has as many endpoints, and nobody else has them', () => {
  const slots = new Slots();
  const one = slots.take('one', 'tcp', 3);
  const two = slots.take('two', 'tcp', 2);
  assert.deepEqual([one.first, two.first], [0, 3]);
  assert.equal(slots.take('one', 'tcp', 3), one);
  const grown = slots.take('one', 'tcp', 4);
  assert.equal(grown.first, 5);
  // What was given back is used again by a chain that needs as many.
  assert.equal(slots.take('three', 'tcp', 3), one);
  assert.equal(slots.take('four', 'tcp', 3).first, 9);
});

test('each protocol has maps of its own, no range lies in two, and a long one has a map to itself', () => {
  const slots = new Slots(7);
  assert.equal(slots.take('a', 'tcp', MAP_SIZE - 1).map.name, 'service-endpoints-tcp-7');
  assert.equal(slots.take('b', 'udp', 2).map.name, 'service-endpoints-udp-8');
  assert.deepEqual({ ...slots.take('c', 'tcp', 2), map: '' }, { map: '', first: 0, count: 2 });
  assert.equal(slots.take('d', 'tcp', 3 * MAP_SIZE).map.name, 'service-endpoints-tcp-10');
  assert.equal(slots.take('e', 'tcp', 2).map.name, 'service-endpoints-tcp-9');
});

test('a new owner begins behind the maps that are there', () => {
  assert.equal(firstFreeMap([]), 0);
  assert.equal(firstFreeMap([3, 11, 4]), 12);
});
