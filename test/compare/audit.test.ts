import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeOf } from './audit.ts';
import { scrapeOf, sumOf } from './measure.ts';

const line = (change: object): string =>
  JSON.stringify({
    stage: 'ResponseComplete',
    stageTimestamp: '2026-11-29T00:00:00.000001Z',
    requestURI: '/',
    verb: 'patch',
    user: { username: 'system:node:node-1' },
    objectRef: { resource: 'pods', subresource: 'status', namespace: 'compare' },
    responseStatus: { code: 200 },
    ...change,
  });

test('a write of the node for the namespace counts, once', () => {
  assert.equal(writeOf(line({}), 'node-1', 'compare'), 'patch pods/status');
  assert.equal(writeOf(line({ verb: 'delete', objectRef: { resource: 'pods', namespace: 'compare' } }), 'node-1', 'compare'), 'delete pods');
  assert.equal(writeOf(line({ stage: 'RequestReceived' }), 'node-1', 'compare'), null);
});

test('reads, other nodes, other namespaces, refusals and half lines count nothing', () => {
  assert.equal(writeOf(line({ verb: 'get' }), 'node-1', 'compare'), null);
  assert.equal(writeOf(line({}), 'node-2', 'compare'), null);
  assert.equal(writeOf(line({}), 'node-1', 'default'), null);
  assert.equal(writeOf(line({ responseStatus: { code: 409 } }), 'node-1', 'compare'), null);
  assert.equal(writeOf(line({}).slice(0, -9), 'node-1', 'compare'), null);
});

test('a metric is summed over its labels, and names that only begin alike are not', () => {
  const page = 'a_total{x="1"} 2\na_total{x="2"} 3\na_total_more 100\na_total 1\n';
  assert.equal(sumOf(page, 'a_total'), 6);
  assert.equal(scrapeOf(page).loopMaxMs, null);
  assert.equal(scrapeOf('nodelet_event_loop_delay_recent_seconds{quantile="1"} 0.012\n').loopMaxMs, 12);
});
