import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { GroupFacts } from '../core/cadvisor-groups.ts';
import { cgroupUsage, cgroupUsageFiles } from '../core/cgroup-usage.ts';
import type { MachineFacts } from '../core/node-status.ts';
import type { PodFacts } from '../core/types.ts';
import type { Pods } from '../seams.ts';
import { createStats, type StatsOptions } from './stats.ts';

const proc: Record<string, string> = {
  '/proc/stat': 'cpu  100 0 50 1000 5 0 0 0 0 0\ncpu0 1 1\nbtime 1700000000\n',
  '/proc/meminfo': 'MemTotal:       1000 kB\nMemFree:         400 kB\nInactive(file):  100 kB\nAnonPages:       200 kB\nSwapTotal:         0 kB\n',
  '/proc/net/dev': 'Inter-|\n face |\n    lo: 1 1 0\n  eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n',
  '/proc/net/route': 'Iface\tDestination\neth0\t00000000\n',
  '/proc/sys/kernel/pid_max': '4194304\n',
  '/proc/sys/kernel/threads-max': '30000\n',
  '/proc/loadavg': '0.1 0.2 0.3 2/300 1234\n',
};

const u64 = (value: number) => ({ value: String(value) });

const hosted = [
  {
    uid: 'u1',
    namespace: 'ns',
    name: 'p',
    sandboxes: [{ id: 's3', ready: true, createdAtMs: 0 }],
    containers: [{ id: 'c1', name: 'c', state: 'running', sandboxId: 's3', image: 'i', startedAtMs: 1 }],
  },
] as unknown as PodFacts[];

function setUp(
  overrides: Partial<StatsOptions['runtime']> = {},
  more: Partial<StatsOptions> = {},
  container: object = {},
  diskUsage: StatsOptions['sys']['diskUsage'] = async (path) => ({ bytes: path.length, inodes: 3 }),
) {
  const clock = createFakeClock();
  let cpu = 1e9;
  let reads = 0;
  const at = () => String(clock.nowMs() * 1e6);
  const facts = [
    {
      uid: 'u1',
      namespace: 'ns',
      name: 'p',
      sandboxes: [{ id: 's1', ready: true, createdAtMs: 1_700_000_100_000 }],
      containers: [{ id: 'c1', name: 'c', state: 'running', sandboxId: 's1', image: 'i', startedAtMs: 1_700_000_200_000, ...container }],
    },
    { uid: 'u2', namespace: 'ns', name: 'dead', sandboxes: [{ id: 's2', ready: false, createdAtMs: 0 }], containers: [] },
  ] as unknown as PodFacts[];
  const stats = createStats({
    clock,
    log: silentLog,
    sys: {
      readFiles: async (paths) => paths.map((path) => Buffer.from(proc[path] ?? '')),
      diskUsage,
      statfs: async () => ({ totalBytes: 100, freeBytes: 60, availableBytes: 50, inodes: 10, inodesFree: 4, magic: 0 }),
    },
    runtime: {
      listContainerStats: async () => {
        reads++;
        return {
          stats: [
            {
              attributes: { id: 'c1' },
              cpu: { timestamp: at(), usageCoreNanoSeconds: u64(cpu), usageNanoCores: null },
              memory: { timestamp: at(), workingSetBytes: u64(2048), usageBytes: u64(4096), availableBytes: u64(0) },
              writableLayer: { usedBytes: u64(7), inodesUsed: u64(2) },
              swap: null,
              io: null,
            },
          ],
        } as never;
      },
      listPodSandboxStats: async () =>
        ({
          stats: [
            {
              attributes: { id: 's1' },
              linux: {
                cpu: { timestamp: at(), usageCoreNanoSeconds: u64(cpu + 5), usageNanoCores: null },
                memory: { timestamp: at(), workingSetBytes: u64(3000) },
                network: {
                  timestamp: at(),
                  defaultInterface: { name: 'eth0', rxBytes: u64(1), rxErrors: u64(0), txBytes: u64(2), txErrors: u64(0) },
                  interfaces: [{ name: 'eth0', rxBytes: u64(1), rxErrors: u64(0), txBytes: u64(2), txErrors: u64(0) }],
                },
                process: { timestamp: at(), processCount: u64(3) },
                containers: [],
                io: null,
              },
              windows: null,
            },
          ],
        }) as never,
      ...overrides,
    },
    images: {
      imageFsInfo: async () => ({
        imageFilesystems: [{ timestamp: at(), fsId: { mountpoint: '/img' }, usedBytes: u64(33), inodesUsed: u64(5) }],
        containerFilesystems: [],
      }),
      listImages: async () => ({ images: [{ pinned: true, repoTags: ['pause:1'] }] }) as never,
    },
    pods: { allFacts: () => facts, byUid: (uid: string) => (uid === 'u1' ? wanted : undefined) } as unknown as Pods,
    nodeName: 'n1',
    rootDir: '/var/lib/kubelet',
    machine: { cpus: 2, memoryBytes: 1_024_000, bootID: 'b', machineID: 'm', systemUUID: 'u', kernelVersion: '6', osImage: 'o', swapBytes: 0 } as MachineFacts,
    timeoutMs: 1_000,
    ...more,
  });
  return { clock, stats, useCpu: (nanos: number) => (cpu += nanos), reads: () => reads };
}

