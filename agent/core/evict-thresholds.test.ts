import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deviceOf, diskObservations, memoryObservations, pidObservations } from './evict-signals.ts';
import { amountOf, isNear, lookAtPressure, noPressure, thresholdsMet, thresholdsOf, withContainerFs } from './evict-thresholds.ts';
import type { EvictionConfig, EvictionSignal, Observation, Threshold } from './evict-thresholds.ts';
import { formatQuantity, parseQuantity, quantityOf } from './quantity.ts';

const config = (given: Partial<EvictionConfig>): EvictionConfig => ({
  evictionHard: {},
  evictionSoft: {},
  evictionSoftGracePeriod: {},
  evictionMinimumReclaim: {},
  enforceNodeAllocatable: [],
  ...given,
});
const seen = (signal: EvictionSignal, available: string, capacity = '10Gi'): Map<EvictionSignal, Observation> =>
  new Map([[signal, { available: parseQuantity(available), capacity: parseQuantity(capacity) }]]);
const names = (thresholds: readonly Threshold[]): string[] => thresholds.map(({ signal, graceMs }) => `${signal} ${graceMs}`);

test('thresholds of a configuration; hard memory counts for all pods together too', () => {
  const all = thresholdsOf(
    config({
      evictionHard: { 'memory.available': '100Mi', 'nodefs.available': '10%', 'imagefs.available': '0%', 'pid.available': '100%' },
      evictionSoft: { 'memory.available': '200Mi' },
      evictionSoftGracePeriod: { 'memory.available': '1m30s' },
      evictionMinimumReclaim: { 'memory.available': '50Mi' },
      enforceNodeAllocatable: ['pods'],
    }),
  );
  assert.deepEqual(names(all), ['memory.available 0', 'nodefs.available 0', 'memory.available 90000', 'allocatableMemory.available 0']);
  assert.deepEqual(
    all.map(({ minReclaim }) => minReclaim !== null),
    [true, false, true, true],
  );
});

test('a share is read in single precision and cut to whole units', () => {
  const [threshold] = thresholdsOf(config({ evictionHard: { 'nodefs.available': '10%' } }));
  assert.equal(formatQuantity(amountOf(threshold!.value, parseQuantity('270563360768'))), '27056336479');
});

test('containerfs goes by the file system it is on, whatever is configured for it', () => {
  const own = thresholdsOf(
    config({ evictionHard: { 'nodefs.available': '1Gi', 'imagefs.available': '2Gi', 'imagefs.inodesFree': '5%', 'containerfs.available': '9Gi' } }),
  );
  const amounts = (layout: 'one' | 'dedicated' | 'split'): string[] =>
    withContainerFs(own, layout)
      .filter(({ signal }) => signal.startsWith('containerfs.'))
      .map(({ signal, value }) => `${signal} ${formatQuantity(amountOf(value, quantityOf(100)))}`);
  assert.deepEqual(amounts('one'), ['containerfs.available 1Gi']);
  assert.deepEqual(amounts('split'), ['containerfs.available 1Gi']);
  assert.deepEqual(amounts('dedicated'), ['containerfs.available 2Gi', 'containerfs.inodesFree 5']);
});

test('a threshold is met below its amount, and until as much more is free as was asked for', () => {
  const [threshold] = thresholdsOf(config({ evictionHard: { 'memory.available': '1Gi' }, evictionMinimumReclaim: { 'memory.available': '500Mi' } }));
  const met = (available: string, reclaim: boolean): boolean => thresholdsMet([threshold!], seen('memory.available', available), reclaim).length > 0;
  assert.deepEqual([met('1Gi', false), met('1023Mi', false), met('1500Mi', true), met('1524Mi', true)], [false, true, true, false]);
  assert.equal(isNear([threshold!], seen('memory.available', '1200Mi')), true);
  assert.equal(isNear([threshold!], seen('memory.available', '2Gi')), false);
});

