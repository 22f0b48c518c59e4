import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { createFakeSys, fakeRunResult } from '../../base/sys/fake.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { FakeEvents } from '../fake.ts';
import { Ownership } from './ownership.ts';
import { MountedVolumes } from './volumes-mounted.ts';
import type { LocalVolume } from './volumes-mounted.ts';

const target = '/k/pods/u/volumes/kubernetes.io~nfs/v';

function world() {
  const sys = createFakeSys();
  sys.put('/k/pods/u', null);
  const clock = createFakeClock();
  const events = new FakeEvents();
  const ownership = new Ownership({ sys, clock, events });
  const volumes = new MountedVolumes({ sys, rootDir: '/k', remember: () => undefined, ownership, events });
  return { sys, clock, events, ownership, volumes, signal: new AbortController().signal };
}

test('what a pod calls its server is no option of mount', async () => {
  const { sys, volumes, signal } = world();
  await volumes.nfs('u', { specName: 'v', server: '--fstab=/pods/own', path: '/file', readOnly: true, options: ['vers=4'] }, signal);
  assert.deepEqual(sys.runs[0]?.argv, ['mount', '-t', 'nfs', '-o', 'ro,vers=4', '--', '--fstab=/pods/own:/file', target]);
});

test('a server that refuses is told in upstream’s words', async () => {
  const { sys, volumes, signal } = world();
  sys.onRun = () => fakeRunResult({ code: 32, stderr: 'mount.nfs: no route' });
  const words = `Mounting arguments:  -t nfs [2001:db8::1]:/x ${target}\nOutput: mount.nfs: no route`;
  await assert.rejects(volumes.nfs('u', { specName: 'v', server: '2001:db8::1', path: '/x', readOnly: false, options: [] }, signal), (error) =>
    String(error).includes(words),
  );
});

const podOf = (uid: string, fsGroup?: number): Pod => ({
  metadata: { name: `p-${uid}`, namespace: 'n', uid },
  spec: { containers: [], ...(fsGroup === undefined ? {} : { securityContext: { fsGroup } }) },
});
const disk = { specName: 'pv', path: '/mnt/v', isBlock: false, readOnly: false, options: [], fsType: 'ext4' };

function localWorld() {
  const made = world();
  const { sys } = made;
  for (const uid of ['u1', 'u2', 'u3']) sys.put(`/k/pods/${uid}`, null);
  sys.put('/mnt/v', null);
  sys.put('/mnt/v/file', 'x');
  const readFiles = sys.readFiles.bind(sys);
  sys.readFiles = async (paths, options) => {
    const binds = sys.mounts.map(({ target }) => `2 1 8:1 /mnt/v ${target} rw - ext4 /dev/sda rw`);
    sys.put('/proc/self/mountinfo', ['1 1 8:1 / / rw - ext4 /dev/sda rw', ...binds].join('\n'));
    return await readFiles(paths, options);
  };
  const groupOf = async (): Promise<number | undefined> =>
    (await sys.fileOps({ root: '/', ops: [{ op: 'stat', path: 'mnt/v' }], links: 'follow', timeoutMs: 1 }))[0]?.stat?.gid;
  return { ...made, groupOf };
}

test('the files of a local volume go to the group of the first pod that has it, and not to that of the next beside it', async () => {
  const { sys, events, volumes } = localWorld();
  const given: [string, number | undefined][] = [];
  sys.chownTree = async (path, { gid }) => void given.push([path, gid]);
  const at = (uid: string): string => `/k/pods/${uid}/volumes/kubernetes.io~local-volume/pv`;
  assert.equal(await volumes.local(podOf('u1', 7), disk), at('u1'));
  assert.equal(await volumes.local(podOf('u2', 9), disk), at('u2'));
  await volumes.local(podOf('u2', 9), disk);
  assert.deepEqual(given, [[at('u1'), 7]]);
  assert.deepEqual(events.lines, [
    'Warning AlreadyMountedVolume p-u2: The requested fsGroup is 9, but the volume pv has GID 0. The volume may not be shareable.',
  ]);
  for (const uid of ['u1', 'u2']) await sys.umount(at(uid));
  await volumes.local(podOf('u3', 9), disk);
  assert.deepEqual(given.slice(1), [[at('u3'), 9]]);
});

