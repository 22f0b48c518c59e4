import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { cadvisorMetrics, type CadvisorFacts } from '../../agent/core/cadvisor-text.ts';
import type { GroupFacts } from '../../agent/core/cadvisor-groups.ts';
import { cgroupUsage, cgroupUsageFiles } from '../../agent/core/cgroup-usage.ts';
import { countsOf } from '../../agent/core/file-systems.ts';
import type { MachineFacts } from '../../agent/core/node-status.ts';
import { resourceMetrics, summaryOf, type ContainerStatsFacts, type NodeStatsFacts, type PodStatsFacts, type UsageFacts } from '../../agent/core/stats.ts';
import { metricShapes, missingShapes, summaryPaths } from './upstream/page-shapes.ts';
import { PAGES, PAGES_NAMESPACE, pagePods } from './upstream/pages.ts';

/*
 * Names, types, labels and fields of what upstream's kubelet tells of three pods' use (recorded by `nodelet contract pages`,
 * which also holds a node of ours to them), and what ours makes of facts about the same pods.
 */

const atMs = 1_700_000_000_000;
const link = { name: 'eth0', rxBytes: 1, rxPackets: 1, rxErrors: 0, rxDropped: 0, txBytes: 1, txPackets: 1, txErrors: 0, txDropped: 0 };
const usage = (limited: boolean): GroupFacts['usage'] => {
  const files: Record<string, string> = {
    'cpu.stat': 'nr_periods 1\nnr_throttled 0\nthrottled_time 0\n',
    'cpu.cfs_quota_us': limited ? '10000\n' : '-1\n',
    'memory.stat':
      'total_cache 1\ntotal_rss 1\ntotal_mapped_file 1\ntotal_swap 0\npgfault 1\npgmajfault 0\ntotal_pgfault 1\ntotal_pgmajfault 0\ntotal_active_file 1\ntotal_inactive_file 1\n',
  };
  const one = cgroupUsage(
    1,
    cgroupUsageFiles(1, [{ controllers: ['cpuacct', 'cpu', 'memory', 'pids'] }], ['/g']).map(
      (path) =>
        files[path.split('/').at(-1) ?? ''] ??
        (path === '' ? '' : path.endsWith('.procs') ? '9\n' : path.endsWith('cpuacct.stat') ? 'user 1\nsystem 1\n' : '7\n'),
    ),
  );
  assert.ok(one !== null);
  return one;
};
const group = (path: string, more: Partial<GroupFacts> = {}, limited = false): GroupFacts => ({
  path,
  atMs,
  usage: usage(limited),
  processes: { files: 1, sockets: 0, openFilesLimit: null },
  network: [],
  devices: new Map(),
  ...more,
});
const withProcess = { processes: { files: 1, sockets: 0, openFilesLimit: 1024 } };
const pressure = { cpu: null, memory: null, io: null };
const use = (limited: boolean): UsageFacts => ({
  atMs,
  cpuNanoSeconds: 1,
  cpuNanoCores: 1,
  memory: { workingSetBytes: 1, availableBytes: limited ? 1 : null, usageBytes: 1, rssBytes: 1, pageFaults: 1, majorPageFaults: 0 },
  swapBytes: 0,
  swapAvailableBytes: limited ? 1 : null,
  pressure,
});
const disk = { atMs, capacityBytes: 1, availableBytes: 1, usedBytes: 1, inodes: 1, inodesFree: 1, inodesUsed: 1 };
const node: NodeStatsFacts = {
  ...use(true),
  nodeName: 'node-1',
  startedAtMs: atMs,
  interfaces: [link],
  defaultInterface: 'eth0',
  fs: disk,
  imageFs: disk,
  maxPids: 1,
  processes: 1,
  cpus: 2,
  memoryBytes: 1,
  systemContainers: [
    { ...use(false), name: 'kubelet', startedAtMs: atMs },
    { ...use(true), name: 'pods', startedAtMs: atMs, swapAvailableBytes: null },
  ],
};
const pods = pagePods('node-1').map(({ metadata: { name = '' }, spec }): PodStatsFacts => {
  const containers = [...(spec.initContainers ?? []), ...(spec.containers ?? [])].map((container): ContainerStatsFacts => ({
    ...use(container.resources?.limits?.['memory'] !== undefined),
    name: container.name,
    id: `${name}-${container.name}`,
    image: container.image ?? '',
    createdAtMs: atMs,
    startedAtMs: atMs,
    rootfsUsedBytes: 1,
    rootfsInodesUsed: 1,
    logs: disk,
  }));
  // A pod is bounded where all its containers are.
  const limited = containers.every(({ memory }) => memory.availableBytes !== null);
  return {
    uid: name,
    namespace: PAGES_NAMESPACE,
    name,
    sandboxId: `${name}-sandbox`,
    hostNetwork: spec.hostNetwork === true,
    startedAtMs: atMs,
    usage: { ...use(limited), swapAvailableBytes: null },
    interfaces: spec.hostNetwork === true ? [] : [link],
    processCount: 1,
    containers,
    volumes: [...(spec.volumes ?? []), { name: 'kube-api-access-abc' }].map((volume) => ({ ...disk, name: volume.name, claim: null })),
    ephemeralVolumes: [],
    etcHostsBytes: 1,
  };
});
const facts: CadvisorFacts = {
  groups: new Map(
    pods.flatMap((pod): [string, GroupFacts][] => [
      [pod.uid, group(`/kubepods/burstable/pod${pod.uid}`)],
      [pod.sandboxId, group(`/kubepods/burstable/pod${pod.uid}/${pod.sandboxId}`, { ...withProcess, network: [link] })],
      ...pod.containers.map(({ id, name }): [string, GroupFacts] => [id, group(`/kubepods/burstable/pod${pod.uid}/${id}`, withProcess, name === 'a')]),
    ]),
  ),
  above: [
    { facts: group('/', { ...withProcess, network: [link] }), madeAtMs: atMs },
    { facts: group('/kubepods'), madeAtMs: atMs },
    { facts: group('/system'), madeAtMs: atMs },
  ],
  fileSystems: [{ name: '/dev/vda', atMs, capacityBytes: 1, usedBytes: 1, inodes: 1, inodesFree: 1, counts: countsOf(new Map(), '') }],
  machine: { cpus: 2, memoryBytes: 1, swapBytes: 0, bootID: 'b', machineID: 'm', systemUUID: 's', kernelVersion: '6', osImage: 'o' } as MachineFacts,
  cores: 2,
  sockets: 1,
  sandboxImage: 'registry.k8s.io/pause:3.10.2',
  nowMs: atMs,
};
const recorded = async (name: string): Promise<string[]> => (await readFile(join(PAGES, `${name}.txt`), 'utf8')).trimEnd().split('\n');

