import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addressText, cidrText, parseAddress, type Address } from './address.ts';
import { readCall, readNetConf, type Range } from './config.ts';
import { CniError } from './errors.ts';
import { allocate } from './ipam.ts';

const call = readCall({ CNI_COMMAND: 'STATUS' });
const rangesOf = (set: unknown): readonly Range[] => readNetConf({ cniVersion: '1.0.0', name: 'n', ipam: { ranges: [set] } }, call).rangeSets[0]!;
const takenOf = (...texts: string[]): { has(address: Address): boolean } => ({ has: (address) => texts.includes(addressText(address)) });
const give = (set: unknown, taken: string[], last: string | null, wanted: string | null = null): string =>
  cidrText(allocate(rangesOf(set), takenOf(...taken), last === null ? null : parseAddress(last), wanted === null ? null : parseAddress(wanted)).address);

const small = [{ subnet: '10.244.0.0/29' }];

test('addresses go around, so that one rests before it is given again', () => {
  assert.equal(give(small, [], null), '10.244.0.2/29');
  assert.equal(give(small, [], '10.244.0.2'), '10.244.0.3/29');
  assert.equal(give(small, [], '10.244.0.6'), '10.244.0.2/29');
  assert.equal(give(small, ['10.244.0.4', '10.244.0.5'], '10.244.0.3'), '10.244.0.6/29');
  assert.equal(give(small, ['10.244.0.2', '10.244.0.3', '10.244.0.4', '10.244.0.6'], '10.244.0.5'), '10.244.0.5/29');
});

test('several ranges of a set follow each other', () => {
  const set = [
    { subnet: '10.1.0.0/24', rangeStart: '10.1.0.10', rangeEnd: '10.1.0.11' },
    { subnet: '10.2.0.0/24', rangeStart: '10.2.0.20', rangeEnd: '10.2.0.20', gateway: '10.2.0.254' },
  ];
  assert.equal(give(set, [], '10.1.0.11'), '10.2.0.20/24');
  assert.equal(give(set, ['10.1.0.10'], '10.2.0.20'), '10.1.0.11/24');
  assert.equal(addressText(allocate(rangesOf(set), takenOf('10.1.0.10', '10.1.0.11'), null, null).gateway), '10.2.0.254');
});

test('a full range, a wanted address that is taken, the gateway’s or nowhere', () => {
  const all = [2, 3, 4, 5, 6].map((at) => `10.244.0.${at}`);
  const codeOf = (work: () => unknown): number => {
    try {
      work();
      return 0;
    } catch (error) {
      return (error as CniError).code;
    }
  };
  assert.equal(
    codeOf(() => give(small, all, null)),
    100,
  );
  assert.equal(give(small, [], null, '10.244.0.5'), '10.244.0.5/29');
  for (const [wanted, code] of [
    ['10.244.0.5', 100],
    ['10.244.0.1', 7],
    ['10.245.0.5', 7],
  ] as const)
    assert.equal(
      codeOf(() => give(small, all, null, wanted)),
      code,
      wanted,
    );
});

test('a large range of IPv6 gives its first addresses at once', () => {
  assert.equal(give([{ subnet: 'fd00:1::/64' }], ['fd00:1::2'], null), 'fd00:1::3/64');
});