test('a group that could not be given is given by the next try, and a volume of many files is told of', async () => {
  const { sys, clock, events, volumes } = localWorld();
  const release = Promise.withResolvers<void>();
  let tries = 0;
  sys.chownTree = async (_path, { onProgress }) => {
    tries += 1;
    if (tries === 1) throw new OpError('deadline', 'chown', 'took too long');
    onProgress?.(2048);
    await release.promise;
  };
  await assert.rejects(volumes.local(podOf('u1', 7), disk), /took too long/);
  const running = volumes.local(podOf('u1', 7), disk);
  await clock.advance(29_000);
  assert.deepEqual(events.lines, []);
  await clock.advance(1_000);
  assert.match(
    events.lines.join(),
    /^Warning VolumePermissionChangeInProgress p-u1: Setting volume ownership for u1\/volumes\/kubernetes\.io~local-volume\/pv is taking longer/,
  );
  await clock.advance(60_000);
  assert.match(events.lines[1] ?? '', /: Setting volume ownership for u1\/volumes\/kubernetes\.io~local-volume\/pv, processed 2048 files\.$/);
  release.resolve();
  await running;
  await clock.advance(120_000);
  assert.deepEqual([events.lines.length, tries], [2, 2]);
});

test('mount options of a local volume are set on the bind; where that fails nothing stays mounted', async () => {
  const { sys, volumes } = localWorld();
  const noexec = { ...disk, options: ['noexec'], readOnly: true };
  await volumes.local(podOf('u1'), noexec);
  assert.deepEqual(sys.runs[0]?.argv.slice(0, 4), ['mount', '-o', 'bind,remount,ro,noexec', '--']);
  sys.onRun = () => fakeRunResult({ code: 32, stderr: 'bad option' });
  await assert.rejects(volumes.local(podOf('u2'), noexec), (error) => String(error).includes('bad option'));
  assert.deepEqual(
    sys.mounts.map(({ target }) => target),
    ['/k/pods/u1/volumes/kubernetes.io~local-volume/pv'],
  );
});

/** With a block device at /dev/sdz. */
function deviceWorld() {
  const made = localWorld();
  const { sys } = made;
  sys.put('/dev/sdz', null);
  const fileOps = sys.fileOps.bind(sys);
  sys.fileOps = async (request) => {
    const results = await fileOps(request);
    return request.ops[0]?.path === 'dev/sdz' ? results.map((each) => ({ ...each, stat: { ...each.stat!, type: 'block' as const } })) : results;
  };
  return made;
}

