import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { Cri } from './cri.ts';
import { createLister } from './lister.ts';
import type { Lists } from './lister.ts';

/** A runtime with three pods whose lists take 10 ms, and what it was asked for. */
function world() {
  const clock = createFakeClock();
  const asked: string[] = [];
  const state = { broken: false };
  const uids = ['a', 'b', 'c'];
  const answer = async (what: string, request: { filter?: { labelSelector?: Record<string, string> } }, options: { signal?: AbortSignal }) => {
    const uid = request.filter?.labelSelector?.['uid'];
    asked.push(`${what} ${uid ?? 'all'}`);
    await clock.sleep(10, options.signal);
    if (state.broken) throw new Error('connection refused');
    return uids.filter((each) => uid === undefined || each === uid).map((each) => ({ id: `${what}-${each}`, labels: { uid: each } }));
  };
  const runtime = {
    listPodSandbox: async (request: object, options: object) => ({ items: await answer('sandboxes', request, options) }),
    listContainers: async (request: object, options: object) => ({ containers: await answer('containers', request, options) }),
  };
  const lister = createLister({ cri: { runtime } as unknown as Cri, uidLabel: 'uid', timeoutMs: 1000 });
  return { clock, asked, state, lister };
}

const ids = ({ sandboxes, containers }: Lists): string[] => [...sandboxes, ...containers].map(({ id }) => id);
const forever = new AbortController().signal;

test('one pod alone is asked for by its label', async () => {
  const { clock, asked, lister } = world();
  const lists = lister.ofPod('a', forever);
  await clock.advance(10);
  assert.deepEqual(ids(await lists), ['sandboxes-a', 'containers-a']);
  assert.deepEqual(asked, ['sandboxes a', 'containers a']);
});

test('who asks while a list is under way shares the next one, which is begun after the question', async () => {
  const { clock, asked, lister } = world();
  const first = lister.ofPod('a', forever);
  await clock.advance(5);
  const later = [lister.ofPod('b', forever), lister.ofPod('c', forever), lister.all(forever)];
  await clock.advance(5);
  assert.deepEqual(ids(await first), ['sandboxes-a', 'containers-a']);
  await clock.advance(10);
  assert.deepEqual((await Promise.all(later)).map(ids), [
    ['sandboxes-b', 'containers-b'],
    ['sandboxes-c', 'containers-c'],
    ['sandboxes-a', 'sandboxes-b', 'sandboxes-c', 'containers-a', 'containers-b', 'containers-c'],
  ]);
  assert.deepEqual(asked, ['sandboxes a', 'containers a', 'sandboxes all', 'containers all']);
});

test('a failure is told to all who share it, and the next round is a new try', async () => {
  const { clock, state, lister } = world();
  state.broken = true;
  const failed = [lister.ofPod('a', forever), lister.ofPod('b', forever)].map((each) => assert.rejects(each, /connection refused/));
  await clock.advance(10);
  await Promise.all(failed);
  state.broken = false;
  const lists = lister.ofPod('a', forever);
  await clock.advance(10);
  assert.equal(ids(await lists).length, 2);
});

test('who gives up stops the calls only when nobody else waits for them', async () => {
  const { clock, asked, lister } = world();
  const stop = new AbortController();
  const left = assert.rejects(lister.ofPod('a', stop.signal), /enough/);
  const other = lister.ofPod('b', forever);
  await clock.advance(5);
  stop.abort(new Error('enough'));
  await left;
  await clock.advance(5);
  assert.deepEqual(ids(await other), ['sandboxes-b', 'containers-b']);
  const waits = new AbortController();
  const running = lister.ofPod('a', forever);
  await clock.advance(5);
  const given = assert.rejects(lister.ofPod('c', waits.signal), /enough/);
  waits.abort(new Error('enough'));
  await given;
  const after = lister.ofPod('b', forever);
  await clock.advance(15);
  await running;
  await after;
  assert.deepEqual(asked.slice(-2), ['sandboxes b', 'containers b']);
});
