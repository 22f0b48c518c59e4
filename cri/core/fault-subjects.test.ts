import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decodeMessage } from '../io/messages.ts';
import { SubjectBook } from './fault-subjects.ts';
import { withoutItems } from './wire-items.ts';

const metadata = { name: 'web', namespace: 'default', uid: 'u', attempt: 0 };

test('ids go by what made them', () => {
  const book = new SubjectBook();
  assert.equal(book.lacks({ podSandboxId: 's1' }), true);
  book.learn('RunPodSandbox', { config: { metadata } }, { podSandboxId: 's1' });
  assert.equal(book.lacks({ podSandboxId: 's1' }), false);
  assert.equal(book.lacks({ filter: null }), false);
  const create = { podSandboxId: 's1', config: { metadata: { name: 'app' }, image: { image: 'busybox:1' } } };
  assert.deepEqual(book.of('CreateContainer', create), { pod: 'default/web', container: 'app', images: ['busybox:1'] });
  book.learn('CreateContainer', create, { containerId: 'c1abcdef' });
  assert.deepEqual(book.of('StopContainer', { containerId: 'c1abc' }), { pod: 'default/web', container: 'app', images: ['busybox:1'] });
  assert.deepEqual(book.of('StopPodSandbox', { podSandboxId: 's1' }).pod, 'default/web');
  assert.deepEqual(book.of('PullImage', { image: { image: 'a', userSpecifiedImage: 'b' }, sandboxConfig: { metadata } }), {
    pod: 'default/web',
    container: '',
    images: ['a', 'b'],
  });
});

test('items of lists and events say what they are about', () => {
  const book = new SubjectBook();
  book.learn('ListPodSandbox', {}, { items: [{ id: 's1', metadata }] });
  const list = {
    containers: [
      { id: 'c1', podSandboxId: 's1', metadata: { name: 'app' }, image: { image: 'x' }, imageRef: 'sha' },
      { id: 'c2', podSandboxId: 'other', metadata: { name: 'side' }, labels: { 'io.kubernetes.pod.name': 'p', 'io.kubernetes.pod.namespace': 'n' } },
    ],
  };
  assert.deepEqual(book.items('ListContainers', list), [
    { pod: 'default/web', container: 'app', images: ['x', 'sha'] },
    { pod: 'n/p', container: 'side', images: [] },
  ]);
  book.learn('ListContainers', {}, list);
  assert.equal(book.items('ListContainerStats', { stats: [{ attributes: { id: 'c1', metadata: { name: 'app' } } }] })[0]?.pod, 'default/web');
  assert.equal(book.items('ListPodSandboxMetrics', { podMetrics: [{ podSandboxId: 's1' }] })[0]?.pod, 'default/web');
  assert.deepEqual(book.items('ListImages', { images: [{ id: 'i', repoTags: ['a:1'], repoDigests: null }] })[0]?.images, ['a:1', 'i']);
  assert.deepEqual(book.event({ containerId: 'c1', containerEventType: 'CONTAINER_STOPPED_EVENT' }), {
    pod: 'default/web',
    container: 'app',
    images: ['x', 'sha'],
    type: 'stopped',
  });
  assert.equal(book.event({ containerId: 'z', podSandboxStatus: { metadata }, containersStatuses: [{ id: 'z', metadata: { name: 'n' } }] }).container, 'n');
});

test('items leave a list and nothing else of it changes', () => {
  // items a, b, c; between them field 2 (a number), field 99 (bytes), field 3 (fixed 32), field 4 (fixed 64).
  const item = (id: string): number[] => [0x0a, id.length + 2, 0x0a, id.length, ...Buffer.from(id)];
  const rest = [0x10, 0xac, 0x02, 0x9a, 0x06, 1, 7, 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
  const message = Uint8Array.from([...item('aa'), ...rest, ...item('b'), ...item('c')]);
  assert.deepEqual([...(withoutItems(message, new Set([1])) ?? [])], [...item('aa'), ...rest, ...item('c')]);
  assert.deepEqual(withoutItems(message, new Set()), message);
  assert.equal(withoutItems(message.subarray(0, 3), new Set([0])), null);
  assert.equal(withoutItems(Uint8Array.of(0x0b), new Set()), null);
  const left = decodeMessage('/runtime.v1.RuntimeService/ListPodSandbox', 'server', withoutItems(message, new Set([0, 2])) ?? new Uint8Array(0));
  assert.deepEqual((left.json as { items: unknown[] }).items, [{ id: 'b' }]);
});