test('a file system is made on a device that has none, and looked after where there is one', async () => {
  const of = async (found: string | number, given: Partial<LocalVolume> = {}, unreadable = false): Promise<string[]> => {
    const { sys, volumes } = deviceWorld();
    sys.onRun = ({ argv }) => {
      if (argv[0] === 'mkfs.broken') return fakeRunResult({ code: 1 });
      if (argv[0] === 'dd' && unreadable) return fakeRunResult({ code: 1, stderr: 'dd: error reading: Input/output error' });
      return argv[0] === 'blkid' ? fakeRunResult(typeof found === 'number' ? { code: found } : { stdout: `${found}\n` }) : fakeRunResult({});
    };
    const result = await volumes.local(podOf('u1'), { ...disk, path: '/dev/sdz', ...given }).catch(String);
    return [...sys.runs.slice(1).map(({ argv }) => argv.slice(0, 5).join(' ')), ...(result.startsWith('/') ? [] : [result])];
  };
  assert.deepEqual(await of(2), ['dd if=/dev/sdz of=/dev/null bs=65536 count=16', 'mkfs.ext4 -F -m0 /dev/sdz', 'mount -t ext4 -o defaults']);
  assert.deepEqual(await of('TYPE=xfs', { fsType: 'xfs', options: ['noatime'] }), [
    'fsck -a /dev/sdz',
    'mount -t xfs -o noatime,defaults',
    'mount -o bind,remount,noatime -- /k/plugins/kubernetes.io/local-volume/mounts/pv',
  ]);
  assert.deepEqual(await of('PTTYPE=gpt'), ['fsck -a /dev/sdz', 'mount -t ext4 -o defaults'], 'partitions are not written over');
  assert.deepEqual(await of('TYPE=ext4', { readOnly: true }), ['mount -t ext4 -o ro,defaults']);
  assert.match(
    (await of(2, { readOnly: true })).join(),
    /MountVolume.MountDevice failed for volume "pv" : local: failed to mount .* cannot mount unformatted disk/,
  );
  assert.deepEqual((await of(2, { fsType: '' })).slice(1), ['mkfs.ext4 -F -m0 /dev/sdz', 'mount -t ext4 -o defaults'], 'where none is named');
  assert.match((await of(2, { options: ['ro'] })).join(), /cannot mount unformatted disk/, 'its options say it as well');
  assert.match(
    (await of(2, { options: ['noatime'], fsType: 'broken' })).at(-1) ?? '',
    /format of disk "\/dev\/sdz" failed: type:\("broken"\) target:\("\/k\/plugins\S+\/pv"\) options:\("noatime,defaults"\) errcode:\(exit status 1\)/,
  );
  assert.match((await of(2, { fsType: '../x' })).join(), /is not the name of a file system/);
  assert.match((await of(2, { isBlock: true })).join(), /^$/, 'a block volume is the device itself');
  // blkid(8) says the same of what it cannot read as of what is empty, and of what looks like several things at once another thing.
  for (const [code, words] of [
    [2, 'Input/output error'],
    [8, 'failed to get disk format of disk /dev/sdz: exit status 8'],
  ] as const) {
    const did = await of(code, {}, true);
    assert.deepEqual([did.some((line) => /^(mkfs|mount)/.test(line)), did.at(-1)?.includes(words)], [false, true], did.join('; '));
    assert.match(did.at(-1) ?? '', /MountVolume.MountDevice failed for volume "pv" : local: failed to mount device/);
  }
});

test('the end of a pod does not wait for a device that is made ready for another, and reads the table of mounts once', async () => {
  const { sys, volumes } = deviceWorld();
  const release = Promise.withResolvers<void>();
  sys.onRun = async ({ argv }) => {
    if (argv[0] === 'mkfs.ext4') await release.promise;
    return fakeRunResult(argv[0] === 'blkid' ? { code: 2 } : {});
  };
  const device = { ...disk, path: '/dev/sdz' };
  for (const name of ['a', 'b']) sys.put(`/k/plugins/kubernetes.io/local-volume/mounts/${name}`, null);
  const making = volumes.local(podOf('u1'), device);
  while (!sys.runs.some(({ argv }) => argv[0] === 'mkfs.ext4')) await new Promise(setImmediate);
  let reads = 0;
  const readFiles = sys.readFiles.bind(sys);
  sys.readFiles = (paths, options) => ((reads += 1), readFiles(paths, options));
  await volumes.ended('u2');
  assert.equal(reads, 1);
  release.resolve();
  assert.match(await making, /u1/);
});

test('a file system of a device that is busy at the end of its last pod comes off later', async () => {
  const { sys, volumes } = deviceWorld();
  const device = '/k/plugins/kubernetes.io/local-volume/mounts/pv';
  sys.put(device, null);
  await sys.mount({ source: '/dev/sdz', target: device, fstype: 'ext4' });
  const mounted = (): number => sys.mounts.filter(({ target }) => target === device).length;
  sys.fault = (call) => {
    if (call === 'umount') throw new OpError('conflict', 'umount', 'EBUSY');
  };
  await volumes.ended('u1');
  assert.equal(mounted(), 1);
  sys.fault = () => undefined;
  await volumes.sweep();
  assert.equal(mounted(), 0);
});
