import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messageOf, OpError } from '../../base/errors.ts';
import type { PodSandbox } from '../../proto/cri/types.ts';
import type { Cri } from './cri.ts';
import { createFactsReader, listingOf, uidLabel } from './facts.ts';

const sandbox = (id: string, labels: Record<string, string>): PodSandbox => ({
  id,
  metadata: { name: 'p', namespace: 'ns', uid: `made-by-${id}`, attempt: 0 },
  state: 'SANDBOX_READY',
  createdAt: '1',
  labels,
  annotations: {},
  runtimeHandler: '',
});

test('a sandbox that no kubelet made is no pod of this node', () => {
  const { listing, facts } = listingOf([sandbox('tool', {}), sandbox('ours', { [uidLabel]: 'u1' })], []);
  assert.deepEqual([...listing.keys()], ['u1']);
  assert.deepEqual(
    facts.get('u1')?.sandboxes.map(({ id }) => id),
    ['ours'],
  );
  assert.equal(facts.size, 1);
});

test('a runtime that does not tell of what it lists is told, one that is away is not', async () => {
  let failure: Error = new OpError('failed', 'look', 'no such state');
  const runtime = {
    listPodSandbox: async () => ({ items: [sandbox('s1', { [uidLabel]: 'u1' })] }),
    listContainers: async () => ({ containers: [] }),
    podSandboxStatus: async () => {
      throw failure;
    },
  };
  const told: string[] = [];
  const facts = createFactsReader({
    cri: { runtime } as unknown as Cri,
    lastWords: { of: async () => '' },
    timeoutMs: 1_000,
    onUnreadable: (uid, error) => told.push(`${uid} ${messageOf(error)}`),
  });
  const { signal } = new AbortController();
  await assert.rejects(facts.read('u1', signal), /no such state/);
  assert.deepEqual(told, ['u1 look: no such state']);
  failure = new OpError('unavailable', 'look', 'nobody there');
  await assert.rejects(facts.read('u1', signal), /nobody there/);
  failure = new OpError('not-found', 'look', 'gone');
  assert.deepEqual((await facts.read('u1', signal)).sandboxes, []);
  assert.equal(told.length, 1);
});
