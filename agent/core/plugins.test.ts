import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dueRegistrations, failed, highestCsiVersion, isOlder } from './plugins.ts';

test('a socket is registered once, again when it is another one, and not while its failure is fresh', () => {
  const known = new Map([
    ['/a', { identity: '1', registered: true, nextMs: 0, waitMs: 0 }],
    ['/b', { identity: '2', registered: true, nextMs: 0, waitMs: 0 }],
    ['/c', { identity: '3', registered: true, nextMs: 0, waitMs: 0 }],
    ['/d', failed(undefined, '4', 1000)],
  ]);
  const sockets = new Map([
    ['/a', '1'],
    ['/b', 'made anew'],
    ['/d', '4'],
    ['/e', '5'],
  ]);
  assert.deepEqual(dueRegistrations(known, sockets, 1499), {
    gone: ['/b', '/c'],
    due: [
      { path: '/b', identity: 'made anew' },
      { path: '/e', identity: '5' },
    ],
  });
  assert.deepEqual(
    dueRegistrations(known, sockets, 1500).due.map(({ path }) => path),
    ['/b', '/d', '/e'],
  );
});

test('the pauses between failures double to two minutes', () => {
  let state = failed(undefined, '1', 0);
  const waits = [state.waitMs];
  for (let count = 0; count < 9; count += 1) {
    state = failed(state, '1', 0);
    waits.push(state.waitMs);
  }
  assert.deepEqual(waits, [500, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 122000, 122000]);
});

test('of the versions of a CSI driver the newest 1.x counts', () => {
  assert.deepEqual(highestCsiVersion(['0.3.0', '1.0.0', '1.10.0', '1.9.0', '2.0.0']), { ok: true, version: '1.10.0' });
  assert.equal(highestCsiVersion([]).ok, false);
  assert.equal(highestCsiVersion(['0.3.0', '2.0.0', 'x']).ok, false);
  assert.equal(isOlder('1.9.0', '1.10.0'), true);
  assert.equal(isOlder('1.0', '1.0.0'), false);
});