const signal = new AbortController().signal;

/** One value deep inside an answer. */
function at(tree: unknown, path: string): unknown {
  return path.split('.').reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], tree);
}
const many = (tree: unknown, ...paths: string[]): unknown[] => paths.map((path) => at(tree, path));
const query = new URLSearchParams();

test('the summary has node, pods that run, their containers, disks and networks', async () => {
  const { stats } = setUp();
  const summary = await stats.summary(query, signal);
  assert.deepEqual(many(summary, 'node.nodeName', 'node.startTime', 'node.cpu.usageCoreNanoSeconds', 'node.memory.workingSetBytes'), [
    'n1',
    '2023-11-14T22:13:20Z',
    1.5e9,
    500 * 1024,
  ]);
  assert.deepEqual(
    many(summary, 'node.fs.capacityBytes', 'node.fs.usedBytes', 'node.runtime.imageFs.usedBytes', 'node.rlimit.maxpid', 'node.rlimit.curproc'),
    [100, 40, 33, 30_000, 300],
  );
  assert.deepEqual(many(summary, 'node.network.name', 'node.network.rxBytes', 'node.network.txErrors'), ['eth0', 10, 3]);
  assert.equal(at(summary, 'pods.length'), 1);
  assert.deepEqual(at(summary, 'pods.0.podRef'), { name: 'p', namespace: 'ns', uid: 'u1' });
  assert.deepEqual(many(summary, 'pods.0.memory.workingSetBytes', 'pods.0.network.txBytes', 'pods.0.process_stats.process_count'), [3000, 2, 3]);
  assert.deepEqual(many(summary, 'pods.0.containers.0.name', 'pods.0.containers.0.rootfs.usedBytes'), ['c', 7]);
  const small = await stats.summary(new URLSearchParams('only_cpu_and_memory=true'), signal);
  assert.deepEqual(Object.keys(at(small, 'node') as object), ['nodeName', 'systemContainers', 'startTime', 'cpu', 'memory', 'swap']);
});

test('a rate is worked out where the runtime tells none, and one reading serves for a while', async () => {
  const { clock, stats, useCpu, reads } = setUp();
  await stats.summary(query, signal);
  await stats.resource(signal);
  assert.equal(reads(), 1);
  await clock.advance(10_000);
  useCpu(5e9);
  assert.equal(at(await stats.summary(query, signal), 'pods.0.containers.0.cpu.usageNanoCores'), 500_000_000);
});

test('a runtime that tells of containers only: the pod is their sum', async () => {
  const { stats } = setUp({ listPodSandboxStats: async () => Promise.reject(new Error('unimplemented')) });
  assert.equal(at(await stats.summary(query, signal), 'pods.0.memory.workingSetBytes'), 2048);
});

