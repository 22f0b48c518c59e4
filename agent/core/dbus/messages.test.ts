import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { authAnswer, authLines, decodeMessage, encodeMessage } from './messages.ts';
import type { DbusMessage } from './messages.ts';
import { BadDbusData, DbusReader, DbusWriter, splitSignature } from './values.ts';
import type { DbusValue } from './values.ts';

const hex = (text: string): Uint8Array => Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const bytesOf = (signature: string, ...values: DbusValue[]): string => Buffer.from(new DbusWriter().values(signature, values).bytes).toString('hex');

describe('values', () => {
  test('signatures fall into single types', () => {
    assert.deepEqual(splitSignature('ssa(sv)a(sa(sv))ay'), ['s', 's', 'a(sv)', 'a(sa(sv))', 'ay']);
    for (const bad of ['a', '(', '()', 'z', 'a{', ')', '(s', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaas'])
      assert.throws(() => splitSignature(bad), BadDbusData, bad);
  });

  test('bytes as the specification has them', () => {
    // "foo", "+", "bar" of the specification's own example, the second at its alignment.
    assert.equal(bytesOf('sss', 'foo', '+', 'bar'), '03000000666f6f00010000002b0000000300000062617200');
    // An array of one 64-bit integer: the length does not count the padding.
    assert.equal(bytesOf('ax', [5n]), '08000000000000000500000000000000');
    assert.equal(bytesOf('ax', []), '0000000000000000');
    assert.equal(bytesOf('yu', 1, 2), '0100000002000000');
    assert.equal(bytesOf('v', { signature: 't', value: 18_446_744_073_709_551_615n }), '0174000000000000ffffffffffffffff');
  });

  test('what is written is read', () => {
    const signature = 'ybnqixutdsogva(sv)ayasa{sv}(sb)';
    const values: DbusValue[] = [
      ...[255, true, -2, 65_535, -3, -4n, 4_294_967_295, 5n, 0.5, 'é', '/a/b', 'a(sv)', { signature: 'as', value: ['x', 'y'] }],
      [['MemoryMax', { signature: 't', value: 1n }]],
      ...[Uint8Array.of(1, 2, 3), ['a', ''], [['k', { signature: 'b', value: false }]], ['s', true]],
    ];
    assert.deepEqual(new DbusReader(new DbusWriter().values(signature, values).bytes, true).values(signature), values);
  });

  test('values of any length', () => {
    for (let length = 0; length < 1100; length += 1) {
      const values = ['x'.repeat(length), length, ['y'.repeat(length)]];
      assert.deepEqual(new DbusReader(new DbusWriter().values('suas', values).bytes, true).values('suas'), values);
    }
  });

  test('what is cut short or lies is refused', () => {
    const whole = new DbusWriter().values('a(sv)', [[['Slice', { signature: 's', value: 'a.slice' }]]]).bytes;
    for (let end = 0; end < whole.length; end += 1) assert.throws(() => new DbusReader(whole.subarray(0, end), true).values('a(sv)'), BadDbusData, String(end));
    assert.throws(() => new DbusReader(hex('ffffffff00000000'), true).values('as'), BadDbusData);
    assert.throws(() => new DbusReader(hex('0373730000'), true).values('v'), BadDbusData);
  });
});

describe('messages', () => {
  const call: DbusMessage = {
    ...{ type: 'call', serial: 7, path: '/org/freedesktop/systemd1', interface: 'org.freedesktop.systemd1.Manager' },
    ...{ member: 'StopUnit', destination: 'org.freedesktop.systemd1', signature: 'ss', body: ['a.slice', 'replace'] },
  };

  test('a message is read back, whole and with what follows it', () => {
    const bytes = encodeMessage(call);
    for (let end = 0; end < bytes.length; end += 1) assert.equal(decodeMessage(bytes.subarray(0, end)), null);
    const two = new Uint8Array([...bytes, ...bytes]);
    assert.deepEqual(decodeMessage(two), { message: call, size: bytes.length });
  });

  test('the first call of every connection, byte for byte', () => {
    const hello = encodeMessage({
      ...{ type: 'call', serial: 1, path: '/org/freedesktop/DBus', interface: 'org.freedesktop.DBus', member: 'Hello' },
      ...{ destination: 'org.freedesktop.DBus', body: [] },
    });
    const text = Buffer.from(hello).toString('latin1');
    assert.equal(text.slice(0, 16), 'l\x01\0\x01\0\0\0\0\x01\0\0\0\x6d\0\0\0');
    assert.equal(hello.length, 128);
    assert.ok(text.includes('\x03\x01s\0\x05\0\0\0Hello\0'));
  });

  test('either byte order', () => {
    const words = '42020001 00000004 00000009 0000000f 05017500 00000007 08016700 01750000 0000002a';
    const big = hex(words.replaceAll(' ', ''));
    assert.deepEqual(decodeMessage(big)?.message, { type: 'return', serial: 9, replySerial: 7, signature: 'u', body: [42] });
  });

  test('what is no message is refused', () => {
    const bytes = encodeMessage(call);
    assert.throws(() => decodeMessage(Uint8Array.from(bytes, (byte, index) => (index === 0 ? 0x78 : byte))), BadDbusData);
    assert.throws(() => decodeMessage(Uint8Array.from(bytes, (byte, index) => (index === 3 ? 2 : byte))), BadDbusData);
    assert.throws(() => decodeMessage(Uint8Array.from(bytes, (byte, index) => (index === 7 ? 0x7f : byte))), BadDbusData);
  });
});

test('the handshake', () => {
  assert.equal(authLines(0), '\0AUTH EXTERNAL 30\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n');
  assert.equal(authLines(1000).slice(0, 25), '\0AUTH EXTERNAL 31303030\r\n');
  assert.equal(authAnswer('OK 1234'), null);
  assert.equal(authAnswer('OK 1234\r\nAGREE_UNIX'), null);
  assert.deepEqual(authAnswer('OK 1234\r\nAGREE_UNIX_FD\r\nl'), { at: 24 });
  assert.deepEqual(authAnswer('REJECTED EXTERNAL\r\n'), { refused: 'REJECTED EXTERNAL' });
});