test('/metrics/cadvisor has upstream’s metrics, types and labels, of the same things', async () => {
  const lines = await recorded('cadvisor');
  assert.ok(lines.length >= 80);
  assert.deepEqual(missingShapes(lines, metricShapes(cadvisorMetrics(node, pods, facts), PAGES_NAMESPACE)), []);
});

test('/metrics/cadvisor has what node e2e asks of containers, but for what the block layer would count', () => {
  const page = metricShapes(cadvisorMetrics(node, pods, facts), PAGES_NAMESPACE);
  // test/e2e_node/container_metrics_test.go, beside what upstream shows here anyway.
  for (const name of ['container_fs_usage_bytes', 'container_ulimits_soft', 'container_start_time_seconds'])
    assert.ok(
      page.some((line) => line.startsWith(`${name} `) && line.includes(' container')),
      name,
    );
});

test('/metrics/resource has upstream’s metrics, types and labels, of the same pods and containers', async () => {
  const lines = await recorded('resource');
  assert.ok(lines.length >= 12);
  assert.deepEqual(missingShapes(lines, metricShapes(resourceMetrics(node, pods, false), PAGES_NAMESPACE)), []);
});

test('/stats/summary has upstream’s fields and no others', async () => {
  assert.deepEqual(summaryPaths(summaryOf(node, pods, false), PAGES_NAMESPACE), await recorded('summary'));
});