test('resource and cadvisor pages', async () => {
  const { stats } = setUp();
  const resource = await stats.resource(signal);
  assert.match(resource, /container_cpu_usage_seconds_total\{container="c",namespace="ns",pod="p"\} 1 \d+\n/);
  assert.match(resource, /pod_memory_working_set_bytes\{namespace="ns",pod="p"\} 3000 \d+\n/);
  assert.match(resource, /node_cpu_usage_seconds_total 1\.5 \d+\n/);
  assert.match(resource, /resource_scrape_error 0\n/);
  const cadvisor = await stats.cadvisor(signal);
  assert.match(cadvisor, /container_memory_working_set_bytes\{container="c",id="\/kubepods\/podu1\/c1",image="i",name="c1",namespace="ns",pod="p"\} 2048/);
  assert.match(cadvisor, /machine_cpu_cores\{boot_id="b",machine_id="m",system_uuid="u"\} 2\n/);
});

const wanted = {
  metadata: { name: 'p', namespace: 'ns', uid: 'u1' },
  spec: { containers: [{ name: 'c' }], volumes: [{ name: 'scratch', emptyDir: {} }] },
} as unknown as Pod;
const usage = cgroupUsage(
  2,
  cgroupUsageFiles(2, [{ controllers: [] }], ['/g']).map(
    (path) =>
      ({
        '/g/cpu.stat': 'user_usec 2000000\nsystem_usec 1000000\n',
        '/g/memory.stat': 'anon 10\nfile 20\ninactive_file 30\nfile_mapped 5\npgfault 7\npgmajfault 1\n',
        '/g/memory.current': '100\n',
        '/g/memory.max': '1000\n',
        '/g/io.stat': '254:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n',
        '/g/cgroup.procs': '9\n',
        '/g/memory.pressure': 'some avg10=1.00 avg60=0.00 avg300=0.00 total=5000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n',
      })[path] ?? '',
  ),
);
assert.ok(usage !== null);
const group: GroupFacts = {
  path: '/kubepods/besteffort/podu1/c1',
  atMs: 1,
  usage,
  processes: { files: 4, sockets: 1, openFilesLimit: 1024 },
  network: [{ name: 'eth0', rxBytes: 1, rxPackets: 8, rxErrors: 0, rxDropped: 0, txBytes: 2, txPackets: 9, txErrors: 0, txDropped: 0 }],
  devices: new Map([['254:0', '/dev/vda']]),
};
const noMemory = { workingSetBytes: null, availableBytes: null, usageBytes: null, rssBytes: null, pageFaults: null, majorPageFaults: null };
const grouped: Partial<StatsOptions> = {
  podLogsDir: '/logs',
  volumes: () => [{ name: 'scratch', claim: null, atMs: 0, capacityBytes: 1, availableBytes: 1, usedBytes: 500, inodes: 1, inodesFree: 1, inodesUsed: 2 }],
  groups: {
    read: async () =>
      new Map([
        ['c1', group],
        ['s1', { ...group, path: '/kubepods/besteffort/podu1/s1' }],
      ]),
    above: async () => [{ facts: { ...group, path: '/' }, madeAtMs: 0 }],
    swap: async () => new Map([['c1', { usedBytes: 6, availableBytes: 4 }]]),
    root: async () => usage,
    system: async () => [{ name: 'pods', startedAtMs: 0, atMs: 1, cpuNanoSeconds: 5, cpuNanoCores: null, memory: noMemory, swapBytes: null }],
  },
};

test('what cgroups tell: pressure, the cgroup of all pods, and the storage of a pod with its logs and volumes', async () => {
  const { stats } = setUp({}, grouped);
  const summary = await stats.summary(query, signal);
  assert.deepEqual(many(summary, 'node.systemContainers.0.name', 'node.systemContainers.0.cpu.usageCoreNanoSeconds'), ['pods', 5]);
  assert.deepEqual(many(summary, 'pods.0.containers.0.memory.psi.some.total', 'pods.0.containers.0.cpu.psi.some.total'), [5_000_000, 0]);
  assert.deepEqual(at(summary, 'node.io.psi.full'), { total: 0, avg10: 0, avg60: 0, avg300: 0 });
  const logs = '/logs/ns_p_u1/c'.length;
  assert.deepEqual(many(summary, 'pods.0.containers.0.logs.usedBytes', 'pods.0.containers.0.logs.inodesUsed'), [logs, 3]);
  assert.deepEqual(many(summary, 'pods.0.ephemeral-storage.usedBytes', 'pods.0.ephemeral-storage.inodesUsed'), [7 + logs + 500, 2 + 3 + 2]);
});

