import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { FakeSys } from '../../base/sys/fake.ts';
import type { OpFailure } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { tellEnforcement } from '../node.ts';
import { openCgroups } from './cgroups.ts';
import type { CgroupsOptions } from './cgroups.ts';
import { FakeSystemd } from './systemd-fake.ts';

const signal = new AbortController().signal;
const files = ['cpu.weight', 'cpu.max', 'memory.max', 'memory.min', 'memory.low', 'cpuset.cpus', 'pids.max', 'cgroup.subtree_control', 'cgroup.procs'];
const burstable: Pod = { metadata: { name: 'p', namespace: 'n', uid: 'u1' }, spec: { containers: [{ name: 'm', resources: { requests: { cpu: '500m' } } }] } };
const guaranteed: Pod = {
  metadata: { name: 'q', namespace: 'n', uid: 'u2' },
  spec: { containers: [{ name: 'm', resources: { limits: { cpu: '1', memory: '64Mi' }, requests: { cpu: '1', memory: '64Mi' } } }] },
};

/** Where systemd puts the cgroup of a pod of the tests. */
const slices = ['/kubepods.slice', '/kubepods.slice/kubepods-burstable.slice', '/kubepods.slice/kubepods-besteffort.slice'];
const burstableSlice = '/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice';

/** A machine with cgroup v2; control files stand there as the kernel would put them. */
function world(given: Partial<CgroupsOptions> = {}, mountinfo = '1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw') {
  const sys = new FakeSys();
  sys.put('/proc/self/mountinfo', mountinfo);
  sys.put('/sys/fs/cgroup/cgroup.controllers', 'cpu memory pids misc\n');
  const fill = (path: string): void => files.forEach((file) => sys.put(`/sys/fs/cgroup${path}/${file}`, ''));
  for (const path of [
    '',
    '/kubepods',
    '/kubepods/burstable',
    '/kubepods/besteffort',
    '/kubepods/burstable/podu1',
    '/kubepods/podu2',
    '/system.slice',
    ...slices,
    burstableSlice,
  ])
    fill(path);
  sys.put('/sys/fs/cgroup/cpuset.cpus.effective', '0-3\n');
  const options: CgroupsOptions = {
    sys,
    clock: createFakeClock(),
    log: silentLog,
    driver: 'cgroupfs',
    cgroupRoot: '/',
    failCgroupV1: true,
    pod: { cpuCFSQuota: true, cpuPeriodUs: 100_000n, podPidsLimit: 50n },
    allocatable: { milliCpu: 2000n, memoryBytes: 1n << 30n, pids: 30_000n },
    ...given,
  };
  return { sys, options, read: (path: string) => sys.get(`/sys/fs/cgroup${path}`) };
}

test('roots, classes and pods get their limits', async () => {
  const { options, read } = world();
  const cgroups = await openCgroups(options);
  await cgroups.ensureRoots();
  assert.deepEqual(
    [read('/kubepods/cgroup.subtree_control'), read('/kubepods/memory.max'), read('/kubepods/pids.max'), read('/kubepods/besteffort/cpu.weight')],
    ['+cpu +memory +pids', '1073741824', '30000', '1'],
  );
  await cgroups.syncQos([]);
  assert.equal(await cgroups.ensurePod(burstable), '/kubepods/burstable/podu1');
  assert.deepEqual([read('/kubepods/burstable/podu1/pids.max'), read('/kubepods/burstable/cpu.weight')], ['50', '20']);
  assert.equal(await cgroups.ensurePod(guaranteed), '/kubepods/podu2');
  assert.deepEqual([read('/kubepods/podu2/cpu.max'), read('/kubepods/podu2/memory.max')], ['100000 100000', '67108864']);
  assert.deepEqual((await cgroups.podUids()).toSorted(), ['u1', 'u2']);
});

