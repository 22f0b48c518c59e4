import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { sha256, utf8 } from './sha256.ts';

test('texts of every length around the ends of blocks, and of characters of one to four bytes', () => {
  const texts = [...Array.from({ length: 140 }, (_, length) => 'x'.repeat(length)), 'é', 'шаблон', '日本', 'a😀'.repeat(30)];
  for (const text of texts) assert.equal(Buffer.from(sha256(utf8(text))).toString('hex'), createHash('sha256').update(text).digest('hex'), text);
});
