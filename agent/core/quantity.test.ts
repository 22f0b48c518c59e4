import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addQuantities, compareQuantities, formatQuantity, milliValueOf, parseQuantity, quantityOf, tryParseQuantity, valueOf } from './quantity.ts';

test('whole values round up as Go does', () => {
  const cases: [string | number, bigint][] = [
    ['0', 0n],
    ['1', 1n],
    ['100m', 1n],
    ['1500m', 2n],
    ['1.5', 2n],
    ['64Mi', 67108864n],
    ['1.5Gi', 1610612736n],
    ['1k', 1000n],
    ['1e3', 1000n],
    ['1E3', 1000n],
    ['1E', 1000000000000000000n],
    ['0.1Ki', 103n],
    ['-1500m', -2n],
    ['.5', 1n],
    ['5.', 5n],
    [7, 7n],
    ['1n', 1n],
    ['129e6', 129000000n],
    ['12e-1', 2n],
  ];
  for (const [text, expected] of cases) assert.equal(valueOf(text), expected, String(text));
  assert.equal(valueOf(undefined), 0n);
});

test('CPU in thousandths rounds up', () => {
  const cases: [string, bigint][] = [
    ['1', 1000n],
    ['100m', 100n],
    ['0.1', 100n],
    ['1u', 1n],
    ['1100u', 2n],
    ['2.5', 2500n],
  ];
  for (const [text, expected] of cases) assert.equal(milliValueOf(text), expected, text);
});

test('what is no quantity is refused', () => {
  for (const text of ['', ' 1', '1 ', '1.2.3', 'Mi', '1mi', '1K', '1ki', 'abc', '1e', '--1', '0x10', '1MiB', '.', '1e999'])
    assert.equal(tryParseQuantity(text), null, text);
  assert.throws(() => parseQuantity('ten'), /not a resource quantity/);
});

test("the canonical text is the API server's", () => {
  const cases: [string, string][] = [
    ['1024Mi', '1Gi'],
    ['1000m', '1'],
    ['1.5', '1500m'],
    ['1500', '1500'],
    ['1000', '1k'],
    ['2000Ki', '2000Ki'],
    ['0', '0'],
    ['0Mi', '0'],
    ['1Ki', '1Ki'],
    ['0.5Ki', '512'],
    ['1.5Gi', '1536Mi'],
    ['1e3', '1e3'],
    ['100e-3', '100e-3'],
    ['-64Mi', '-64Mi'],
    ['12345678', '12345678'],
  ];
  for (const [text, expected] of cases) assert.equal(formatQuantity(parseQuantity(text)), expected, text);
});

test('sums keep the first format and compare across formats', () => {
  assert.equal(formatQuantity(addQuantities(parseQuantity('64Mi'), parseQuantity('64Mi'))), '128Mi');
  assert.equal(formatQuantity(addQuantities(quantityOf(0), parseQuantity('1Gi'))), '1Gi');
  assert.equal(compareQuantities(parseQuantity('1Ki'), parseQuantity('1024')), 0);
  assert.equal(compareQuantities(parseQuantity('1k'), parseQuantity('1Ki')), -1);
});
