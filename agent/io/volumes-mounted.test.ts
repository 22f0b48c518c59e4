import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeSys, fakeRunResult } from '../../base/sys/fake.ts';
import { MountedVolumes } from './volumes-mounted.ts';

const target = '/k/pods/u/volumes/kubernetes.io~nfs/v';

function world() {
  const sys = createFakeSys();
  sys.put('/k/pods/u', null);
  return { sys, volumes: new MountedVolumes(sys, '/k', () => undefined), signal: new AbortController().signal };
}

test('what a pod calls its server is no option of mount', async () => {
  const { sys, volumes, signal } = world();
  await volumes.nfs('u', { specName: 'v', server: '--fstab=/pods/own', path: '/file', readOnly: true, options: ['vers=4'] }, signal);
  assert.deepEqual(sys.runs[0]?.argv, ['mount', '-t', 'nfs', '-o', 'ro,vers=4', '--', '--fstab=/pods/own:/file', target]);
});

test('a server that refuses is told in upstream’s words', async () => {
  const { sys, volumes, signal } = world();
  sys.onRun = () => fakeRunResult({ code: 32, stderr: 'mount.nfs: no route' });
  const words = `Mounting arguments: -t nfs [2001:db8::1]:/x ${target}\nOutput: mount.nfs: no route`;
  await assert.rejects(volumes.nfs('u', { specName: 'v', server: '2001:db8::1', path: '/x', readOnly: false, options: [] }, signal), (error) =>
    String(error).includes(words),
  );
});
