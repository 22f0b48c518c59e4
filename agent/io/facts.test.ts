import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PodSandbox } from '../../proto/cri/types.ts';
import { listingOf, uidLabel } from './facts.ts';

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
