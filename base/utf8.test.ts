import assert from 'node:assert/strict';
import { test } from 'node:test';
import { utf8Bytes, utf8Text } from './utf8.ts';

const texts = ['', 'a', 'grüße 🎈 €', '\u0000\u007f\u0080\u07ff\u0800\uffff\u{10000}\u{10ffff}', 'x'.repeat(10_000), `${'é'.repeat(5000)}end`];

test('texts become the bytes that Node makes of them, and come back', () => {
  for (const text of texts) {
    assert.deepEqual(Buffer.from(utf8Bytes(text)), Buffer.from(text));
    assert.equal(utf8Text(Buffer.from(text)), text);
  }
  assert.deepEqual(Buffer.from(utf8Bytes('a\ud800b\udc00')), Buffer.from('a\ud800b\udc00'));
});

test('what is no UTF-8 is marked, byte for byte', () => {
  assert.equal(utf8Text(Uint8Array.of(0x61, 0xff, 0x62, 0xc3)), 'a\ufffdb\ufffd');
  assert.equal(utf8Text(Uint8Array.of(0xf0, 0x9f, 0x8e)), '\ufffd\ufffd\ufffd');
});
