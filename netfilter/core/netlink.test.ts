import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answersOf, attributeList, attributes, messagesOf, MessageWriter, readText, readU16, readU32 } from './netlink.ts';

function write(capacity: number): Uint8Array {
  const writer = new MessageWriter(capacity);
  for (let seq = 1; seq <= 3; seq++) {
    const message = writer.begin(0x0a00 + seq, 0x405, seq, 2);
    writer.text(1, 'kube-proxy');
    const list = writer.nest(4);
    for (let index = 0; index < 20; index++) {
      const item = writer.nest(1);
      writer.u8(1, index);
      writer.u16(2, 0x1234);
      writer.u32(3, 0xfffffffc);
      writer.u64(4, 10_800_000n);
      writer.bytes(5, Uint8Array.of(1, 2, 3));
      writer.unnest(item);
    }
    writer.unnest(list);
    writer.end(message);
  }
  return writer.finish();
}

test('a writer that has to grow writes the same bytes', () => {
  const roomy = write(65_536);
  for (const capacity of [1, 7, 64, 1000]) assert.deepEqual(write(capacity), roomy, `from ${capacity} bytes on`);
});

test('what was written is read back', () => {
  const [first, second, third] = [...messagesOf([write(64)])];
  assert.deepEqual([first?.seq, second?.type, third?.flags], [1, 0x0a02, 0x405]);
  const found = attributes(first!.payload, 4);
  assert.equal(readText(found.get(1)), 'kube-proxy');
  const items = attributeList(found.get(4)!);
  assert.equal(items.length, 20);
  const item = attributes(items[7]![1]);
  assert.deepEqual([item.get(1)![0], readU16(item.get(2)), readU32(item.get(3))], [7, 0x1234, 0xfffffffc]);
  assert.deepEqual(item.get(5), Uint8Array.of(1, 2, 3));
});

test('a cut-off datagram ends the reading, it does not fail it', () => {
  const bytes = write(64);
  for (let length = 0; length < bytes.length; length += 13) for (const { payload } of messagesOf([bytes.subarray(0, length)])) attributes(payload, 4);
});

test('acknowledgements, refusals and the words that come with them', () => {
  const text = 'Chain of that name does not exist';
  const datagram = new Uint8Array(16 + 4 + 16 + 4 + text.length + 1 + 2);
  const view = new DataView(datagram.buffer);
  view.setUint32(0, datagram.length, true);
  view.setUint16(4, 2, true);
  view.setUint16(6, 0x300, true);
  view.setUint32(8, 5, true);
  view.setInt32(16, -2, true);
  view.setUint32(20, 80, true);
  view.setUint16(36, 4 + text.length + 1, true);
  view.setUint16(38, 1, true);
  datagram.set(Buffer.from(text), 40);
  assert.deepEqual(answersOf([datagram]), [{ seq: 5, errno: 2, detail: text }]);
});
