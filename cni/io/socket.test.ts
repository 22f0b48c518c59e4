import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fallbackScript } from './install.ts';
import { answerBytes, readQuestion } from './socket.ts';

test('a question that is cut off is none', () => {
  const whole = Buffer.from('CNI_COMMAND=ADD\0CNI_ARGS=A=1;B=2\0\0{"name":"ü"}');
  assert.deepEqual(readQuestion(whole), { env: { CNI_COMMAND: 'ADD', CNI_ARGS: 'A=1;B=2' }, stdin: '{"name":"ü"}' });
  for (const length of [0, 5, 16, 33]) assert.equal(readQuestion(whole.subarray(0, length)), null, String(length));
  assert.deepEqual(readQuestion(Buffer.from('\0')), { env: {}, stdin: '' });
});

test('an answer says its length, so that the front knows a torn one', () => {
  assert.deepEqual([...answerBytes({ code: 1, text: 'ü' })], [0x31, 2, 0, 0, 0, 0xc3, 0xbc]);
});

test('a path with a quote does not end the stand-in’s script early', () => {
  assert.match(fallbackScript({ front: '', node: "/a'b/node", bundle: '/x/y.mjs', sys: '/s' }), /exec '\/a'\\''b\/node' .* '\/x\/y\.mjs' cni plugin/);
});
