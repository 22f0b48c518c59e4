import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cgroupUsage, cgroupUsageFiles, swapOf } from './cgroup-usage.ts';

/** Reads a cgroup whose files are given by name. */
function read(version: 1 | 2, files: Readonly<Record<string, string>>) {
  const hierarchies = version === 1 ? ['cpu,cpuacct', 'memory', 'pids', 'blkio'].map((names) => ({ controllers: names.split(',') })) : [{ controllers: [] }];
  const directories = hierarchies.map((_, at) => `/h${at}`);
  const paths = cgroupUsageFiles(version, hierarchies, directories);
  return cgroupUsage(
    version,
    paths.map((path) => files[path.replace(/^\/h\d\//, '')] ?? ''),
  );
}

test('version 1: what memory, cpu, pids and blkio tell', () => {
  const usage = read(1, {
    'cpuacct.stat': 'user 150\nsystem 50\n',
    'cpu.stat': 'nr_periods 7\nnr_throttled 2\nthrottled_time 3000\n',
    'cpu.shares': '2\n',
    'cpu.cfs_period_us': '100000\n',
    'cpu.cfs_quota_us': '-1\n',
    'memory.stat':
      'cache 1\nrss 2\npgfault 5\npgmajfault 1\ntotal_cache 4096\ntotal_rss 8192\ntotal_mapped_file 12\ntotal_pgfault 6\ntotal_pgmajfault 2\ntotal_inactive_file 1000\n',
    'memory.usage_in_bytes': '20000\n',
    'memory.max_usage_in_bytes': '30000\n',
    'memory.failcnt': '3\n',
    'memory.limit_in_bytes': '79998976\n',
    'memory.soft_limit_in_bytes': '9223372036854771712\n',
    'memory.memsw.limit_in_bytes': '',
    'memory.oom_control': 'oom_kill_disable 0\nunder_oom 0\noom_kill 1\n',
    'cgroup.procs': '10\n11\n',
    'pids.current': '3\n',
    'pids.max': 'max\n',
    'blkio.throttle.io_service_bytes': '254:0 Read 4096\n254:0 Write 8192\n254:0 Total 12288\nTotal 12288\n',
    'blkio.throttle.io_serviced': '254:0 Read 1\n254:0 Write 2\n254:0 Total 3\nTotal 3\n',
  });
  assert.ok(usage !== null);
  assert.deepEqual([usage.userNanos, usage.systemNanos, usage.throttle], [1.5e9, 0.5e9, { periods: 7, throttled: 2, nanos: 3000, bursts: 0, burstNanos: 0 }]);
  assert.deepEqual(
    [usage.cache, usage.rss, usage.mapped, usage.swap, usage.usage, usage.workingSet, usage.most, usage.failures],
    [4096, 8192, 12, 0, 20_000, 19_000, 30_000, 3],
  );
  assert.deepEqual(usage.faults, { own: { minor: 5, major: 1 }, all: { minor: 6, major: 2 } });
  assert.deepEqual([usage.threads, usage.threadsMax, usage.pids, usage.oomKills], [3, 0, [10, 11], 1]);
  assert.deepEqual(usage.spec, {
    cpuShares: 2,
    cpuPeriod: 100_000,
    cpuQuota: null,
    memoryLimit: 79_998_976,
    memoryReservation: 0,
    swapLimit: 0,
    swapMax: null,
  });
  assert.deepEqual(
    usage.io.map(({ device, operation, bytes, count }) => [device, operation, bytes, count]),
    [
      ['254:0', 'Read', 4096, 1],
      ['254:0', 'Write', 8192, 2],
      ['254:0', 'Total', 12_288, 3],
    ],
  );
});

test('version 2: the same and pressure', () => {
  const usage = read(2, {
    'cpu.stat': 'usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 4\n',
    'cpu.weight': '1\n',
    'cpu.max': '20000 100000\n',
    'memory.stat': 'anon 8192\nfile 4096\nfile_mapped 12\ninactive_file 1000\npgfault 6\npgmajfault 2\n',
    'memory.current': '20000\n',
    'memory.max': 'max\n',
    'memory.events': 'low 0\nhigh 4\nmax 5\noom 1\noom_kill 1\n',
    'io.stat': '254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n',
    'cpu.pressure': 'some avg10=0.50 avg60=0.10 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n',
  });
  assert.ok(usage !== null);
  assert.deepEqual([usage.userNanos, usage.systemNanos, usage.throttle?.nanos], [2_000_000, 1_000_000, 4000]);
  assert.deepEqual([usage.cache, usage.rss, usage.workingSet, usage.eventsHigh, usage.eventsMax], [4096, 8192, 19_000, 4, 5]);
  assert.deepEqual(usage.spec, { cpuShares: 2, cpuPeriod: 100_000, cpuQuota: 20_000, memoryLimit: 0, memoryReservation: 0, swapLimit: 0, swapMax: null });
  assert.deepEqual([usage.io.length, usage.io[1]?.bytes], [3, 8192]);
  assert.deepEqual(usage.pressure?.cpu?.some, { avg10: 0.5, avg60: 0.1, avg300: 0, total: 123 });
  assert.equal(usage.pressure?.memory, null);
});

test('a cgroup that is gone tells nothing', () => {
  assert.equal(read(1, {}), null);
  assert.equal(read(2, {}), null);
});

test('swap alone: in use, and how much more there may be', () => {
  assert.deepEqual(swapOf(1, 'swap 1\ntotal_swap 5\n', '12\n'), { usedBytes: 5, availableBytes: 7 });
  assert.deepEqual(swapOf(1, 'total_swap 5\n', '9223372036854771712\n'), { usedBytes: 5, availableBytes: null });
  assert.deepEqual(swapOf(2, '0\n', '0\n'), { usedBytes: 0, availableBytes: 0 });
  assert.deepEqual(swapOf(2, '3\n', 'max\n'), { usedBytes: 3, availableBytes: null });
  assert.equal(swapOf(2, '', ''), null);
});