test('the series of cgroups stand on the cadvisor page under its names', async () => {
  const { stats } = setUp({}, grouped);
  const page = await stats.cadvisor(signal);
  const labels = 'container="c",id="/kubepods/besteffort/podu1/c1",image="i",name="c1",namespace="ns",pod="p"';
  const has = (name: string, more: string, value: string): void => assert.ok(page.includes(`${name}{${labels}${more}} ${value} 1\n`), `${name}: ${page}`);
  has('container_cpu_user_seconds_total', '', '2');
  has('container_memory_cache', '', '20');
  assert.equal(page.split(`container_memory_swap{${labels}}`).length, 2);
  has('container_memory_failures_total', ',failure_type="pgfault",scope="hierarchy"', '7');
  has('container_fs_reads_bytes_total', ',device="/dev/vda"', '4096');
  has('container_blkio_device_usage_total', ',device="/dev/vda",major="254",minor="0",operation="Read"', '4096');
  has('container_sockets', '', '1');
  has('container_ulimits_soft', ',ulimit="max_open_files"', '1024');
  assert.match(
    page,
    /container_network_receive_packets_total\{container="",id="[^"]*\/s1",image="pause:1",name="s1",namespace="ns",pod="p",interface="eth0"\} 8 1\n/,
  );
  assert.ok(page.includes(`container_spec_memory_limit_bytes{${labels}} 1000\n`), page);
  has('container_pressure_memory_waiting_seconds_total', '', '5');
});

test('a container that has no limit has no memory left to tell of, an interface is told once, and a list without times gives the time of making', async () => {
  const { stats } = setUp();
  const summary = await stats.summary(query, signal);
  assert.equal(at(summary, 'pods.0.containers.0.memory.availableBytes'), undefined);
  assert.equal(at(summary, 'pods.0.network.interfaces.length'), 1);
  const listed = setUp({}, {}, { startedAtMs: 0, createdAtMs: 1_700_000_150_000 });
  assert.equal(at(await listed.stats.summary(query, signal), 'pods.0.containers.0.startTime'), '2023-11-14T22:15:50Z');
  assert.match(await listed.stats.resource(signal), /container_start_time_seconds\{container="c",namespace="ns",pod="p"\} 1700000150\n/);
});

test('a pod with the host’s network has the node’s interfaces', async () => {
  const { stats } = setUp(
    {},
    { pods: { allFacts: () => hosted, byUid: () => ({ ...wanted, spec: { ...wanted.spec, hostNetwork: true } }) } as unknown as Pods },
  );
  const summary = await stats.summary(query, signal);
  assert.deepEqual(many(summary, 'pods.0.network.name', 'pods.0.network.rxBytes'), ['eth0', 10]);
});

test('a first reading tells the mean use since the beginning', async () => {
  const { stats } = setUp({}, grouped);
  const summary = await stats.summary(query, signal);
  const rate = at(summary, 'node.cpu.usageNanoCores');
  assert.ok(typeof rate === 'number' && rate >= 0, String(rate));
  assert.equal(typeof at(summary, 'node.systemContainers.0.cpu.usageNanoCores'), 'number');
});

test('the use of the node’s own programs is told as of now, however often others ask in between', async () => {
  let cpuNanoSeconds = 0;
  const { stats, clock } = setUp(
    {},
    {
      ...grouped,
      groups: {
        ...grouped.groups!,
        system: async () => [
          { name: 'pods', startedAtMs: clock.nowMs() - 100_000, atMs: clock.nowMs(), cpuNanoSeconds, cpuNanoCores: null, memory: noMemory, swapBytes: null },
        ],
      },
    },
  );
  await stats.summary(query, signal);
  for (let scrape = 0; scrape < 4; scrape++) {
    await clock.advance(10_000);
    await stats.resource(signal);
  }
  await clock.advance(10_000);
  // One core all the time since the last answer.
  cpuNanoSeconds = 50e9;
  assert.equal(at(await stats.summary(query, signal), 'node.systemContainers.0.cpu.usageNanoCores'), 1e9);
});