test('what pods request of memory is protected above them from their start to their end', async () => {
  const qos = { policy: 'TieredReservation', throttlingFactor: null, pageBytes: 4096, allocatableBytes: 1n << 30n } as const;
  const { sys, options, read } = world();
  const protecting = { ...options, pod: { ...options.pod, memoryQos: qos } };
  const above = (): (string | null)[] => ['/kubepods/memory.min', '/kubepods/memory.low', '/kubepods/burstable/memory.low'].map(read);
  for (const path of ['/kubepods/memory.min', '/kubepods/memory.low', '/kubepods/burstable/memory.low']) sys.put(`/sys/fs/cgroup${path}`, '7');
  const cgroups = await openCgroups(protecting);
  await cgroups.ensureRoots(signal);
  assert.deepEqual(above(), ['7', '7', '7'], 'pods of an earlier agent stay protected until all are known');
  await cgroups.syncQos([]);
  assert.deepEqual(above(), ['0', '0', '0']);
  const asking: Pod = { ...burstable, spec: { containers: [{ name: 'm', resources: { requests: { cpu: '500m', memory: '32Mi' } } }] } };
  await cgroups.ensurePod(asking);
  await cgroups.ensurePod(guaranteed);
  assert.deepEqual(above(), ['100663296', '33554432', '33554432']);
  assert.deepEqual(cgroups.memoryQos, { minBytes: 67_108_864n, lowBytes: 33_554_432n });
  for (const file of files) await sys.fileOps({ root: '/sys/fs/cgroup/kubepods/burstable/podu1', ops: [{ op: 'unlink', path: file }], timeoutMs: 1 });
  const removed = cgroups.removePod('u1', signal);
  await (options.clock as ReturnType<typeof createFakeClock>).advance(100);
  await removed;
  assert.deepEqual([above(), read('/kubepods/burstable/cpu.weight')], [['67108864', '0', '0'], '1']);
  // Somebody else wrote there.
  sys.put('/sys/fs/cgroup/kubepods/memory.min', '5');
  await cgroups.syncQos([guaranteed]);
  assert.deepEqual(above(), ['67108864', '0', '0']);
  await (await openCgroups(options)).ensureRoots(signal);
  assert.deepEqual(above(), ['0', '0', '0'], 'without the gate nothing is protected any more');
});

test('an agent that starts anew leaves the weight of running pods until it knows them all', async () => {
  const { sys, options, read } = world();
  sys.put('/sys/fs/cgroup/kubepods/burstable/cpu.weight', '77');
  const cgroups = await openCgroups(options);
  await cgroups.ensureRoots();
  await cgroups.ensurePod(burstable);
  assert.equal(read('/kubepods/burstable/cpu.weight'), '77');
  const stop = new AbortController();
  let synced = false;
  const clock = options.clock as ReturnType<typeof createFakeClock>;
  const other: Pod = { ...burstable, metadata: { ...burstable.metadata, uid: 'u3' } };
  const running = cgroups.followPods(
    { list: () => [burstable, other, { ...other, metadata: { uid: 'ended' } }], synced: () => synced, mayRun: (uid) => uid !== 'ended' },
    stop.signal,
  );
  await clock.advance(5000);
  assert.equal(read('/kubepods/burstable/cpu.weight'), '77');
  synced = true;
  await clock.advance(1000);
  assert.equal(read('/kubepods/burstable/cpu.weight'), '39');
  stop.abort();
  await running;
});

test('nothing is written when nothing changed, and what is done is counted', async () => {
  const done: string[] = [];
  const { sys, options } = world({ onDone: (operation) => done.push(operation) });
  const cgroups = await openCgroups(options);
  await cgroups.ensurePod(burstable);
  let calls = 0;
  sys.fault = () => {
    calls += 1;
  };
  await cgroups.ensurePod(burstable);
  assert.equal(calls, 0);
  await cgroups.removePod('never-was', signal);
  assert.deepEqual(done, ['create', 'update', 'destroy']);
});

test("what is left in a pod's cgroup is killed before it goes", async () => {
  const killed: number[] = [];
  const { sys, options, read } = world({ kill: (pid) => killed.push(pid) });
  const cgroups = await openCgroups(options);
  sys.put('/sys/fs/cgroup/kubepods/burstable/podu1/cgroup.procs', '');
  sys.put('/sys/fs/cgroup/kubepods/burstable/podu1/0123/cgroup.procs', '0\n4242\n');
  // The fake's directories hold files, so that removing one says ENOTEMPTY as a busy cgroup does; the kernel's vanish with it.
  const removed = cgroups.removePod('u1', signal);
  const clock = options.clock as ReturnType<typeof createFakeClock>;
  await clock.settle();
  assert.deepEqual(killed, [4242]);
  for (const path of ['/0123/cgroup.procs', ...files.map((file) => `/${file}`)])
    await sys.fileOps({ root: '/sys/fs/cgroup/kubepods/burstable/podu1', ops: [{ op: 'unlink', path: path.slice(1) }], timeoutMs: 1 });
  await clock.advance(100);
  await removed;
  assert.equal(read('/kubepods/burstable/podu1/cgroup.procs'), null);
  assert.deepEqual(await cgroups.podUids(), ['u2']);
  await cgroups.removePod('never-was', signal);
});

