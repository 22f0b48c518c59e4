import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeUdpFlows, encodeDeletes, encodeUdpDump, staleFlows, type Flow } from './conntrack.ts';
import { attributes, messagesOf, MessageWriter, readU16 } from './netlink.ts';

function flow(origDst: string, origDstPort: number, replySrc: string, replySrcPort: number): Flow {
  return { origDst, origDstPort, replySrc, replySrcPort, origTuple: new Uint8Array(4), id: undefined, zone: undefined };
}

const stats = { addresses: ['10.96.0.7', '203.0.113.10'], port: 8125, nodePort: 30123, endpoints: new Set(['10.244.0.3 8125']) };
const other = { addresses: ['10.96.0.9'], port: 30123, nodePort: 0, endpoints: new Set(['10.244.1.5 8125']) };
const node = new Set(['192.0.2.10']);

test('flows to a Service stay while they rest on a serving endpoint', () => {
  const kept = [
    flow('10.96.0.7', 8125, '10.244.0.3', 8125),
    flow('192.0.2.10', 30123, '10.244.0.3', 8125),
    flow('10.96.0.9', 30123, '10.244.1.5', 8125),
    flow('198.51.100.1', 8125, '198.51.100.1', 8125),
  ];
  assert.deepEqual(staleFlows(kept, [stats, other], node), []);
});

test('flows to a pod that is gone, to another port, or past any pod are stale', () => {
  const stale = [
    flow('10.96.0.7', 8125, '10.244.0.9', 8125),
    flow('203.0.113.10', 8125, '10.244.0.3', 53),
    flow('10.96.0.7', 8125, '10.96.0.7', 8125),
    flow('192.0.2.10', 30123, '10.244.0.9', 8125),
  ];
  assert.deepEqual(staleFlows(stale, [stats, other], node), stale);
});

test('a node port without endpoints is cleaned on node addresses only', () => {
  const empty = { ...stats, endpoints: new Set<string>() };
  const [own, foreign] = [flow('192.0.2.10', 30123, '10.244.0.3', 8125), flow('198.51.100.1', 30123, '198.51.100.1', 30123)];
  assert.deepEqual(staleFlows([own, foreign], [empty], node), [own]);
});

test('an entry as the kernel sends it is read, and named again to be deleted', () => {
  const writer = new MessageWriter();
  const message = writer.begin(0x100, 2, 1, 2);
  for (const [type, src, dst, srcPort, dstPort] of [
    [1, [10, 244, 0, 2], [10, 96, 0, 7], 40001, 8125],
    [2, [10, 244, 0, 3], [10, 244, 0, 2], 8125, 40001],
  ] as const) {
    const tuple = writer.nest(type);
    const ip = writer.nest(1);
    writer.bytes(1, Uint8Array.from(src));
    writer.bytes(2, Uint8Array.from(dst));
    writer.unnest(ip);
    const proto = writer.nest(2);
    writer.u8(1, 17);
    writer.u16(2, srcPort);
    writer.u16(3, dstPort);
    writer.unnest(proto);
    writer.unnest(tuple);
  }
  writer.u32(12, 77);
  writer.end(message);
  const [read] = decodeUdpFlows([writer.finish()]);
  assert.deepEqual([read?.origDst, read?.origDstPort, read?.replySrc, read?.replySrcPort], ['10.96.0.7', 8125, '10.244.0.3', 8125]);
  const [deletion] = [...messagesOf([encodeDeletes('ip', [read!])])];
  assert.equal(deletion?.type, 0x102);
  const named = attributes(deletion.payload, 4);
  assert.deepEqual(named.get(12), Uint8Array.of(0, 0, 0, 77));
  assert.equal(readU16(attributes(attributes(named.get(1)!).get(2)!).get(3)), 8125);
});

test('the dump asks for one family, and for UDP alone where the kernel can', () => {
  assert.equal(encodeUdpDump('ip6', false).length, 20);
  assert.equal(encodeUdpDump('ip6', false)[16], 10);
  assert.ok(encodeUdpDump('ip', true).length > 20);
});
