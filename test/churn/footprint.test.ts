import assert from 'node:assert/strict';
import { test } from 'node:test';
import { added, figuresOf, growth } from './footprint.ts';

test('what is there more often than before is left', () => {
  assert.deepEqual(added({ mounts: ['/a', '/b'], netns: [] }, { mounts: ['/b', '/a', '/a'], netns: ['x'], cgroups: [] }), { mounts: ['/a'], netns: ['x'] });
  assert.deepEqual(added({ mounts: ['/a'] }, { mounts: [] }), {});
});

test('figures of the agent, and what of them grew', () => {
  const text = (timers: number, rss: number): string =>
    `process_resident_memory_bytes ${rss}\nprocess_open_fds 40\nnodejs_heap_size_used_bytes 1e7\nnodejs_active_resources{type="Timeout"} ${timers}\nnodejs_active_resources{type="TCPSocketWrap"} 9\n`;
  assert.deepEqual(figuresOf(text(12, 100)), { rssBytes: 100, descriptors: 40, heapBytes: 10_000_000, timers: 12 });
  assert.deepEqual(growth(figuresOf(text(12, 100 << 20)), figuresOf(text(18, 120 << 20))), []);
  assert.deepEqual(growth(figuresOf(text(12, 100 << 20)), figuresOf(text(60, 200 << 20))), [`rssBytes: ${100 << 20} -> ${200 << 20}`, 'timers: 12 -> 60']);
});
