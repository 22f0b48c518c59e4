import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, kubectlProblem, setProblem, testSet } from '../set.ts';

const problem = (await setProblem()) ?? (await kubectlProblem());

test('kill -9 of the hub: starting one node brings it back for all of them', { skip: problem ?? false, timeout: 300_000 }, async () => {
  await using set = await testSet('hub', ['--nodes', '2']);
  const before = (await set.status()).processes.filter((row) => row.name === 'init');
  const hub = before.find((row) => row.place === 'hub')?.pid;
  assert.ok(hub, 'the hub runs');
  process.kill(hub, 'SIGKILL');
  // What is being killed still has a name for a moment.
  await eventually('the hub is gone', 10_000, async () => ((await set.status()).processes.some(({ pid }) => pid === hub) ? null : true));
  const started = await set.nodelet(['node', 'start', 'node-1']);
  assert.equal(started.code, 0, started.err);
  for (const node of ['node-1', 'node-2']) {
    const health = await eventually(`the API server reaches ${node}`, 30_000, async () => {
      const answer = await set.kubectl(['get', '--raw', `/api/v1/nodes/${node}/proxy/healthz`]);
      return answer.code === 0 ? answer.out : null;
    });
    assert.equal(health, 'ok');
    const after = (await set.status()).processes.find((row) => row.place === node && row.name === 'init');
    assert.equal(after?.pid, before.find((row) => row.place === node)?.pid, `${node} ran on`);
  }
});
