import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode } from '../errors.ts';
import { errnoError, errnoName, errnoNumber } from './errno.ts';
import { AnswerSplitter, FieldWriter, kinds, ops } from './wire.ts';

/** A frame as sys answers it. */
function answer(id: number, kind: number, fields: Uint8Array): Buffer {
  const head = Buffer.alloc(9);
  head.writeUInt32LE(5 + fields.length, 0);
  head.writeUInt32LE(id, 4);
  head.writeUInt8(kind, 8);
  return Buffer.concat([head, fields]);
}

test('a request has its length, number, deadline and operation before its fields', () => {
  const frame = new FieldWriter().u8(1).string('né').frame(7, ops.statfs, 1.2);
  assert.equal(frame.toString('hex'), ['12000000', '07000000', '02000000', '0d', '01', '03000000', '6ec3a9', '00'].join(''));
  assert.equal(frame.readUInt32LE(0), frame.length - 4);
});

test('fields of any size keep their order', () => {
  const large = Buffer.alloc(100_000, 7);
  const frame = new FieldWriter()
    .bytes(large)
    .u64(2 ** 40)
    .strings(['a', ''])
    .u32(-1)
    .frame(1, ops.run, 0);
  const fields = frame.subarray(13);
  assert.equal(fields.readUInt32LE(0), large.length);
  assert.deepEqual(fields.subarray(4, 100_004), large);
  assert.equal(fields.subarray(100_004).toString('hex'), ['0000000000010000', '02000000', '0100000061', '00', '00000000', '00', 'ffffffff'].join(''));
});

test('answers are the same however the stream is cut', () => {
  const stream = Buffer.concat([
    answer(1, kinds.done, Buffer.from('abc')),
    answer(2, kinds.event, Buffer.alloc(0)),
    answer(3, kinds.fail, Buffer.alloc(3000, 1)),
  ]);
  for (const size of [1, 2, 5, 9, 1000, stream.length]) {
    const splitter = new AnswerSplitter();
    const seen: string[] = [];
    for (let at = 0; at < stream.length; at += size) {
      for (const { id, kind } of splitter.push(stream.subarray(at, at + size))) seen.push(`${id}/${kind}`);
    }
    assert.deepEqual(seen, ['1/0', '2/2', '3/1'], `cut every ${size} bytes`);
  }
});

test('an answer shorter than its fields is a bug, not a zero', () => {
  const [first] = new AnswerSplitter().push(answer(1, kinds.done, Buffer.from([5, 0, 0, 0, 1])));
  assert.throws(() => first?.fields.bytes(), /shorter than its fields/);
  assert.throws(() => [...new AnswerSplitter().push(Buffer.alloc(4))], /impossible length/);
});

test('errno has a name, a number and a code', () => {
  assert.deepEqual([errnoName(2), errnoNumber('ENOENT'), errnoName(0)], ['ENOENT', 2, 'errno 0']);
  assert.ok(hasCode(errnoError('x', 'EROFS'), 'denied'));
  assert.ok(hasCode(errnoError('x', 'EBUSY'), 'failed'));
  assert.equal(errnoError('unmount /a', 'EBUSY', 'umount').message, 'unmount /a: umount: EBUSY');
});
