import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { readYaml } from '../../base/yaml.ts';
import { hostPidOf } from './compare.ts';
import { clusterConfig } from './up.ts';

const options = { name: 'k', workers: 2, agent: 'ours', image: null, release: '/releases/nodelet', folder: '/nonexistent' } as const;

test('kind’s configuration: a control plane of upstream’s, and workers whose kubelet is the release', async () => {
  const config = (await readYaml(await clusterConfig(options), 'kind.yaml')) as { kind: string; nodes: { role: string; extraMounts?: object[] }[] };
  assert.equal(config.kind, 'Cluster');
  assert.deepEqual(
    config.nodes.map(({ role }) => role),
    ['control-plane', 'worker', 'worker'],
  );
  assert.equal(config.nodes[0]?.extraMounts, undefined);
  assert.deepEqual(config.nodes[1]?.extraMounts, [{ hostPath: '/releases/nodelet', containerPath: '/usr/bin/kubelet', readOnly: true }]);
});

test('kind’s configuration with upstream’s workers mounts nothing', async () => {
  assert.doesNotMatch(await clusterConfig({ ...options, agent: 'upstream' }), /extraMounts/);
});

test('a node’s process is found by its number there', async (t) => {
  if (process.geteuid?.() !== 0) {
    t.skip('needs root for a namespace of processes');
    return;
  }
  const child = spawn('unshare', ['--pid', '--fork', '--mount-proc', '--kill-child', 'sh', '-c', 'sleep 60 & wait'], { stdio: 'ignore' });
  const children = async (pid: number): Promise<number[]> =>
    (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).split(' ').filter(Boolean).map(Number);
  try {
    let init: number | undefined;
    let sleeper: number | undefined;
    for (let tries = 0; sleeper === undefined && tries < 500; tries += 1) {
      await delay(10);
      [init] = await children(child.pid ?? 0);
      if (init !== undefined) [sleeper] = await children(init).catch(() => []);
    }
    assert.ok(init !== undefined && sleeper !== undefined, 'the namespace has two processes');
    assert.equal(await hostPidOf(init, 1), init);
    assert.equal(await hostPidOf(init, 2), sleeper);
    await assert.rejects(hostPidOf(init, 4_000_000), /none of this machine’s is 4000000 there/);
  } finally {
    child.kill('SIGKILL');
    await once(child, 'close');
  }
});