test('what is not served is refused in one sentence', async () => {
  const v1 = '1 1 0:1 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory';
  await assert.rejects(openCgroups(world({}, v1).options), /not run on a host using cgroup v1/);
  assert.equal((await openCgroups(world({ failCgroupV1: false }, v1).options)).version, 1);
  await assert.rejects(openCgroups(world({ driver: 'systemd' }).options), /not booted by systemd/);
  await assert.rejects(openCgroups(world({}, '').options), /no cgroup file system/);
});

test('systemd makes the slices, holds the limits, and takes the slices away', async () => {
  const systemd = new FakeSystemd();
  const killed: number[] = [];
  const { sys, options, read } = world({ driver: 'systemd', systemd, kill: (pid) => killed.push(pid) });
  const cgroups = await openCgroups(options);
  await cgroups.ensureRoots(signal);
  assert.deepEqual(systemd.log, [
    'start kubepods.slice',
    'start kubepods-burstable.slice',
    'start kubepods-besteffort.slice',
    'set kubepods.slice MemoryMax=1073741824 CPUWeight=79 TasksMax=30000 AllowedCPUs=15 MemoryMin=0 MemoryLow=0',
    'set kubepods-besteffort.slice CPUWeight=1',
    'set kubepods-burstable.slice MemoryLow=0',
  ]);
  assert.deepEqual(systemd.units.get('kubepods-burstable.slice')?.get('Wants'), ['kubepods.slice']);
  assert.deepEqual(systemd.units.get('kubepods.slice')?.get('Wants'), ['-.slice']);
  systemd.log.length = 0;
  await cgroups.syncQos([]);
  systemd.log.length = 0;
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'n', uid: 'u-1' },
    spec: { containers: [{ name: 'm', resources: { requests: { cpu: '500m' }, limits: { cpu: '123m', memory: '64Mi' } } }] },
  };
  assert.equal(await cgroups.ensurePod(pod, signal), 'kubepods-burstable-podu_1.slice');
  assert.deepEqual(systemd.log, [
    'start kubepods-burstable-podu_1.slice',
    'set kubepods-burstable-podu_1.slice MemoryMax=67108864 CPUWeight=20 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=130000 TasksMax=50',
    'set kubepods-burstable.slice CPUWeight=20',
  ]);
  // What systemd holds is what stands in the cgroup, or its next reload would change it.
  assert.deepEqual([read(`${burstableSlice}/cpu.max`), cgroups.limitsOf(pod).cpuQuotaUs], ['13000 100000', 13_000n]);
  await cgroups.ensurePod(pod, signal);
  assert.equal(systemd.log.length, 3);
  systemd.log.length = 0;
  sys.put(`/sys/fs/cgroup${burstableSlice}/cgroup.procs`, '77\n');
  const removed = cgroups.removePod('u-1', signal);
  const clock = options.clock as ReturnType<typeof createFakeClock>;
  await clock.settle();
  assert.deepEqual([killed[0], systemd.log[0], systemd.units.has('kubepods-burstable-podu_1.slice')], [77, 'stop kubepods-burstable-podu_1.slice', false]);
  for (const file of files) await sys.fileOps({ root: `/sys/fs/cgroup${burstableSlice}`, ops: [{ op: 'unlink', path: file }], timeoutMs: 1 });
  await clock.advance(100);
  await removed;
});

test('what is reserved is enforced on cgroups that are there', async () => {
  const resources = { cpuShares: 512n, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: 1n << 28n, pidsMax: null };
  const { options, read } = world({ reserved: [{ key: 'system-reserved', cgroup: '/system.slice', resources }] });
  await (await openCgroups(options)).enforceReserved(signal);
  assert.deepEqual([read('/system.slice/memory.max'), read('/system.slice/cpu.weight')], ['268435456', '20']);
  const missing = world({ reserved: [{ key: 'kube-reserved', cgroup: '/kube.slice', resources }] });
  await assert.rejects((await openCgroups(missing.options)).enforceReserved(signal), /kube\.slice is not there/);
});

