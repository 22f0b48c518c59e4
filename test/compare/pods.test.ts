import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import { Watcher } from './pods.ts';

interface Handlers {
  replaced(pods: readonly object[]): void;
  changed(type: string, pod: object): void;
}

/** An API whose watch says what the test says. */
function watched(): { api: KubeApi; handlers: Handlers } {
  let handlers: Handlers | null = null;
  const reflect = async (_ref: unknown, _options: unknown, given: Handlers, signal: AbortSignal): Promise<void> => {
    handlers = given;
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  };
  const say = (): Handlers => handlers ?? assert.fail('nobody watches');
  return {
    api: { reflect } as unknown as KubeApi,
    handlers: { replaced: (pods) => say().replaced(pods), changed: (type, pod) => say().changed(type, pod) },
  };
}

const pod = (uid: string, status = 'True'): object => ({ metadata: { uid }, status: { conditions: [{ type: 'Ready', status }] } });
const signal = new AbortController().signal;

test('a pod is ready once it says so, and gone when it is deleted', async () => {
  const { api, handlers } = watched();
  await using watcher = new Watcher(api);
  handlers.changed('ADDED', pod('a', 'False'));
  await assert.rejects(watcher.ready(['a'], 0, signal), { code: 'deadline' });
  handlers.changed('MODIFIED', pod('a'));
  assert.equal((await watcher.ready(['a'], 0, signal)).length, 1);
  handlers.changed('DELETED', pod('a'));
  assert.equal((await watcher.gone(['a'], 0, signal)).length, 1);
});

test('pods that went while the watch was broken are gone by the list that follows', async () => {
  const { api, handlers } = watched();
  await using watcher = new Watcher(api);
  handlers.replaced([pod('a'), pod('b', 'False')]);
  handlers.replaced([pod('b')]);
  assert.equal((await watcher.gone(['a'], 0, signal)).length, 1);
  assert.equal((await watcher.ready(['b'], 0, signal)).length, 1);
  await assert.rejects(watcher.gone(['b'], 0, signal), { code: 'deadline' });
});
