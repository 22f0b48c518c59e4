import assert from 'node:assert/strict';
import { request } from 'node:http';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';

const problem = (await setProblem()) ?? (await kubectlProblem());
const ROUNDS = Number(process.env['NODELET_KILL_ROUNDS'] ?? 3);

interface PodRow {
  uid: string;
  restarts: number;
  ready: boolean;
  containerId: string;
}

async function pods(set: TestSet): Promise<Map<string, PodRow>> {
  const list = JSON.parse(await set.k(['get', 'pods', '-l', 'app=web', '-o', 'json'])) as {
    items: {
      metadata: { name: string; uid: string; deletionTimestamp?: string };
      status: { containerStatuses?: { restartCount: number; ready: boolean; containerID?: string }[] };
    }[];
  };
  return new Map(
    list.items
      .filter((pod) => pod.metadata.deletionTimestamp === undefined)
      .map((pod) => [
        pod.metadata.name,
        {
          uid: pod.metadata.uid,
          restarts: pod.status.containerStatuses?.[0]?.restartCount ?? 0,
          ready: pod.status.containerStatuses?.[0]?.ready ?? false,
          containerId: pod.status.containerStatuses?.[0]?.containerID ?? '',
        },
      ]),
  );
}

/** Null for an answer, else what went wrong. A lost packet is sent again after a second, so the bound is longer. */
function get(address: string): Promise<string | null> {
  return new Promise((resolve) => {
    const call = request({ host: address, port: 80, timeout: 5_000, agent: false }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode === 200 ? null : `status ${response.statusCode}`));
      response.on('error', (error) => resolve(error.message));
    });
    call.on('timeout', () => call.destroy(new Error('no answer in 5 s')));
    call.on('error', (error) => resolve(error.message));
    call.end();
  });
}

test(`kill -9 of agent, netfilter, control and containerd, each ${ROUNDS} times, with 10 pods`, { skip: problem ?? false, timeout: 1_200_000 }, async (t) => {
  await using set = await testSet('kill9', ['examples/web.yaml']);
  await set.k(['scale', 'deploy/web', '--replicas=10']);
  await eventually('10 pods ready', 60_000, async () => {
    const now = [...(await pods(set)).values()];
    return now.length === 10 && now.every((pod) => pod.ready) ? now : null;
  });
  const before = await pods(set);
  const address = await set.k(['get', 'service', 'web', '-o', 'jsonpath={.spec.clusterIP}']);
  for (const victim of ['agent', 'netfilter', 'control', 'containerd']) {
    await t.test(victim, async () => {
      for (let round = 1; round <= ROUNDS; round += 1) {
        const row = (await set.status()).processes.find((process) => process.name === victim);
        assert.ok(row?.pid, `${victim} runs`);
        const failures: string[] = [];
        const stop = new AbortController();
        const traffic = (async () => {
          while (!stop.signal.aborted) {
            const wrong = await get(address);
            if (wrong !== null) failures.push(wrong);
            await delay(20);
          }
        })();
        process.kill(row.pid, 'SIGKILL');
        await eventually(`${victim} is started again`, 20_000, async () => {
          const now = (await set.status()).processes.find((process) => process.name === victim);
          return now?.pid !== null && now !== undefined && now.pid !== row.pid ? now : null;
        });
        await delay(1_500);
        stop.abort();
        await traffic;
        assert.deepEqual(failures, [], `Service traffic around the death of ${victim}`);
      }
      await eventually('the same pods, the same containers, none restarted', 60_000, async () => {
        const now = await pods(set);
        assert.deepEqual(
          Object.fromEntries([...now].map(([name, pod]) => [name, pod.containerId])),
          Object.fromEntries([...before].map(([name, pod]) => [name, pod.containerId])),
        );
        return [...now.values()].every((pod) => pod.ready && pod.restarts === 0) ? true : null;
      });
      await eventually('the node is Ready', 60_000, async () =>
        (await set.k(['get', 'node', 'node-1', '-o', 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'])) === 'True' ? true : null,
      );
    });
  }
  await set.k(['scale', 'deploy/web', '--replicas=11']);
  await eventually('a new pod still starts', 60_000, async () => ([...(await pods(set)).values()].filter((pod) => pod.ready).length === 11 ? true : null));
});
