import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { createCriClient, RpcError, type RuntimeCall, type Transport } from '../../cri/mod.ts';
import { withListStreams } from './list-streams.ts';

/** A runtime that knows these streams, each in two parts, and every list as a whole. */
function runtimeOf(knows: (method: string) => boolean): { transport: Transport; asked: string[] } {
  const asked: string[] = [];
  const parts: Record<string, string> = {
    StreamPodSandboxes: 'podSandboxes',
    StreamContainers: 'containers',
    StreamContainerStats: 'containerStats',
    StreamPodSandboxStats: 'podSandboxStats',
    StreamPodSandboxMetrics: 'podSandboxMetrics',
    StreamImages: 'images',
  };
  const transport: Transport = {
    call: async ({ method }: RuntimeCall) => {
      asked.push(method);
      return { items: ['whole'], containers: ['whole'], stats: ['whole'], podMetrics: ['whole'], images: ['whole'] };
    },
    async *stream({ method, request }: RuntimeCall) {
      asked.push(method);
      if (!knows(method)) throw new RpcError('Unimplemented', method, 'unknown method');
      if ('filter' in request && request.filter === 'broken') throw new RpcError('Unavailable', method, 'gone');
      yield { [parts[method] ?? '']: ['a', 'b'] };
      yield { [parts[method] ?? '']: ['c'] };
    },
    [Symbol.asyncDispose]: async () => undefined,
  };
  return { transport, asked };
}

test('lists come in parts and look like lists', async () => {
  const { transport, asked } = runtimeOf(() => true);
  await using client = createCriClient(withListStreams(transport, silentLog));
  const all = ['a', 'b', 'c'];
  assert.deepEqual((await client.runtime.listPodSandbox({})).items, all);
  assert.deepEqual((await client.runtime.listContainers({})).containers, all);
  assert.deepEqual((await client.runtime.listContainerStats({})).stats, all);
  assert.deepEqual((await client.runtime.listPodSandboxStats({})).stats, all);
  assert.deepEqual((await client.runtime.listPodSandboxMetrics({})).podMetrics, all);
  assert.deepEqual((await client.images.listImages({})).images, all);
  assert.ok(asked.every((method) => method.startsWith('Stream')));
});

test('a runtime that knows one of them not is asked for whole lists from then on, of that service alone', async () => {
  const { transport, asked } = runtimeOf((method) => method !== 'StreamContainers');
  await using client = createCriClient(withListStreams(transport, silentLog));
  assert.deepEqual((await client.runtime.listContainers({})).containers, ['whole']);
  assert.deepEqual((await client.runtime.listPodSandbox({})).items, ['whole']);
  assert.deepEqual((await client.images.listImages({})).images, ['a', 'b', 'c']);
  assert.deepEqual(asked, ['StreamContainers', 'ListContainers', 'ListPodSandbox', 'StreamImages']);
});

test('any other failure is one: no half list is taken for a whole one', async () => {
  const { transport } = runtimeOf(() => true);
  await using client = createCriClient(withListStreams(transport, silentLog));
  await assert.rejects(client.runtime.listContainers({ filter: 'broken' as never }), /gone/);
});
