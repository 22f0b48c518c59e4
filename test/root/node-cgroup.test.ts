import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { execa } from 'execa';
import { createCgroup, removeCgroup } from '../../node/io/cgroup.ts';
import { inspectMachine } from '../../node/io/machine.ts';

/* The cgroup of a set on the cgroups of this machine, whichever version it has. */
const machine = await inspectMachine({ path: process.env['PATH'] ?? '' });
const skip = !machine.isRoot ? 'needs root' : machine.cgroup === null ? 'needs a mounted cgroup file system' : false;
if (skip !== false) console.log(`node cgroup: skipped, ${skip}`);

test('a node gets a place that holds processes and one for its pods; all of it goes', { skip }, async () => {
  const cgroups = machine.cgroup;
  assert.ok(cgroups !== null);
  const set = `/nodelet-test-${process.pid}-set`;
  const left = spawn('sleep', ['600']);
  const ended = once(left, 'exit');
  try {
    const leaves = await createCgroup(cgroups, `${set}/node-1`);
    assert.equal(leaves.length, cgroups.hierarchies.length);
    for (const leaf of leaves) writeFileSync(`${leaf}/cgroup.procs`, String(left.pid));
    if (cgroups.version === 2) {
      assert.match(readFileSync(`${cgroups.root}${set}/node-1/cgroup.subtree_control`, 'utf8'), /cpu.*memory.*pids/);
      assert.equal(readFileSync(`${cgroups.root}${set}/node-1/system/cgroup.subtree_control`, 'utf8').trim(), '');
    }
    // A second start finds it all there, with processes in it.
    assert.deepEqual(await createCgroup(cgroups, `${set}/node-1`), leaves);
    await removeCgroup(cgroups, set);
    assert.deepEqual((await ended)[1], 'SIGKILL');
  } finally {
    left.kill('SIGKILL');
    await removeCgroup(cgroups, set);
  }
  for (const hierarchy of cgroups.hierarchies) assert.equal(existsSync(`${hierarchy}${set}`), false);
});

test('where cgroups are mounted read-only, that is what is said', { skip }, async () => {
  const script = `
    const { createCgroup } = await import(${JSON.stringify(new URL('../../node/io/cgroup.ts', import.meta.url).href)});
    await createCgroup({ version: 2, root: '/sys/fs/cgroup', hierarchies: ['/sys/fs/cgroup'] }, '/nodelet-test-shut/hub').catch((error) => console.log(error.code, error.message));`;
  const command = 'mount -t tmpfs -o ro none /sys/fs/cgroup && exec "$0" --disable-warning=ExperimentalWarning --input-type=module -e "$1"';
  const { stdout } = await execa('unshare', ['--mount', '--propagation', 'private', 'sh', '-c', command, process.execPath, script]);
  assert.equal(stdout, 'denied making the cgroup /sys/fs/cgroup/nodelet-test-shut: the cgroup file system is mounted read-only');
});
