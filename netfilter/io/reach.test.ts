import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { reachApi } from './reach.ts';

test('the API server is found as kube-proxy finds it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'reach-'));
  try {
    const file = join(folder, 'kubeconfig');
    const kubeconfig = {
      clusters: [{ name: 'c', cluster: { server: 'https://192.0.2.1:6443' } }],
      users: [{ name: 'u', user: { token: 't' } }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    };
    await writeFile(file, JSON.stringify(kubeconfig));
    assert.equal((await reachApi(file, '', {})).server, 'https://192.0.2.1:6443');
    const moved = await reachApi(file, 'https://192.0.2.2:6443', {});
    assert.deepEqual([moved.server, moved.token], ['https://192.0.2.2:6443', 't']);
    assert.equal((await reachApi('', 'http://127.0.0.1:8001/', {})).server, 'http://127.0.0.1:8001');
    const pod = await reachApi('', '', { KUBERNETES_SERVICE_HOST: 'fd00:96::1', KUBERNETES_SERVICE_PORT: '443' });
    assert.equal(pod.server, 'https://[fd00:96::1]:443');
    assert.equal(pod.tokenFile, '/var/run/secrets/kubernetes.io/serviceaccount/token');
    await assert.rejects(reachApi('', '', {}), /neither a kubeconfig nor the address/);
  } finally {
    await rm(folder, { recursive: true });
  }
});
