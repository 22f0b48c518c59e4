import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
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
