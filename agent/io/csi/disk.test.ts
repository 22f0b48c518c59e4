import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeSys } from '../../../base/sys/fake.ts';
import { dataFile, publishDir, publishPath } from '../../core/csi/paths.ts';
import { CsiDisk } from './disk.ts';

const root = '/var/lib/kubelet';
const dir = publishDir('u1', 'pv1');
const text = '{"driverName":"d.example","volumeHandle":"h1","specVolID":"pv1","volumeLifecycleMode":"Persistent"}\n';

function world() {
  const sys = createFakeSys();
  sys.put(`${root}/${dir}`, null);
  return { sys, disk: new CsiDisk(sys, root) };
}

test('a full disk in the middle of writing what a volume is leaves what was known of it', async () => {
  const { sys, disk } = world();
  await disk.keep(dir, text);
  const real = sys.fileOps.bind(sys);
  sys.fileOps = async (request) => {
    const [first] = request.ops;
    if (first?.op !== 'write') return await real(request);
    // The file is made, and cut off.
    await real({ ...request, ops: [{ ...first, data: '{"dri' }] });
    return [{ errno: 'ENOSPC' }];
  };
  await assert.rejects(disk.keep(dir, text), /ENOSPC/);
  assert.equal((await disk.data(dir))?.handle, 'h1');
  sys.fileOps = real;
  await disk.removeMountDir(dir, publishPath('u1', 'pv1'));
  assert.deepEqual(await disk.list('pods/u1/volumes/kubernetes.io~csi'), []);
});

test('one volume of which nothing is known hides none of the others', async () => {
  const { sys, disk } = world();
  sys.put(`${root}/${dir}/${dataFile}`, '{"driverName":"d.exa');
  sys.put(`${root}/${publishDir('u1', 'pv2')}/${dataFile}`, text);
  const found = await disk.published('u1');
  assert.deepEqual(
    found.map(({ specName, data }) => [specName, data?.handle ?? null]),
    [
      ['pv1', null],
      ['pv2', 'h1'],
    ],
  );
});

test('what is left of it goes, but not while something is mounted there', async () => {
  const { sys, disk } = world();
  const mount = publishPath('u1', 'pv1');
  sys.put(`${root}/${dir}/${dataFile}`, '');
  sys.put(`${root}/${mount}`, null);
  await sys.mount({ source: 'tmpfs', target: `${root}/${mount}`, fstype: 'tmpfs' });
  assert.equal(await disk.discard('u1', 'pv1', false), false);
  await sys.umount(`${root}/${mount}`);
  assert.equal(await disk.discard('u1', 'pv1', false), true);
  assert.deepEqual(await disk.list('pods/u1/volumes/kubernetes.io~csi'), []);
});