test('a limit that cannot be had at the start is tried again each minute', async () => {
  const { sys, options, read } = world();
  await sys.fileOps({ root: '/sys/fs/cgroup/kubepods', ops: [{ op: 'unlink', path: 'memory.max' }], timeoutMs: 1 });
  const cgroups = await openCgroups(options);
  await cgroups.ensureRoots(signal);
  sys.put('/sys/fs/cgroup/kubepods/memory.max', 'max');
  const stop = new AbortController();
  const run = cgroups.followPods({ list: () => [], synced: () => true, mayRun: () => true }, stop.signal);
  await (options.clock as ReturnType<typeof createFakeClock>).advance(1000);
  assert.equal(read('/kubepods/memory.max'), '1073741824');
  stop.abort();
  await run;
});

test('memory that better classes ask for is kept from the others; a class that uses more keeps what it uses', async () => {
  const { sys, options, read } = world({ qosReservedPercent: 100n });
  const cgroups = await openCgroups(options);
  await cgroups.ensureRoots(signal);
  await cgroups.syncQos([guaranteed]);
  const rest = String((1n << 30n) - 67_108_864n);
  assert.deepEqual([read('/kubepods/burstable/memory.max'), read('/kubepods/besteffort/memory.max')], [rest, rest]);
  sys.put('/sys/fs/cgroup/kubepods/besteffort/memory.current', '1073741000\n');
  const writeFiles = sys.writeFiles.bind(sys);
  sys.writeFiles = async (writes) =>
    writes.some(({ path, data }) => path.includes('besteffort/memory.max') && BigInt(data) < 1_073_741_000n)
      ? writes.map(() => ({ errno: 'EBUSY', message: 'busy' }))
      : await writeFiles(writes);
  await cgroups.syncQos([guaranteed]);
  assert.equal(read('/kubepods/besteffort/memory.max'), '1073741000');
});

test('without cgroupsPerQOS nothing is made, written, looked at or removed', async () => {
  const { sys, options } = world({ perQos: false });
  const cgroups = await openCgroups(options);
  const touched = (): never => assert.fail('no cgroup is touched');
  Object.assign(sys, { fileOps: touched, writeFiles: touched, readFiles: touched });
  await cgroups.ensureRoots();
  assert.equal(await cgroups.ensurePod(burstable), '');
  assert.equal(cgroups.parentOf(guaranteed), '', 'the runtime puts it where it wants');
  await cgroups.syncQos([burstable]);
  await cgroups.setLimits(burstable, cgroups.limitsOf(burstable));
  await cgroups.removePod('u1', signal);
  assert.deepEqual([await cgroups.podUids(), await cgroups.values(burstable)], [[], null]);
});

test('that all pods together are not bounded is told, and that they are at last', async () => {
  const { sys, options } = world();
  const write = sys.writeFiles.bind(sys);
  let broken = true;
  sys.writeFiles = async (writes) =>
    broken && writes.some(({ path }) => path.endsWith('/kubepods/memory.max')) ? writes.map(() => ({ errno: 'EBUSY' }) as OpFailure) : write(writes);
  const cgroups = await openCgroups(options);
  await cgroups.ensureRoots();
  const told: string[] = [];
  const target = { apiVersion: 'v1', kind: 'Node', name: 'n', uid: 'n' };
  tellEnforcement({ event: (_target, type, reason, message) => told.push(`${type} ${reason}: ${message}`) }, target, cgroups, '/a');
  assert.match(told.splice(0).join(), /^Warning FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits \["a" "kubepods"\]: .*EBUSY/);
  broken = false;
  const stop = new AbortController();
  const clock = options.clock as ReturnType<typeof createFakeClock>;
  const following = cgroups.followPods({ list: () => [], synced: () => true, mayRun: () => true }, stop.signal);
  await clock.advance(1000);
  stop.abort();
  await following;
  assert.deepEqual(told, ['Normal NodeAllocatableEnforced: Updated Node Allocatable limit across pods']);
});
