import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { execa } from 'execa';
import { watchLeaks } from '../leaks.ts';
import { eventually, kubectlProblem, setProblem, testSet } from '../set.ts';
import { clusterProblem } from './programs.ts';

const NAME = 'clustertest';
const wants = { agents: ['upstream', 'ours'], proxies: [], containerd: '2.4' } as const;
const skip = (await setProblem()) ?? (await kubectlProblem()) ?? (await clusterProblem(process.env, wants)) ?? false;

/** What of a cluster is on this machine: processes, cgroups, links, routes, files. */
async function remains(hostLink: string): Promise<string[]> {
  const processes = readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .flatMap((pid) => {
      try {
        const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
        return line.includes(`/${NAME}/`) && !line.includes('node --test') ? [`process ${line}`] : [];
      } catch {
        return [];
      }
    });
  const list = async (program: string, args: readonly string[]): Promise<string[]> =>
    (await execa(program, [...args], { reject: false })).stdout.split('\n').filter((line) => line !== '');
  return [
    ...processes,
    ...(await list('find', ['/sys/fs/cgroup', '-type', 'd', '-name', `nodelet-${NAME}`])),
    ...(await list('ip', ['-o', 'link', 'show', hostLink])),
    ...(await list('ip', ['route', 'show', 'dev', hostLink])),
    ...(await list('find', [process.env['NODELET_STATE'] ?? '/var/lib/nodelet', '-maxdepth', '1', '-name', `${NAME}*`])),
    // What upstream's programs make on a machine unless they are told of another place.
    ...['/usr/libexec/kubernetes', '/opt/containerd'].filter((path) => existsSync(path)),
  ];
}

const pod = (node: string): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `on-${node}` },
    spec: { nodeName: node, terminationGracePeriodSeconds: 1, containers: [{ name: 'main', image: 'registry.k8s.io/pause:3.10.2' }] },
  });

test('a real control plane has a node with upstream’s kubelet and one with ours', { skip, timeout: 240_000 }, async () => {
  await using _leaks = watchLeaks({ owns: NAME });
  const before = await remains('nodelet-none');
  let hostLink = '';
  {
    await using set = await testSet(NAME, ['--agent', 'upstream,ours', '--images', 'basic'], ['cluster', 'up']);
    const versions = (await set.k(['get', 'nodes', '-o', 'jsonpath={.items[*].status.nodeInfo.kubeletVersion}'])).split(' ');
    assert.equal(versions.length, 2);
    assert.match(versions[0] ?? '', /^v1\.37\.\d+$/, 'node-1 has upstream’s kubelet');
    assert.match(versions[1] ?? '', /^v1\.37\.\d+\+nodelet/, 'node-2 has ours');
    for (const node of ['node-1', 'node-2']) await set.k(['apply', '-f', '-'], pod(node));
    for (const node of ['node-1', 'node-2']) await set.k(['wait', '--for=condition=Ready', `pod/on-${node}`, '--timeout=60s']);
    const requestors = await set.k(['get', 'csr', '-o', 'jsonpath={.items[*].spec.username}']);
    assert.match(requestors, /^system:bootstrap:\w{6} system:bootstrap:\w{6}$/, 'both joined by the bootstrap token');
    const { processes } = await set.status();
    assert.deepEqual(
      processes.filter((one) => one.place === 'node-1').map((one) => one.name),
      ['init', 'containerd', 'kubelet', 'kube-proxy'],
    );
    // The controller manager gives up after ten seconds without an API server, which a busy machine needs.
    const again = processes.filter((one) => one.restarts > 0 && one.place !== 'hub').map((one) => `${one.place} ${one.name}`);
    assert.deepEqual(again, [], 'no program of a node had to be started again');
    await set.k(['delete', 'pod', 'on-node-1', 'on-node-2', '--wait=false']);
    await eventually('the pods are gone', 30_000, async () => ((await set.k(['get', 'pods', '-o', 'name'])) === '' ? true : null));
    hostLink = (await execa('ip', ['-o', 'route', 'get', new URL((await set.status()).server).hostname])).stdout.replace(/^.* dev (\S+) .*$/s, '$1');
    assert.match(hostLink, /^nodelet\d+$/);
  }
  assert.deepEqual(await remains(hostLink), before);
});