test('swap comes from cgroups where the runtime tells of none, with its limit', async () => {
  const { stats } = setUp({}, grouped);
  const summary = await stats.summary(query, signal);
  assert.deepEqual(many(summary, 'pods.0.containers.0.swap.swapUsageBytes', 'pods.0.containers.0.swap.swapAvailableBytes'), [6, 4]);
  assert.match(await stats.resource(signal), /container_swap_limit_bytes\{container="c",namespace="ns",pod="p"\} 10 /);
});

test('the node is told of as its root cgroup counts, where that counts', async () => {
  const { stats } = setUp({}, grouped);
  const summary = await stats.summary(query, signal);
  assert.deepEqual(many(summary, 'node.memory.usageBytes', 'node.memory.pageFaults', 'node.memory.availableBytes'), [100, 7, 1_024_000 - 70]);
});

test('logs are counted without their directory, and the pod’s own hosts file with its storage', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'stats-'));
  try {
    const logs = join(folder, 'logs/ns_p_u1/c');
    await mkdir(logs, { recursive: true });
    await mkdir(join(folder, 'pods/u1'), { recursive: true });
    await writeFile(join(folder, 'pods/u1/etc-hosts'), '127.0.0.1 localhost\n');
    const own = (await stat(logs)).blocks * 512;
    const hosts = (await stat(join(folder, 'pods/u1/etc-hosts'))).blocks * 512;
    const { stats } = setUp({}, { ...grouped, podLogsDir: join(folder, 'logs'), rootDir: folder, volumes: () => [] }, {}, async () => ({
      bytes: own + 8192,
      inodes: 3,
    }));
    const summary = await stats.summary(query, signal);
    assert.deepEqual(many(summary, 'pods.0.containers.0.logs.usedBytes', 'pods.0.containers.0.logs.inodesUsed'), [8192, 2]);
    const page = await stats.logs(signal);
    assert.match(page, /^kubelet_container_log_filesystem_used_bytes\{container="c",namespace="ns",pod="p",uid="u1"\} 8192$/m);
    assert.equal(await stats.logs(signal), page);
    assert.deepEqual(many(summary, 'pods.0.ephemeral-storage.usedBytes', 'pods.0.ephemeral-storage.inodesUsed'), [7 + 8192 + hosts, 2 + 2 + 1]);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a runtime that is away is an error mark, not a failed page', async () => {
  const { stats } = setUp({ listContainerStats: async () => Promise.reject(new Error('away')) });
  assert.match(await stats.resource(signal), /resource_scrape_error 1\n/);
});

test('a runtime that is slow is asked once, however often somebody scrapes', async () => {
  let asked = 0;
  const { clock, stats } = setUp({
    listPodSandboxStats: async () => {
      asked++;
      await clock.sleep(20_000);
      return { stats: [] };
    },
  });
  const scrapes: Promise<unknown>[] = [];
  for (let round = 0; round < 3; round++) {
    scrapes.push(stats.summary(query, signal));
    await clock.advance(6_000);
  }
  assert.equal(asked, 1);
  await clock.advance(6_000);
  await Promise.all(scrapes);
  scrapes.push(stats.summary(query, signal));
  await clock.advance(20_000);
  assert.equal(asked, 2);
});

