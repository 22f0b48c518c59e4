import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Sys } from '../../base/sys/types.ts';
import { readMachineTopology } from './machine-topology.ts';

function sysOf(files: Readonly<Record<string, string>>): Sys {
  return {
    readFiles: async (paths: readonly string[]) => paths.map((path) => (files[path] === undefined ? null : Buffer.from(files[path]))),
  } as unknown as Sys;
}

const cpu = '/sys/devices/system/cpu';
const node = '/sys/devices/system/node';

/** Two NUMA nodes of two cores; CPU 3 is kept from us by the cgroup. */
const machine: Record<string, string> = {
  [`${cpu}/online`]: '0-3\n',
  [`${node}/online`]: '0-1\n',
  '/sys/fs/cgroup/cpuset/cpuset.effective_cpus': '0-2\n',
  [`${node}/node0/cpulist`]: '0-1\n',
  [`${node}/node1/cpulist`]: '2-3\n',
  [`${node}/node0/meminfo`]: 'Node 0 MemTotal:       1024 kB\nNode 0 MemFree: 5 kB\n',
  [`${node}/node1/meminfo`]: 'Node 1 MemTotal:       2048 kB\n',
  [`${node}/node0/distance`]: '10 21\n',
  [`${node}/node1/distance`]: '21 10\n',
  [`${node}/node1/hugepages/hugepages-2048kB/nr_hugepages`]: '3\n',
};
for (const each of [0, 1, 2, 3]) {
  machine[`${cpu}/cpu${each}/topology/core_id`] = `${each % 2}\n`;
  machine[`${cpu}/cpu${each}/topology/physical_package_id`] = `${each >> 1}\n`;
  machine[`${cpu}/cpu${each}/cache/index3/level`] = '3\n';
  machine[`${cpu}/cpu${each}/cache/index3/id`] = `${each >> 1}\n`;
  machine[`${cpu}/cpu${each}/cache/index3/shared_cpu_list`] = each < 2 ? '0-1\n' : '2-3\n';
}

test('nodes, cores, caches, memory and pages are read, within what the cgroup leaves', async () => {
  const { nodes, usable } = await readMachineTopology(sysOf(machine));
  assert.deepEqual(usable, [0, 1, 2]);
  assert.deepEqual(
    nodes.map(({ node: id, memoryBytes, hugePages, distances }) => [id, memoryBytes, hugePages, distances]),
    [
      [0, 1_048_576, [], [10, 21]],
      [1, 2_097_152, [{ pageKiB: 2048, bytes: 6_291_456 }], [21, 10]],
    ],
  );
  assert.deepEqual(nodes[1]?.cpus[1], { cpu: 3, coreId: 1, socket: 1, bigCaches: [{ id: 1, shared: [2, 3] }] });
});

test('a machine without NUMA is one node with all memory', async () => {
  const { nodes, usable } = await readMachineTopology(sysOf({ [`${cpu}/online`]: '0-1', '/proc/meminfo': 'MemTotal:  4 kB\n' }));
  assert.deepEqual(usable, [0, 1]);
  assert.deepEqual(
    nodes.map(({ node: id, cpus, memoryBytes }) => [id, cpus.length, memoryBytes]),
    [[0, 2, 4096]],
  );
  await assert.rejects(readMachineTopology(sysOf({})), /names no CPU/);
});
