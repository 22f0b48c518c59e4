import assert from 'node:assert/strict';
import { mkdir, rm, stat } from 'node:fs/promises';
import { test } from 'node:test';
import { realClock } from '../base/clock.ts';
import { createCriClient } from './client.ts';
import { ownerOf, runName } from './core/replay-run.ts';
import { REPLAY_LABEL } from './core/replay-rewrite.ts';
import { FakeRuntime } from './fake.ts';
import { deadReplays, ownOwner, removeFolder, removeSandboxes, replayFolder } from './io/replay-traces.ts';

test('what a killed replay left is found, not what runs, is kept, or is of another PID namespace', async () => {
  const client = createCriClient(new FakeRuntime({ clock: realClock }));
  const own = await ownOwner(process.pid);
  const random = `f00${process.pid.toString(16)}`;
  const alive = runName(random, own);
  const dead = runName(random, { ...own, startTicks: '1' });
  const elsewhere = runName(random, { ...own, startTicks: '1', namespace: '7' });
  assert.deepEqual(ownerOf(alive), own);
  assert.equal(ownerOf(random), null);
  for (const run of [alive, dead, elsewhere, random]) {
    const config = { metadata: { name: run, namespace: 'default', uid: run, attempt: 0 }, labels: { [REPLAY_LABEL]: run } };
    await client.runtime.runPodSandbox({ config });
  }
  // Of this one nothing but a folder was made.
  const early = runName(`${random}e`, { ...own, startTicks: '2' });
  await mkdir(replayFolder(early));
  try {
    const found = (await deadReplays(client, own.namespace)).filter((run) => run.startsWith(random));
    assert.deepEqual(found, [dead, early]);
    assert.equal(await removeSandboxes(client, dead), 1);
    assert.equal((await client.runtime.listPodSandbox({})).items.length, 3);
    await removeFolder(replayFolder(early));
    await assert.rejects(stat(replayFolder(early)));
  } finally {
    await rm(replayFolder(early), { recursive: true, force: true });
  }
});