test('soft thresholds wait for their grace; a condition stays for the transition period after it was last seen', () => {
  const all = thresholdsOf(
    config({
      evictionHard: { 'nodefs.available': '1Gi' },
      evictionSoft: { 'memory.available': '1Gi' },
      evictionSoftGracePeriod: { 'memory.available': '30s' },
      evictionMinimumReclaim: { 'memory.available': '1Gi' },
    }),
  );
  const observe = (memory: string, disk: string): Map<EvictionSignal, Observation> =>
    new Map([...seen('memory.available', memory), ...seen('nodefs.available', disk)]);
  const looks: [atS: number, memory: string, disk: string, conditions: string, act: string][] = [
    [0, '900Mi', '5Gi', 'MemoryPressure', ''],
    [20, '900Mi', '5Gi', 'MemoryPressure', ''],
    [25, '2Gi', '5Gi', 'MemoryPressure', ''],
    [30, '900Mi', '900Mi', 'MemoryPressure DiskPressure', 'nodefs.available 0'],
    [60, '900Mi', '900Mi', 'MemoryPressure DiskPressure', 'memory.available 30000 nodefs.available 0'],
    // More is free than the threshold, but not by the minimum reclaim.
    [70, '1500Mi', '5Gi', 'MemoryPressure DiskPressure', 'memory.available 30000'],
    [80, '3Gi', '5Gi', 'MemoryPressure DiskPressure', ''],
    [361, '3Gi', '5Gi', 'MemoryPressure', ''],
    [371, '3Gi', '5Gi', '', ''],
  ];
  let state = noPressure;
  for (const [atS, memory, disk, conditions, act] of looks) {
    const step = lookAtPressure(state, all, observe(memory, disk), 300_000, atS * 1000);
    state = step.state;
    assert.deepEqual([step.conditions.join(' '), names(step.act).join(' ')], [conditions, act], `at ${atS} s`);
  }
});

test('a signal that is not known is not acted on', () => {
  const all = thresholdsOf(config({ evictionHard: { 'imagefs.available': '1Gi' } }));
  assert.deepEqual(lookAtPressure(noPressure, all, new Map(), 300_000, 0).act, []);
});

test('memory of the node is capacity without the working set of the root cgroup', () => {
  const meminfo = 'MemTotal:       24683656 kB\nMemFree:        18741760 kB\nInactive(file):  2277060 kB\n';
  const none = { usage: '', stat: '', podsLimit: '', podsUsage: '', podsStat: '' };
  const show = (version: 1 | 2, texts: object): string[] =>
    [...memoryObservations(version, { meminfo, ...none, ...texts })].map(
      ([signal, { available, capacity }]) => `${signal} ${available.nano / 1_000_000_000n} of ${capacity.nano / 1_000_000_000n}`,
    );
  const capacity = 24_683_656n * 1024n;
  const one = { usage: '5218873344\n', stat: 'inactive_file 7\ntotal_inactive_file 2331549696\n' };
  assert.deepEqual(show(1, one), [`memory.available ${capacity - 5_218_873_344n + 2_331_549_696n} of ${capacity}`]);
  assert.deepEqual(
    [...memoryObservations(1, { ...none, ...one, meminfo: `${meminfo}Hugetlb:         1048576 kB\n` }).values()].map(
      ({ available }) => available.nano / 1_000_000_000n,
    ),
    [capacity - 5_218_873_344n + 2_331_549_696n - (1n << 30n)],
    'huge pages are not available',
  );
  // The machine's own root of version 2 has no memory.current.
  const used = (24_683_656n - 18_741_760n) * 1024n;
  assert.deepEqual(show(2, { stat: 'inactive_file 1000\n' }), [`memory.available ${capacity - used + 1000n} of ${capacity}`]);
  const pods = { podsLimit: '1000000\n', podsUsage: '400000\n', podsStat: 'total_inactive_file 100000\n' };
  assert.deepEqual(show(1, { ...one, ...pods })[1], 'allocatableMemory.available 700000 of 1000000');
  assert.equal(show(1, { ...one, ...pods, podsLimit: '9223372036854771712\n' }).length, 1);
  assert.equal(show(2, { ...pods, podsLimit: 'max\n' }).length, 1);
});

test('process IDs and disks; a file system that does not count inodes has no such signal', () => {
  const [pid] = pidObservations('4.11 2.32 0.98 7/165 18081\n', ['32768\n', '192000\n']).values();
  assert.deepEqual([formatQuantity(pid!.available), formatQuantity(pid!.capacity)], ['32603', '32768']);
  assert.deepEqual([...diskObservations('nodefs', { totalBytes: 100, availableBytes: 40, inodes: 0, inodesFree: 0 }).keys()], ['nodefs.available']);
});

test('the device of a path is that of the deepest mount above it, the last of several', () => {
  const mountinfo = [
    '22 1 254:0 / / rw - ext4 /dev/vda rw',
    '30 22 0:40 / /var/lib/kubelet rw - tmpfs a rw',
    '31 22 0:41 / /var/lib/kubelet rw - tmpfs b rw',
  ].join('\n');
  const at = (path: string): string | null => deviceOf(mountinfo, path);
  assert.deepEqual(
    [at('/var/lib/containerd'), at('/var/lib/kubelet'), at('/var/lib/kubelet/pods'), at('/var/lib/kubelets')],
    ['254:0', '0:41', '0:41', '254:0'],
  );
});
