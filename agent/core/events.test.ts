import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventCorrelator, type ToldEvent } from './events.ts';

const told = (message: string, name = 'p'): ToldEvent => ({
  target: { apiVersion: 'v1', kind: 'Pod', namespace: 'ns', name, uid: `u-${name}` },
  type: 'Warning',
  reason: 'Unhealthy',
  message,
});

test('equal events are counted, others are new', () => {
  const correlator = new EventCorrelator();
  const first = correlator.observe(told('a'), 1_000);
  assert.deepEqual([first?.count, first?.existing], [1, null]);
  if (first !== null) correlator.sent(first, 'p.1');
  const second = correlator.observe(told('a'), 2_000);
  assert.deepEqual([second?.count, second?.existing, second?.firstMs], [2, 'p.1', 1_000]);
  assert.equal(correlator.observe(told('b'), 2_000)?.existing, null);
});

test('the event that was to be counted is gone: a new one', () => {
  const correlator = new EventCorrelator();
  const first = correlator.observe(told('a'), 0);
  if (first !== null) correlator.sent(first, 'p.1');
  const second = correlator.observe(told('a'), 1);
  if (second !== null) correlator.lost(second);
  assert.equal(correlator.observe(told('a'), 2)?.existing, null);
});

test('an object has 25 events, then one every five minutes; other objects have their own', () => {
  const correlator = new EventCorrelator();
  const results = Array.from({ length: 30 }, () => correlator.observe(told('same'), 0));
  assert.equal(results.filter((plan) => plan !== null).length, 25);
  assert.equal(correlator.observe(told('same'), 299_000), null);
  assert.notEqual(correlator.observe(told('same'), 301_000), null);
  assert.equal(correlator.observe(told('same'), 302_000), null);
  assert.notEqual(correlator.observe(told('same', 'q'), 302_000), null);
  // Warnings are not lost for all that went well before.
  assert.notEqual(correlator.observe({ ...told('same'), type: 'Normal' }, 302_000), null);
});

test('the tenth different message of a reason within ten minutes is combined with what follows', () => {
  const correlator = new EventCorrelator();
  for (let n = 1; n <= 9; n++) assert.equal(correlator.observe(told(`m${n}`), n)?.message, `m${n}`);
  const tenth = correlator.observe(told('m10'), 10);
  assert.equal(tenth?.message, '(combined from similar events): m10');
  if (tenth !== null) correlator.sent(tenth, 'p.x');
  const next = correlator.observe(told('m11'), 11);
  assert.deepEqual([next?.existing, next?.count, next?.message], ['p.x', 2, '(combined from similar events): m11']);
  assert.equal(correlator.observe(told('m12'), 700_000)?.message, 'm12');
});
