import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { Cri } from './cri.ts';
import { uidLabel } from './facts.ts';
import { createPleg } from './pleg.ts';

/** A runtime with one pod, that counts how often it is listed and can be away. */
async function world(t: TestContext) {
  const clock = createFakeClock();
  const state = { lists: 0, away: false, state: 'SANDBOX_READY' };
  const runtime = {
    async listPodSandbox() {
      state.lists += 1;
      if (state.away) throw new OpError('unavailable', 'ListPodSandbox', 'connection refused');
      return { items: [{ id: 's1', metadata: null, state: state.state, createdAt: '1', labels: { [uidLabel]: 'u1' }, annotations: {}, runtimeHandler: '' }] };
    },
    listContainers: async () => ({ containers: [] }),
    getContainerEvents(): AsyncIterable<never> {
      throw new OpError('unsupported', 'GetContainerEvents', 'no');
    },
  };
  const changes: string[][] = [];
  const pleg = createPleg({
    clock,
    cri: { runtime } as unknown as Cri,
    log: silentLog,
    timeoutMs: 1000,
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
  return { clock, state, pleg, changes };
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
