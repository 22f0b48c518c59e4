import assert from 'node:assert/strict';
import { test } from 'node:test';
import { webSocketMessage, webSocketPong, WebSocketReader, type WebSocketEvent } from './websocket.ts';

const mask = Uint8Array.of(1, 2, 3, 4);
const [TEXT, PING] = [1, 9] as const;

/** A client's frame as it is on the wire; `isLast` false: more of the message follows. */
function frameOf(opcode: number, bytes: Uint8Array, isLast: boolean): Uint8Array {
  const whole = Uint8Array.from(webSocketMessage(bytes, mask));
  whole[0] = (isLast ? 0x80 : 0) | opcode;
  return whole;
}

function textOf(events: readonly WebSocketEvent[]): string[] {
  return events.map((event) => `${event.type} ${event.type === 'close' ? event.reason : Buffer.from(event.bytes).toString()}`);
}

test('messages come whole, in whatever pieces they were sent, with pings between', () => {
  const reader = new WebSocketReader('client');
  const bytes = Buffer.concat([
    frameOf(TEXT, Buffer.from('a'), false),
    frameOf(PING, Buffer.from('p'), true),
    frameOf(0, Buffer.from('bc'), true),
    frameOf(2, Buffer.from('x'.repeat(70_000)), true),
  ]);
  const events: WebSocketEvent[] = [];
  for (let at = 0; at < bytes.length; at += 1000) events.push(...reader.push(bytes.subarray(at, at + 1000)));
  assert.deepEqual(textOf(events), ['ping p', 'message abc', `message ${'x'.repeat(70_000)}`]);
});

test('a message of parts without an end is refused before it costs much, empty parts too', () => {
  for (const size of [0, 1]) {
    const reader = new WebSocketReader('client');
    const part = frameOf(0, new Uint8Array(size), false);
    const many = Buffer.concat(Array.from({ length: 1000 }, () => part));
    assert.throws(() => {
      for (let count = 0; count < 100; count += 1) reader.push(many);
    }, /sends a message without an end/);
  }
});

test('a ping is short and whole', () => {
  assert.throws(() => new WebSocketReader('client').push(frameOf(PING, new Uint8Array(126), true)), /control frame of 126 bytes/);
  assert.throws(() => new WebSocketReader('client').push(frameOf(PING, new Uint8Array(2), false)), /part of a control frame/);
  assert.equal(new WebSocketReader('client').push(frameOf(PING, new Uint8Array(125), true)).length, 1);
  assert.equal(webSocketPong(new Uint8Array(125), null).length, 127);
});

test('who must mask does, and who must not does not', () => {
  assert.throws(() => new WebSocketReader('client').push(webSocketMessage(Buffer.from('a'), null)), /does not mask/);
  assert.throws(() => new WebSocketReader('server').push(webSocketMessage(Buffer.from('a'), mask)), /masks/);
});
