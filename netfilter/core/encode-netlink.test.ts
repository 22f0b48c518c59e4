import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BatchEncoder, messageType, NFT } from './encode-netlink.ts';
import { attributeList, attributes, messagesOf, readText } from './netlink.ts';
import { endpointMap, sets } from './nft-table.ts';
import type { Op } from './ops.ts';

/** Each message: its type, its number, and the elements it has. */
function written(ops: readonly Op[], apart: boolean): string[] {
  const batch = new BatchEncoder('ip', { apart });
  for (const op of ops) batch.add(op);
  return [...messagesOf([batch.finish()])].slice(1, -1).map(({ type, seq, payload }) => {
    const found = attributes(payload, 4);
    if (type !== messageType(NFT.newElement)) return `${seq}: ${type & 0xff}`;
    const keys = attributeList(found.get(3)!).map(([, item]) => attributes(attributes(item).get(1)!).get(1)!.join('.'));
    return `${seq}: ${readText(found.get(2))} ${keys.join(' ')}`;
  });
}

const map = endpointMap('tcp', 0);
const drawn = (number: number): Op => ({ op: 'add-element', set: map, element: { key: [String(number)], target: { address: '10.0.0.1', port: 80 } } });
const clusterIP = (address: string): Op => ({ op: 'add-element', set: sets.clusterIPs, element: { key: [address] } });
const ops: Op[] = [
  { op: 'add-set', set: map },
  drawn(0),
  clusterIP('10.96.0.1'),
  drawn(1),
  clusterIP('10.96.0.2'),
  { op: 'add-chain', chain: 'a' },
  drawn(258),
];

test('elements that are added in a row go in one message for each set, numbered as the first of them', () => {
  assert.deepEqual(written(ops, false), [
    '1: 9',
    '2: service-endpoints-tcp-0 0.0.0.0 1.0.0.0',
    '3: cluster-ips 10.96.0.1 10.96.0.2',
    '6: 3',
    '7: service-endpoints-tcp-0 2.1.0.0',
  ]);
});

test('when each has to answer for itself, each goes alone', () => {
  assert.deepEqual(
    written(ops, true).map((line) => line.split(' ').length),
    [2, 3, 3, 3, 3, 2, 3],
  );
});

test('more elements than an attribute holds go in several messages, and none is lost', () => {
  const many = Array.from({ length: 5000 }, (_, number) => drawn(number));
  const lines = written(many, false);
  assert.ok(lines.length > 1 && lines.length < 12, `${lines.length} messages`);
  assert.equal(new Set(lines.flatMap((line) => line.split(' ').slice(2))).size, 5000);
});

test('more chains with long names than an attribute holds go in several messages, and none is lost', () => {
  const chains = Array.from({ length: 1000 }, (_, index) => `endpoint-${index}-`.padEnd(249, 'x'));
  const lines = written([{ op: 'add-rule', chain: 'a', rule: { statements: [{ kind: 'goto-random', chains }] } }], false);
  const keys = lines.flatMap((line) => (line.includes(' __map%d ') ? line.split(' ').slice(2) : []));
  assert.deepEqual(
    keys,
    chains.map((_, index) => `${index & 255}.${index >> 8}.0.0`),
  );
});

test('a rule that was copied says the same as one that was written', () => {
  const rule = (first: number, address: string): Op[] => [
    {
      op: 'add-rule',
      chain: 'a',
      rule: {
        statements: [
          { kind: 'protocol', protocol: 'tcp' },
          { kind: 'dnat-random', first, count: first + 2, map: map.name },
        ],
      },
    },
    {
      op: 'add-rule',
      chain: 'a',
      rule: {
        statements: [
          { kind: 'protocol', protocol: 'udp' },
          { kind: 'dnat', target: { address, port: first } },
        ],
      },
    },
  ];
  const bytes = (list: readonly Op[]): string[] => {
    const batch = new BatchEncoder('ip');
    for (const op of list) batch.add(op);
    return [...messagesOf([batch.finish()])].map(({ payload }) => payload.toString());
  };
  const both = bytes([...rule(1, '10.0.0.1'), ...rule(70_000, '192.0.2.255')]);
  const alone = bytes(rule(70_000, '192.0.2.255'));
  assert.deepEqual(both.slice(3, 5), alone.slice(1, 3));
});

for (const family of ['ip', 'ip6'] as const) {
  test(`${family}: endpoints by number are the elements that they stand for`, () => {
    const targets = Array.from({ length: 2500 }, (_, index) => ({
      address: family === 'ip' ? `10.1.${index >> 8}.${index & 255}` : `fd00::${index + 1}`,
      port: 1 + index,
    }));
    const bytes = (list: readonly Op[]): string[] => {
      const batch = new BatchEncoder(family);
      for (const op of list) batch.add(op);
      return [...messagesOf([batch.finish()])].map(({ payload }) => payload.toString());
    };
    const together = bytes([{ op: 'add-targets', set: map, first: 300, targets }]);
    assert.ok(together.length > 3, 'more than an attribute holds');
    assert.deepEqual(together, bytes(targets.map((target, index): Op => ({ op: 'add-element', set: map, element: { key: [String(300 + index)], target } }))));
  });
}

test('when each has to answer for itself, the endpoints of one operation go together', () => {
  const targets = [
    { address: '10.0.0.1', port: 80 },
    { address: '10.0.0.2', port: 80 },
  ];
  const lines = written(
    [
      { op: 'add-targets', set: map, first: 0, targets },
      { op: 'add-targets', set: map, first: 2, targets },
    ],
    true,
  );
  assert.deepEqual(lines, ['1: service-endpoints-tcp-0 0.0.0.0 1.0.0.0', '2: service-endpoints-tcp-0 2.0.0.0 3.0.0.0']);
});
