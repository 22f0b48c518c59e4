import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { PodAllocation } from '../core/resize/allocation.ts';
import { AllocationFile, textFile } from './allocation-file.ts';
import type { TextFile } from './allocation-file.ts';

const given = (cpu: string): PodAllocation => ({ containers: new Map([['m', { requests: { cpu } }]]), pod: null });

test('what was saved is there for the next process, in a file of its own mode and nothing beside it', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'nodelet-allocation-'));
  try {
    const file = textFile(join(dir, 'allocated_pods_state'));
    const first = await AllocationFile.open(file, 'allocated_pods_state');
    first.set('u1', given('1'));
    first.set('u2', given('2'));
    await first.saved();
    const second = await AllocationFile.open(file, 'allocated_pods_state');
    assert.deepEqual([second.get('u1'), second.get('u2'), second.get('u3')], [given('1'), given('2'), undefined]);
    assert.deepEqual(await readdir(dir), ['allocated_pods_state']);
    assert.equal((await stat(join(dir, 'allocated_pods_state'))).mode & 0o777, 0o600);
    second.retain((uid) => uid === 'u2');
    second.set('u2', given('3'));
    await second.saved();
    const third = await AllocationFile.open(file, 'allocated_pods_state');
    assert.deepEqual([third.get('u1'), third.get('u2')], [undefined, given('3')]);
  } finally {
    await rm(dir, { recursive: true });
  }
});

/** A file whose writes a test lets through, one by one. */
function slowFile(): TextFile & { readonly writes: { text: string; done: (error?: Error) => void }[] } {
  const writes: { text: string; done: (error?: Error) => void }[] = [];
  return {
    writes,
    read: async () => '',
    write: (text) =>
      new Promise((resolve, reject) => {
        writes.push({ text, done: (error) => (error === undefined ? resolve() : reject(error)) });
      }),
  };
}

test('many changes while a write is under way cost one more, and each waits for its own', async () => {
  const file = slowFile();
  const allocations = await AllocationFile.open(file, 'f');
  const order: string[] = [];
  allocations.set('u1', given('1'));
  const first = allocations.saved().then(() => order.push('first'));
  for (const uid of ['u2', 'u3', 'u4']) allocations.set(uid, given('1'));
  const others = ['u2', 'u3', 'u4'].map(() => allocations.saved().then(() => order.push('other')));
  assert.equal(file.writes.length, 1);
  file.writes[0]!.done();
  await first;
  assert.deepEqual([file.writes.length, order], [2, ['first']]);
  file.writes[1]!.done();
  await Promise.all(others);
  assert.ok(file.writes[1]!.text.includes('u4'));
  // What is as it was is not written again.
  allocations.set('u4', given('1'));
  await allocations.saved();
  assert.equal(file.writes.length, 2);
});

test('a write that fails is told to all who wait, and tried again by the next', async () => {
  const file = slowFile();
  const allocations = await AllocationFile.open(file, 'f');
  allocations.set('u1', given('1'));
  const waits = [allocations.saved(), allocations.saved()].map((wait) => assert.rejects(wait, /disk/));
  file.writes[0]!.done(new Error('disk full'));
  await Promise.all(waits);
  const again = allocations.saved();
  file.writes[1]!.done();
  await again;
});
