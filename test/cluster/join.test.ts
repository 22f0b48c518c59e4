import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { findAssets } from '../assets/find.ts';
import { kubectlProblem, setProblem, testSet } from '../set.ts';
import { clusterProblem } from './programs.ts';

const NAME = 'jointest';
const wants = { agents: ['ours'], proxies: [], containerd: '2.4' } as const;
const assets = await findAssets({ env: process.env });
const noKubeadm = assets.path('kubeadm') === null ? 'needs kubeadm (nodelet assets)' : null;
const skip = (await setProblem()) ?? (await kubectlProblem()) ?? (await clusterProblem(process.env, wants)) ?? noKubeadm ?? false;

test('kubeadm joins a bare node whose kubelet is ours', { skip, timeout: 300_000 }, async () => {
  await using set = await testSet(NAME, ['--agent', 'ours', '--images', 'basic'], ['cluster', 'up']);
  const answer = await set.nodelet(['cluster', 'join', '--json'], { timeoutMs: 200_000 });
  assert.equal(answer.code, 0, `${answer.err}\n${answer.out}`);
  const joined = JSON.parse(answer.out) as { output: string; kubeletVersion: string };
  assert.match(joined.output, /The kubelet is healthy after/);
  assert.match(joined.output, /This node has joined the cluster/);
  assert.match(joined.kubeletVersion, /^v1\.37\.\d+\+nodelet/);
  // It speaks by the certificate that was issued for it, in kubeadm's own places.
  const directory = (await set.status()).nodes[0]?.directory ?? '';
  assert.match(await readFile(`${directory}/etc/kubernetes/kubelet.conf`, 'utf8'), /client-certificate: \/var\/lib\/kubelet\/pki\/kubelet-client-current\.pem/);
  assert.deepEqual((await readdir(`${directory}/etc/kubernetes`)).toSorted(), ['kubelet.conf', 'pki']);
  await set.k(['apply', '-f', '-'], JSON.stringify(pod));
  await set.k(['wait', '--for=condition=Ready', 'pod/on-joined', '--timeout=60s']);
  await set.k(['delete', 'pod', 'on-joined', '--timeout=30s']);
});

const pod = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'on-joined' },
  spec: { nodeName: 'node-1', terminationGracePeriodSeconds: 1, containers: [{ name: 'main', image: 'registry.k8s.io/pause:3.10.2' }] },
};
