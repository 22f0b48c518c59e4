import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { PodSandbox } from '../../proto/cri/types.ts';
import type { Cri } from './cri.ts';
import { uidLabel } from './facts.ts';
import { createPleg } from './pleg.ts';

/** A runtime with one pod, that counts how often it is listed and can be away. */
async function world(t: TestContext, unsupported = true) {
  const clock = createFakeClock();
  const state = { lists: 0, away: false, state: 'SANDBOX_READY', listMs: 0 };
  const sinks: ((event: object) => void)[] = [];
  const runtime = {
    async listPodSandbox(signal: AbortSignal) {
      state.lists += 1;
      if (state.listMs > 0) await clock.sleep(state.listMs, signal);
      if (state.away) throw new OpError('unavailable', 'ListPodSandbox', 'connection refused');
      return { items: [{ id: 's1', metadata: null, state: state.state, createdAt: '1', labels: { [uidLabel]: 'u1' }, annotations: {}, runtimeHandler: '' }] };
    },
    listContainers: async () => ({ containers: [] }),
    async *getContainerEvents(): AsyncIterable<object> {
      if (unsupported) throw new OpError('unsupported', 'GetContainerEvents', 'no');
      for (;;) yield await new Promise<object>((resolve) => sinks.push(resolve));
    },
  };
  const changes: string[][] = [];
  const pleg = createPleg({
    clock,
    cri: { runtime } as unknown as Cri,
    log: silentLog,
    list: async (signal) => ({ sandboxes: (await runtime.listPodSandbox(signal)).items as PodSandbox[], containers: [] }),
    isEnding: (uid) => uid === 'ending',
    onChange: (uids) => void changes.push([...uids]),
  });
  const stop = new AbortController();
  assert.equal(pleg.unhealthy(), 'pleg has yet to be successful');
  const done = pleg.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  await clock.settle();
  const ended = async (uid: string): Promise<void> => {
    for (const sink of sinks.splice(0)) sink({ containerEventType: 'CONTAINER_STOPPED_EVENT', podSandboxStatus: { metadata: { uid } } });
    await clock.settle();
  };
  return { clock, state, pleg, changes, ended, lists: () => state.lists };
}

test('the runtime is listed once a second, and told of is what has changed', async (t) => {
  const { clock, state, changes, pleg } = await world(t);
  await clock.advance(5000);
  assert.equal(state.lists, 6);
  state.state = 'SANDBOX_NOTREADY';
  await clock.advance(1000);
  assert.deepEqual(changes, [['u1'], ['u1']]);
  assert.equal(pleg.unhealthy(), null);
});

test('three minutes without a listing make the node unhealthy, the next one well', async (t) => {
  const { clock, state, pleg } = await world(t);
  state.away = true;
  await clock.advance(180_000);
  assert.equal(pleg.unhealthy(), null);
  await clock.advance(2000);
  assert.match(pleg.unhealthy() ?? '', /^pleg was last seen active 3m[12]s ago; threshold is 3m0s$/);
  state.away = false;
  await clock.advance(1000);
  assert.equal(pleg.unhealthy(), null);
});

test('an end that the runtime tells of is looked at once, a flood of them ten times a second', async (t) => {
  const { clock, ended, lists } = await world(t, false);
  await clock.advance(1000);
  assert.equal(lists(), 2);
  await ended('u1');
  await clock.advance(0);
  assert.equal(lists(), 3);
  for (let each = 0; each < 100; each += 1) {
    await ended('u1');
    await clock.advance(10);
  }
  assert.ok(lists() >= 12 && lists() <= 14, `${lists()} lists in a second`);
});

test('a runtime that takes long to answer is asked less often', async (t) => {
  const { clock, state, ended, lists } = await world(t, false);
  state.listMs = 100;
  await clock.advance(1000);
  const before = lists();
  for (let each = 0; each < 100; each += 1) {
    await ended('u1');
    await clock.advance(30);
  }
  assert.ok(lists() - before >= 9 && lists() - before <= 11, `${lists() - before} lists in 3 s`);
});

test('what a worker stops itself is no reason to look', async (t) => {
  const { clock, ended, lists } = await world(t, false);
  await clock.advance(500);
  await ended('ending');
  await clock.advance(300);
  assert.equal(lists(), 1);
});
