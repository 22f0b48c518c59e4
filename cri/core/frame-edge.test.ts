import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FrameEdge } from './frame-edge.ts';

function frame(type: number, length: number): number[] {
  return [0, length >> 8, length & 255, type, 0, 0, 0, 0, 1, ...Array.from({ length }, () => 0xff)];
}

test('stands between frames where they end, whatever pieces they come in', () => {
  const frames = [frame(4, 6), frame(1, 0), frame(0, 300), frame(6, 8)];
  const ends = frames.map((_one, at) => frames.slice(0, at + 1).reduce((sum, { length }) => sum + length, 0));
  const bytes = Uint8Array.from(frames.flat());
  for (const step of [1, 2, 7, 16, 400]) {
    const edge = new FrameEdge();
    assert.equal(edge.isBetween, false);
    for (let at = 0; at < bytes.length; at += step) {
      edge.feed(bytes.subarray(at, at + step));
      assert.equal(edge.isBetween, ends.includes(Math.min(at + step, bytes.length)), `${at} in steps of ${step}`);
    }
  }
});

test('another protocol has no such place', () => {
  const edge = new FrameEdge();
  edge.feed(Buffer.from('HTTP/1.1 200 OK\r\n\r\n'));
  assert.equal(edge.isBetween, false);
});
