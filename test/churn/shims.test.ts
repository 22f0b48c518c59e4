import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runtimesOwn, type LeftShim, type ShimEvidence } from './shims.ts';

const shim: LeftShim = { id: 'abc', startedAtMs: 100_000, hasDirectory: false, processes: [] };
const killed = (atMs: number) => [
  { what: 'kill -9 agent', atMs: 5_000 },
  { what: 'kill -9 containerd', atMs },
];
const evidence: ShimEvidence = { isListed: false, listedAtMs: null, kills: killed(100_300) };

test('a shim that was started as its containerd was killed, and that nobody was told of, is the runtime’s', () => {
  assert.equal(
    runtimesOwn(shim, evidence),
    'shim of abc: started 0.30 s before kill -9 containerd, never listed, not listed now, its directory gone, nothing runs in it',
  );
  assert.match(runtimesOwn(shim, { ...evidence, kills: killed(99_900) }) ?? '', /started 0\.10 s after kill -9 containerd/);
  const agentFirst = [{ what: 'kill -9 agent', atMs: 100_100 }, ...killed(112_000)];
  assert.match(runtimesOwn(shim, { ...evidence, kills: agentFirst }) ?? '', /started 12\.00 s before kill -9 containerd/);
  assert.match(
    runtimesOwn({ ...shim, hasDirectory: true }, { ...evidence, listedAtMs: 500_000, kills: killed(501_000) }) ?? '',
    /: listed until 1\.00 s before kill -9 containerd, not listed now, its directory there/,
  );
});

test('a sandbox that was half made when its containerd was killed is listed by the next one until it is removed', () => {
  const half = { ...evidence, listedAtMs: 140_000 };
  assert.match(runtimesOwn(shim, half) ?? '', /: started 0\.30 s before kill -9 containerd, listed for a while, not listed now/);
});

test('a shim that is listed, that was started long before any kill, or in which something runs is not', () => {
  assert.equal(runtimesOwn(shim, { ...evidence, isListed: true }), null);
  assert.equal(runtimesOwn(shim, { ...evidence, kills: killed(131_000) }), null);
  assert.equal(runtimesOwn(shim, { ...evidence, kills: killed(90_000) }), null);
  assert.equal(runtimesOwn(shim, { ...evidence, listedAtMs: 400_000, kills: killed(200_000) }), null, 'neither its making nor its end fell into a kill');
  assert.equal(runtimesOwn(shim, { ...evidence, kills: [] }), null);
  assert.equal(runtimesOwn({ ...shim, processes: ['sleep'] }, evidence), null);
});
