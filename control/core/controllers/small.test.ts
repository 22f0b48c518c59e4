import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canonicalJson, semanticEqual } from './equal.ts';
import { fnv32a, safeEncode, templateHash } from './hash.ts';
import { fenceposts, scaled } from './intstr.ts';
import { freeCidr } from './node-cidr.ts';
import { selectorMatches } from './selector.ts';

test('a selector with expressions matches as the API defines it', () => {
  const labels = { app: 'web', tier: 'front' };
  assert.equal(selectorMatches(undefined, labels), false);
  assert.equal(selectorMatches({}, labels), true);
  assert.equal(selectorMatches({ matchLabels: { app: 'web' } }, labels), true);
  assert.equal(selectorMatches({ matchExpressions: [{ key: 'app', operator: 'In', values: ['db', 'web'] }] }, labels), true);
  assert.equal(selectorMatches({ matchExpressions: [{ key: 'zone', operator: 'NotIn', values: ['a'] }] }, labels), true);
  assert.equal(selectorMatches({ matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] }, labels), false);
});

test('absent, null and empty are the same to semantic equality, the order of keys does not matter', () => {
  assert.equal(semanticEqual({ a: 1, b: [] }, { b: undefined, a: 1, c: {} }), true);
  assert.equal(semanticEqual({ a: [1, 2] }, { a: [2, 1] }), false);
  assert.equal(semanticEqual({ a: 0 }, {}), false);
  assert.equal(canonicalJson({ b: 1, a: { d: null, c: 'x' } }), '{"a":{"c":"x"},"b":1}');
});

test('the hash of a template depends on its content alone', () => {
  assert.equal(fnv32a(''), 0x811c9dc5);
  assert.equal(fnv32a('foobar'), 0xbf9cf968);
  const first = templateHash({ metadata: { labels: { a: '1', b: '2' } }, spec: { containers: [{ name: 'c', image: 'i' }] } }, undefined);
  const same = templateHash({ spec: { containers: [{ image: 'i', name: 'c' }] }, metadata: { labels: { b: '2', a: '1' } } }, 0);
  assert.equal(first, same);
  assert.match(first, /^[bcdfghjklmnpqrstvwxz2456789]{1,10}$/);
  assert.notEqual(first, templateHash({ metadata: { labels: { a: '1', b: '2' } }, spec: { containers: [{ name: 'c', image: 'i' }] } }, 1));
  assert.equal(safeEncode('0123456789'), '456789bcdf');
});

test('percentages round up for surge and down for unavailable, and never stop a rollout', () => {
  assert.equal(scaled('25%', 3, true), 1);
  assert.equal(scaled('25%', 3, false), 0);
  assert.deepEqual(fenceposts('25%', '25%', 3), { surge: 1, unavailable: 0 });
  assert.deepEqual(fenceposts(0, '1%', 2), { surge: 0, unavailable: 1 });
  assert.deepEqual(fenceposts(undefined, undefined, 5), { surge: 0, unavailable: 1 });
});

test('node ranges are cut from the cluster range one after the other and reused', () => {
  assert.equal(freeCidr('10.244.0.0/16', 24, []), '10.244.0.0/24');
  assert.equal(freeCidr('10.244.0.0/16', 24, ['10.244.0.0/24', '10.244.2.0/24']), '10.244.1.0/24');
  assert.equal(freeCidr('10.244.0.0/24', 24, ['10.244.0.0/24']), undefined);
  assert.equal(freeCidr('10.244.0.0/16', 24, ['10.244.0.0/23', 'fd00::/64']), '10.244.2.0/24');
});
