import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Counter, Histogram, labelText, metricText } from './metrics-text.ts';

test('labels are escaped', () => {
  assert.equal(labelText({ a: 'x"y\\z\n', b: '' }), '{a="x\\"y\\\\z\\n",b=""}');
  assert.equal(labelText({}), '');
});

test('samples with and without a time', () => {
  assert.equal(
    metricText('m', 'gauge', 'Help.', [
      { labels: { a: 'b' }, value: 1.5 },
      { labels: {}, value: 2, atMs: 1234 },
    ]),
    '# HELP m Help.\n# TYPE m gauge\nm{a="b"} 1.5\nm 2 1234\n',
  );
  assert.equal(metricText('m', 'gauge', 'Help.', []), '');
});

test('counters add up by their labels and forget what is removed', () => {
  const counter = new Counter('c_total', 'Help.');
  counter.add({ x: '1' });
  counter.add({ x: '1' }, 2);
  counter.add({ x: '2' });
  counter.remove({ x: '2' });
  assert.equal(counter.text(), '# HELP c_total Help.\n# TYPE c_total counter\nc_total{x="1"} 3\n');
});

test('histograms are cumulative', () => {
  const histogram = new Histogram('h', 'Help.', [1, 2]);
  for (const value of [0.5, 1, 1.5, 9]) histogram.observe({ k: 'v' }, value);
  assert.equal(
    histogram.text(),
    '# HELP h Help.\n# TYPE h histogram\nh_bucket{k="v",le="1"} 2\nh_bucket{k="v",le="2"} 3\nh_bucket{k="v",le="+Inf"} 4\nh_sum{k="v"} 12\nh_count{k="v"} 4\n',
  );
});

test('series are bounded', () => {
  const counter = new Counter('c', 'Help.');
  for (let n = 0; n < 10_000; n++) counter.add({ n: String(n) });
  assert.equal(counter.text().split('\n').length - 3, 4_096);
});
