import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeSpans, endpointOf, isSampled, readTraceparent, traceparentOf, tracingProblems } from './tracing.ts';

const traceId = '0af7651916cd43dd8448eb211c80319c';
const spanId = 'b7ad6b7169203331';

test('traceparent', () => {
  const text = `00-${traceId}-${spanId}-01`;
  assert.deepEqual(readTraceparent(text), { traceId, spanId, sampled: true });
  assert.equal(traceparentOf({ traceId, spanId, sampled: true }), text);
  assert.equal(readTraceparent(`00-${traceId}-${spanId}-00`)?.sampled, false);
  assert.notEqual(readTraceparent(`01-${traceId}-${spanId}-01-more`), null);
  for (const bad of [
    undefined,
    '',
    `ff-${traceId}-${spanId}-01`,
    `00-${'0'.repeat(32)}-${spanId}-01`,
    `00-${traceId}-${'0'.repeat(16)}-01`,
    `${text}-more`,
    text.toUpperCase(),
  ])
    assert.equal(readTraceparent(bad), null, String(bad));
});

test('what share of traces is kept', () => {
  assert.equal(isSampled(traceId, 0), false);
  assert.equal(isSampled(traceId, 1_000_000), true);
  // The lower half of the id, over two, against the share of 2^63: as Go's TraceIDRatioBased.
  assert.equal(isSampled(`${'0'.repeat(16)}7fffffffffffffff`, 500_000), true);
  assert.equal(isSampled(`${'0'.repeat(16)}8000000000000001`, 500_000), false);
});

test('what is wrong with a configuration', () => {
  assert.deepEqual(tracingProblems(null), []);
  assert.deepEqual(tracingProblems({ endpoint: 'otel:4317', samplingRatePerMillion: 1000 }), []);
  for (const bad of [{ samplingRatePerMillion: -1 }, { samplingRatePerMillion: 1_000_001 }, { samplingRatePerMillion: 'x' }, { endpoint: 'otel' }, { rate: 1 }])
    assert.equal(tracingProblems(bad).length, 1, JSON.stringify(bad));
  assert.equal(endpointOf('dns:///otel:4317'), 'otel:4317');
  assert.equal(endpointOf('[::1]:4317'), '[::1]:4317');
});

test('spans on the wire', () => {
  const span = {
    traceId,
    spanId,
    sampled: true,
    parentSpanId: '',
    name: 'é',
    kind: 'client' as const,
    startNs: 1n,
    endNs: 300n,
    attributes: { a: 'b', n: 300 },
    error: 'no',
  };
  const hex = Buffer.from(encodeSpans([span], {}, 's')).toString('hex');
  const body = [
    ...[`0a10${traceId}`, `1208${spanId}`, '2a02c3a9', '3003', '390100000000000000', '412c01000000000000'],
    ...['4a080a016112030a0162', '4a080a016e120318ac02', '7a0612026e6f1802'],
  ].join('');
  const size = (text: string): string => (text.length / 2).toString(16).padStart(2, '0');
  const scopeSpans = `0a030a017312${size(body)}${body}`;
  const inner = `0a0012${size(scopeSpans)}${scopeSpans}`;
  assert.equal(
    hex,
    `0a${inner.length / 2 > 127 ? Buffer.from([((inner.length / 2) & 127) | 128, (inner.length / 2) >> 7]).toString('hex') : size(inner)}${inner}`,
  );
});
