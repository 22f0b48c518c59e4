import { Buffer } from 'node:buffer';
import { OpError } from '../../base/errors.ts';
import type { Sys } from '../../base/sys/types.ts';
import { cpuSet, intersection, parseCpuSet } from '../core/resources/cpuset.ts';
import type { CpuSet } from '../core/resources/cpuset.ts';
import type { CpuFacts, NumaFacts } from '../core/resources/machine.ts';

const cpuDir = '/sys/devices/system/cpu';
const nodeDir = '/sys/devices/system/node';
const pageSizesKiB = [4, 16, 64, 512, 2048, 8192, 16_384, 32_768, 65_536, 262_144, 524_288, 1_048_576, 2_097_152, 16_777_216];
const cacheIndexes = [0, 1, 2, 3, 4];

export interface MachineTopology {
  readonly nodes: readonly NumaFacts[];
  /** CPUs that the cgroup at the root lets processes run on. */
  readonly usable: CpuSet;
}

/** NUMA nodes, cores and caches as the kernel tells of them, read once. A machine without NUMA is one node. */
export async function readMachineTopology(sys: Sys): Promise<MachineTopology> {
  const read = reader(sys);
  const [online, nodesText, v2, v1] = await read([
    `${cpuDir}/online`,
    `${nodeDir}/online`,
    '/sys/fs/cgroup/cpuset.cpus.effective',
    '/sys/fs/cgroup/cpuset/cpuset.effective_cpus',
  ]);
  const cpus = parseCpuSet(online ?? '') ?? [];
  if (cpus.length === 0) throw new OpError('failed', 'read the topology of this machine', `${cpuDir}/online names no CPU`);
  const usable = parseCpuSet(v2 ?? v1 ?? '') ?? [];
  const numbers = parseCpuSet(nodesText ?? '0') ?? [0];
  const lists = await read(numbers.map((node) => `${nodeDir}/node${node}/cpulist`));
  const facts = await cpuFacts(read, cpus);
  const nodes = await Promise.all(
    numbers.map(async (node, index): Promise<NumaFacts> => {
      const list = lists[index] ?? null;
      const own = list === null ? cpus : intersection(parseCpuSet(list) ?? [], cpus);
      return { node, cpus: own.flatMap((cpu) => facts.get(cpu) ?? []), ...(await memoryFacts(read, node)) };
    }),
  );
  return { nodes, usable: usable.length === 0 ? cpus : cpuSet(intersection(usable, cpus)) };
}

type Read = (paths: readonly string[]) => Promise<(string | null)[]>;

function reader(sys: Sys): Read {
  return async (paths) =>
    (await sys.readFiles(paths, { maxBytesEach: 1 << 16 })).map((bytes) => (bytes === null ? null : Buffer.from(bytes).toString('utf8').trim()));
}

async function cpuFacts(read: Read, cpus: CpuSet): Promise<Map<number, CpuFacts>> {
  const perCpu = 2 + cacheIndexes.length * 3;
  const texts = await read(
    cpus.flatMap((cpu) => [
      `${cpuDir}/cpu${cpu}/topology/core_id`,
      `${cpuDir}/cpu${cpu}/topology/physical_package_id`,
      ...cacheIndexes.flatMap((index) => ['level', 'id', 'shared_cpu_list'].map((file) => `${cpuDir}/cpu${cpu}/cache/index${index}/${file}`)),
    ]),
  );
  const found = new Map<number, CpuFacts>();
  for (const [place, cpu] of cpus.entries()) {
    const [coreId, socket, ...caches] = texts.slice(place * perCpu, (place + 1) * perCpu);
    const bigCaches = cacheIndexes.flatMap((_, index) => {
      const [level, id, shared] = caches.slice(index * 3, index * 3 + 3);
      return Number(level ?? 0) > 2 ? [{ id: Number(id ?? 0), shared: parseCpuSet(shared ?? '') ?? [] }] : [];
    });
    found.set(cpu, { cpu, coreId: Number(coreId ?? cpu), socket: Math.max(0, Number(socket ?? 0)), bigCaches });
  }
  return found;
}

async function memoryFacts(read: Read, node: number): Promise<Pick<NumaFacts, 'memoryBytes' | 'hugePages' | 'distances'>> {
  const dir = `${nodeDir}/node${node}`;
  const [meminfo, distance, whole, ...pages] = await read([
    `${dir}/meminfo`,
    `${dir}/distance`,
    '/proc/meminfo',
    ...pageSizesKiB.map((size) => `${dir}/hugepages/hugepages-${size}kB/nr_hugepages`),
  ]);
  const kib = /MemTotal:\s+(\d+) kB/.exec(meminfo ?? whole ?? '')?.[1] ?? '0';
  return {
    memoryBytes: Number(kib) * 1024,
    distances: (distance ?? '10').split(/\s+/).map(Number),
    hugePages: pageSizesKiB.flatMap((pageKiB, index) => {
      const count = pages[index];
      return count === null || count === undefined ? [] : [{ pageKiB, bytes: Number(count) * pageKiB * 1024 }];
    }),
  };
}
