import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createFakeClock, type FakeClock } from '../../base/fake-clock.ts';
import { OpError } from '../../base/errors.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Lease } from '../../proto/kube/types.ts';
import { keepLease } from './node-lease.ts';
import { ScriptedApi, type ApiCall } from './test-api.ts';

/** An API server with one Lease in it, or none. */
function leaseServer(initial?: Lease) {
  const state = { lease: initial, version: 1 };
  const api = new ScriptedApi((call: ApiCall) => {
    const missing = new ApiError(404, 'NotFound', 'leases "n1" not found');
    if (call.verb === 'get') {
      if (state.lease === undefined) throw missing;
      return state.lease;
    }
    const body = call.body as Lease;
    if (call.verb === 'create' && state.lease !== undefined) throw new ApiError(409, 'AlreadyExists', 'exists');
    if (call.verb === 'update') {
      if (state.lease === undefined) throw missing;
      if (body.metadata.resourceVersion !== state.lease.metadata.resourceVersion) throw new ApiError(409, 'Conflict', 'modified');
    }
    state.lease = { ...body, metadata: { ...body.metadata, resourceVersion: String(++state.version) } };
    return state.lease;
  });
  return { api, state };
}

function start(t: TestContext, api: ScriptedApi, nodeUid: () => Promise<string | undefined>): FakeClock {
  const clock = createFakeClock();
  const stop = new AbortController();
  const done = keepLease({ clock, rng: seededRng(1), log: silentLog, api, nodeName: 'n1', durationSeconds: 40, nodeUid }, stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  return clock;
}

const writes = (api: ScriptedApi): Lease[] => api.calls.filter(({ verb }) => verb !== 'get').map(({ body }) => body as Lease);

test('created when missing, then renewed every 10 s on the heartbeat lane with one owner', async (t) => {
  const { api } = leaseServer();
  const clock = start(t, api, async () => 'uid-1');
  await clock.advance(65_000);
  assert.deepEqual(api.summary(), ['get leases/n1', 'create leases', ...Array(6).fill('update leases/n1')]);
  assert.ok(api.calls.every(({ lane }) => lane === 'heartbeat'));
  const times = writes(api).map(({ spec }) => Date.parse(spec.renewTime ?? ''));
  for (const [index, time] of times.slice(1).entries()) assert.ok(time - (times[index] ?? 0) >= 10_000 && time - (times[index] ?? 0) <= 10_400);
  for (const { metadata, spec } of writes(api)) {
    assert.deepEqual(metadata.ownerReferences, [{ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'uid-1' }]);
    assert.equal(spec.leaseDurationSeconds, 40);
    assert.equal(spec.holderIdentity, 'n1');
    assert.match(spec.renewTime ?? '', /\.\d{6}Z$/);
  }
});

test('without a Node nothing is written; a new Node of that name becomes the owner', async (t) => {
  const { api, state } = leaseServer();
  let uid: string | undefined = 'uid-1';
  const clock = start(t, api, async () => uid);
  await clock.advance(25_000);
  uid = undefined;
  state.lease = undefined;
  const before = writes(api).length;
  await clock.advance(60_000);
  assert.equal(writes(api).length, before);
  uid = 'uid-2';
  await clock.advance(11_000);
  assert.deepEqual(
    (state.lease as Lease | undefined)?.metadata.ownerReferences?.map((owner) => owner.uid),
    ['uid-2'],
  );
  assert.ok(writes(api).every(({ metadata }) => metadata.ownerReferences?.length === 1));
});

test('a Lease left over from another Node, or without an owner, gets the present one', async (t) => {
  const { api, state } = leaseServer({ metadata: { name: 'n1', namespace: 'kube-node-lease', resourceVersion: '1' }, spec: { holderIdentity: 'n1' } });
  const clock = start(t, api, async () => 'uid-9');
  await clock.advance(1_000);
  assert.deepEqual(api.summary(), ['get leases/n1', 'update leases/n1']);
  assert.equal(state.lease?.metadata.ownerReferences?.[0]?.uid, 'uid-9');
});

test('a conflict is answered by reading again', async (t) => {
  const { api, state } = leaseServer();
  const clock = start(t, api, async () => 'uid-1');
  await clock.advance(1_000);
  if (state.lease !== undefined) state.lease = { ...state.lease, metadata: { ...state.lease.metadata, resourceVersion: '77' } };
  await clock.advance(10_500);
  assert.deepEqual(api.summary(), ['get leases/n1', 'create leases', 'update leases/n1', 'get leases/n1', 'update leases/n1']);
});

test('an API server that is away is tried again within the renewal, and at the next one', async (t) => {
  const { api, state } = leaseServer();
  const good = api.answer;
  api.answer = () => {
    throw new OpError('unavailable', 'call', 'refused');
  };
  const clock = start(t, api, async () => 'uid-1');
  await clock.advance(4_000);
  assert.equal(api.calls.length, 5);
  api.answer = good;
  await clock.advance(8_000);
  assert.equal(state.lease?.spec.holderIdentity, 'n1');
});