test('who reads the agent’s own metrics waits neither for a slow runtime nor for many logs, and no reader spoils the page of another', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'stats-'));
  try {
    await mkdir(join(folder, 'ns_p_u1/c'), { recursive: true });
    let runtime: 'hangs' | 'fails' | 'answers' = 'hangs';
    const hung = Promise.withResolvers<void>();
    const walked = Promise.withResolvers<void>();
    let walks = 0;
    const walking = Promise.withResolvers<void>();
    const { clock, stats } = setUp(
      {
        listContainerStats: async () => {
          if (runtime === 'hangs') await hung.promise;
          if (runtime === 'fails') throw new Error('away');
          return { stats: [{ attributes: { id: 'c1' }, cpu: null, memory: null, writableLayer: null, swap: null, io: null }] } as never;
        },
      },
      { podLogsDir: folder, rootDir: folder },
      {},
      async (_path, _options, walkSignal) => {
        walks += 1;
        walking.resolve();
        await walked.promise;
        if (walkSignal?.aborted === true) throw new Error('cut off');
        return { bytes: 1 << 20, inodes: 3 };
      },
    );
    const scraped = async (by = signal): Promise<boolean> => {
      const page = stats.logs(by).then((text) => text.includes('pod="p"'));
      await clock.advance(2_000);
      return await page;
    };
    assert.equal(await scraped(), false, 'the runtime hangs');
    runtime = 'fails';
    hung.resolve();
    await clock.advance(10_000);
    await scraped();
    await clock.advance(60_000);
    assert.equal(await scraped(), false, 'the runtime is away');
    runtime = 'answers';
    await clock.advance(10_000);
    const gone = new AbortController();
    const left = stats.logs(gone.signal);
    const other = stats.logs(signal);
    await walking.promise;
    gone.abort(new Error('the reader left'));
    await assert.rejects(left, /the reader left/);
    walked.resolve();
    assert.match(await other, /pod="p"/);
    await clock.advance(59_000);
    assert.ok(await scraped());
    assert.equal(walks, 1);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('with PodAndContainerStatsFromCRI pressure, swap and the page of cAdvisor are the runtime’s own', async () => {
  const psi = { Full: { Total: '9', Avg10: 1, Avg60: 2, Avg300: 3 }, Some: null };
  const at = '1700000300000000000';
  const cpu = { timestamp: at, usageCoreNanoSeconds: u64(1e9), usageNanoCores: u64(5), psi };
  const container = {
    attributes: { id: 'c1' },
    cpu,
    memory: { timestamp: at, workingSetBytes: u64(2048), psi: null },
    swap: { timestamp: at, swapUsageBytes: u64(10), swapAvailableBytes: u64(90) },
    writableLayer: null,
    io: null,
  };
  const unread = async (): Promise<never> => assert.fail('cgroups of pods are not read');
  const { stats } = setUp(
    {
      listContainerStats: unread,
      listPodSandboxStats: async () =>
        ({ stats: [{ attributes: { id: 's1' }, linux: { cpu, memory: null, network: null, process: null, io: null, containers: [container] } }] }) as never,
      listMetricDescriptors: async () => ({ descriptors: [{ name: 'container_tasks', help: 'Tasks.', labelKeys: [] }] }),
      listPodSandboxMetrics: async () => ({
        podMetrics: [
          {
            podSandboxId: 's1',
            metrics: [{ name: 'container_tasks', timestamp: '0', metricType: 'GAUGE', labelValues: [], value: { value: '4' } }],
            containerMetrics: [],
          },
        ],
      }),
    },
    {
      fromCri: true,
      groups: { read: unread, swap: unread, above: unread, system: async () => [], root: async () => null } as unknown as NonNullable<StatsOptions['groups']>,
    },
  );
  const summary = (await stats.summary(new URLSearchParams(), AbortSignal.timeout(1000))) as {
    pods: { containers: { cpu: { psi: unknown }; swap: object; memory: object }[]; cpu: object }[];
  };
  const [told] = summary.pods[0]?.containers ?? [];
  assert.deepEqual(told?.cpu.psi, { full: { total: 9, avg10: 1, avg60: 2, avg300: 3 }, some: { total: 0, avg10: 0, avg60: 0, avg300: 0 } });
  assert.deepEqual(told?.swap, { time: '2023-11-14T22:18:20Z', swapAvailableBytes: 90, swapUsageBytes: 10 });
  const page = await stats.cadvisor(AbortSignal.timeout(1000));
  assert.match(page, /^container_tasks 4$/m);
  assert.match(page, /^machine_cpu_cores\{.*\} 2$/m);
  assert.doesNotMatch(page, /container_cpu_usage_seconds_total/);
});
