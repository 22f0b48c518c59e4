import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createCriClient, RpcError, type Transport } from '../../cri/mod.ts';
import { ChurnNode } from './node.ts';
import { NAMESPACE } from './workload.ts';

test('whether a container had begun is not guessed when the runtime goes away during the look, and assumed of one that is gone', async () => {
  const labels = { 'io.kubernetes.pod.namespace': NAMESPACE };
  const answers: (object | RpcError)[] = [];
  const transport: Transport = {
    call: async ({ method }) => {
      if (method === 'ListContainers')
        return Promise.resolve({ containers: ['a', 'b'].map((id) => ({ id, state: 'CONTAINER_EXITED', createdAt: '0', labels })) });
      const answer = method === 'ContainerStatus' ? answers.shift() : { items: [] };
      if (answer === undefined || answer instanceof RpcError) throw answer ?? new Error('asked again');
      return answer;
    },
    stream: () => assert.fail(),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  await using node = new ChurnNode({ name: 'n', initPid: process.pid, cgroup: '/' });
  Object.assign(node, { cri: createCriClient(transport) });
  const ran = async (): Promise<boolean[] | undefined> => (await node.listing())?.containers.map((each) => each.ran);
  answers.push(new RpcError('Unavailable', 'ContainerStatus', 'away'));
  assert.equal(await ran(), undefined);
  answers.push({ status: { id: 'a', state: 'CONTAINER_EXITED', startedAt: '0' } }, new RpcError('NotFound', 'ContainerStatus', 'gone'));
  assert.deepEqual(await ran(), [false, true]);
  assert.deepEqual(await ran(), [false, true], 'what has ended does not change');
});
