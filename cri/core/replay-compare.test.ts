import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compareAnswers, isAhead, isStillToCome, statusName } from './replay-compare.ts';

test('ids, times, places and addresses are no differences; states, codes and labels are', () => {
  const recorded = {
    status: {
      id: 'a',
      state: 'SANDBOX_READY',
      createdAt: '1',
      network: { ip: '10.0.0.1' },
      labels: { app: 'web' },
      metadata: { name: 'web', namespace: 'default', attempt: 1 },
    },
  };
  const seen = {
    status: {
      id: 'b',
      state: 'SANDBOX_READY',
      createdAt: '2',
      network: { ip: '10.0.0.9' },
      labels: { app: 'web', 'nodelet.dev/replay': 'r' },
      metadata: { name: 'web', namespace: 'again', attempt: 1 },
    },
  };
  assert.deepEqual(compareAnswers('PodSandboxStatus', recorded, seen), []);
  const other = { status: { ...seen.status, state: 'SANDBOX_NOTREADY', labels: {} } };
  assert.deepEqual(
    compareAnswers('PodSandboxStatus', recorded, other).map(({ path }) => path),
    ['status.labels', 'status.state'],
  );
  assert.deepEqual(compareAnswers('ListContainers', { containers: [] }, { containers: [{}] }), [], 'lists are compared by their status alone');
});

test('a patience that ended is a deadline', () => {
  assert.equal(statusName(null), 'DeadlineExceeded');
  assert.equal(statusName({ name: 'NotFound' }), 'NotFound');
});

for (const [method, recorded, seen, come, ahead] of [
  ['ContainerStatus', 'CONTAINER_EXITED', 'CONTAINER_RUNNING', true, false],
  ['ContainerStatus', 'CONTAINER_RUNNING', 'CONTAINER_EXITED', false, true],
  ['ContainerStatus', 'CONTAINER_EXITED', 'CONTAINER_EXITED', false, false],
  ['PodSandboxStatus', 'SANDBOX_NOTREADY', '', true, false],
  ['PodSandboxStatus', '', 'SANDBOX_NOTREADY', false, false],
] as const)
  test(`${method} recorded ${recorded || 'ready'}, seen ${seen || 'ready'}`, () =>
    assert.deepEqual([isStillToCome(method, recorded, seen), isAhead(method, recorded, seen)], [come, ahead]));
