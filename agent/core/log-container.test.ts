import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerStatus } from '../../proto/kube/types.ts';
import { logContainerId } from './log-container.ts';

const choose = (status: Partial<ContainerStatus>, previous = false) => {
  const chosen = logContainerId('p', { containerStatuses: [{ name: 'c', image: 'i', imageID: '', ready: false, restartCount: 0, ...status }] }, 'c', previous);
  return typeof chosen === 'string' ? chosen : chosen.id;
};
const ended = (containerID: string) => ({ terminated: { exitCode: 1, containerID } });

test('the running container, or the one that ended last', () => {
  assert.equal(choose({ state: { running: {} }, containerID: 'containerd://a' }), 'a');
  assert.equal(choose({ state: ended('containerd://b') }), 'b');
  assert.equal(choose({ state: ended(''), lastState: ended('containerd://c') }), 'c');
  assert.equal(choose({ state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: ended('containerd://d') }), 'd');
});

test('previous is the one before', () => {
  assert.equal(choose({ state: { running: {} }, containerID: 'containerd://a', lastState: ended('containerd://z') }, true), 'z');
  assert.equal(choose({ state: { running: {} }, containerID: 'containerd://a' }, true), 'previous terminated container "c" in pod "p" not found');
});

test('why there is no log', () => {
  assert.equal(choose({ state: { waiting: { reason: 'ContainerCreating' } } }), 'container "c" in pod "p" is waiting to start: ContainerCreating');
  assert.equal(choose({ state: { waiting: { reason: 'ErrImagePull' } } }), 'container "c" in pod "p" is waiting to start: image can\'t be pulled');
  assert.equal(
    choose({ state: { waiting: { reason: 'ImagePullBackOff' } } }),
    'container "c" in pod "p" is waiting to start: trying and failing to pull image',
  );
  assert.equal(choose({ state: ended('') }), 'container "c" in pod "p" is terminated');
  assert.equal(choose({}), 'container "c" in pod "p" is waiting to start - no logs yet');
  assert.equal(logContainerId('p', {}, 'x', false), 'container "x" in pod "p" is not available');
});
