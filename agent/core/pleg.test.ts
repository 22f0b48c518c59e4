import assert from 'node:assert/strict';
import { test } from 'node:test';
import { changedUids, type Listing } from './pleg.ts';

const listing = (...states: [string, string][]): Listing => new Map([['u', { uid: 'u', namespace: 'n', name: 'p', states: new Map(states) }]]);
const sandbox: [string, string] = ['s', 'SANDBOX_READY'];

test('what comes, goes or changes is news; what is made and does not run yet is none, nor when it goes', () => {
  assert.deepEqual(changedUids(new Map(), listing(sandbox)), ['u']);
  assert.deepEqual(changedUids(listing(sandbox), new Map()), ['u']);
  assert.deepEqual(changedUids(listing(sandbox), listing(sandbox)), []);
  assert.deepEqual(changedUids(listing(sandbox), listing(sandbox, ['c', 'CONTAINER_RUNNING'])), ['u']);
  assert.deepEqual(changedUids(listing(sandbox), listing(sandbox, ['c', 'CONTAINER_CREATED'])), []);
  assert.deepEqual(changedUids(listing(sandbox, ['c', 'CONTAINER_CREATED']), listing(sandbox)), []);
  assert.deepEqual(changedUids(listing(sandbox, ['c', 'CONTAINER_CREATED']), listing(sandbox, ['c', 'CONTAINER_RUNNING'])), ['u']);
  assert.deepEqual(changedUids(listing(sandbox, ['c', 'CONTAINER_EXITED']), listing(sandbox)), ['u']);
});
