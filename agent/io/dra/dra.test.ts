import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { realClock } from '../../../base/clock.ts';
import { createFakeClock } from '../../../base/fake-clock.ts';
import { FakeKubeApi } from '../../../base/kubeapi/fake.ts';
import { resourceClaims } from '../../../base/kubeapi/refs.ts';
import { silentLog } from '../../../base/log.ts';
import dra from '../../../proto/plugins/dra.json' with { type: 'json' };
import type { DRAPluginMethods } from '../../../proto/plugins/dra.ts';
import health from '../../../proto/plugins/dra_health.json' with { type: 'json' };
import type { DRAResourceHealthMethods } from '../../../proto/plugins/dra_health.ts';
import type { Pod, ResourceV1ResourceClaim } from '../../../proto/kube/types.ts';
import { served, serveGrpc, serviceOf } from '../grpc.ts';
import { DraClaims } from './claims.ts';
import { DraPlugins } from './plugins.ts';

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'dra-'));
});
after(async () => {
  await rm(dir, { recursive: true });
});
const never = new AbortController().signal;
const podOf = (uid: string, claim = 'c1'): Pod => ({
  metadata: { name: `p-${uid}`, namespace: 'ns', uid },
  spec: { resourceClaims: [{ name: 'own', resourceClaimName: claim }], containers: [{ name: 'm', resources: { claims: [{ name: 'own' }] } }] },
});

function claimed(api: FakeKubeApi, uids: readonly string[], name = 'c1', driver = 'd.example'): void {
  api.put<ResourceV1ResourceClaim>(resourceClaims('ns', name), {
    metadata: { name, namespace: 'ns', uid: name === 'c1' ? 'claim-uid' : `${name}-uid` },
    spec: {},
    status: {
      reservedFor: uids.map((uid) => ({ resource: 'pods', name: uid, uid })),
      allocation: { devices: { results: [{ driver, pool: 'p', device: 'd1', request: 'r' }] } },
    },
  });
}

test('claims are prepared once for all pods and taken back with the last, across a restart', async () => {
  const api = new FakeKubeApi({ clock: realClock });
  claimed(api, ['u1', 'u2']);
  const calls: string[] = [];
  let fault = '';
  const plugins = {
    has: () => true,
    healthOf: () => null,
    call: async (driver: string, method: string, { claims = [] }: { claims?: { uid?: string }[] }) => {
      calls.push(`${method} ${driver} ${claims.map(({ uid }) => uid).join()}`);
      const devices = [{ requestNames: [], poolName: 'p', deviceName: 'd1', cdiDeviceIds: ['d.example/x=1'], shareId: '' }];
      return { claims: Object.fromEntries(claims.map(({ uid = '' }) => [uid, { error: fault, devices }])) } as never;
    },
  };
  const file = join(dir, 'dra_manager_state');
  const open = (): Promise<DraClaims> => DraClaims.open({ api, clock: realClock, log: silentLog, file, plugins, onDone() {} });
  const claims = await open();
  fault = 'no';
  const refused = await claims.prepare(podOf('u1'), never);
  assert.equal(
    refused.ok ? '' : refused.message,
    'Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for ResourceClaim c1: no',
  );
  fault = '';
  assert.deepEqual(await claims.prepare(podOf('u1'), never), { ok: true });
  assert.deepEqual(await claims.prepare(podOf('u2'), never), { ok: true });
  const [container] = podOf('u1').spec.containers;
  assert.ok(container !== undefined);
  assert.deepEqual(claims.cdiDevices(podOf('u1'), container), ['d.example/x=1']);
  const resource = { driverName: 'd.example', poolName: 'p', deviceName: 'd1', cdiDevices: [{ name: 'd.example/x=1' }], shareId: '' };
  assert.deepEqual(claims.resourcesOf(podOf('u1'), container), [{ claimName: 'c1', claimNamespace: 'ns', claimResources: [resource] }]);
  assert.throws(() => claims.cdiDevices({ ...podOf('u1'), metadata: { namespace: 'elsewhere' } }, container), /unable to get claim info for ResourceClaim c1/);
  assert.deepEqual(claims.usersOf('d.example', ['p/d1']), ['u1', 'u2']);
  assert.match(await readFile(file, 'utf8'), /claim-uid/);
  const next = await open();
  await next.unprepare('u1', never);
  fault = 'busy';
  await assert.rejects(next.unprepare('u2', never), /NodeUnprepareResources failed for ResourceClaim c1: busy/);
  fault = '';
  await next.unprepare('u2', never);
  await next.unprepare('u2', never);
  assert.deepEqual(calls, [
    'NodePrepareResources d.example claim-uid',
    'NodePrepareResources d.example claim-uid',
    'NodeUnprepareResources d.example claim-uid',
    'NodeUnprepareResources d.example claim-uid',
  ]);
  assert.match(await readFile(file, 'utf8'), /"ClaimInfoStateList\\":\[\]/);
});

test('a driver that hangs holds up who shares a claim with it, and nobody else', async () => {
  const api = new FakeKubeApi({ clock: realClock });
  claimed(api, ['u1', 'u2'], 'c1', 'slow.example');
  claimed(api, ['u3'], 'c3');
  const hangs = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  const calls: string[] = [];
  const plugins = {
    has: () => true,
    healthOf: () => null,
    call: async (driver: string, method: string, { claims = [] }: { claims?: { uid?: string }[] }) => {
      calls.push(`${method} ${driver}`);
      asked.resolve();
      if (driver === 'slow.example') await hangs.promise;
      return { claims: Object.fromEntries(claims.map(({ uid = '' }) => [uid, { error: '', devices: [] }])) } as never;
    },
  };
  const file = join(dir, 'slow');
  const claims = await DraClaims.open({ api, clock: realClock, log: silentLog, file, plugins, onDone() {} });
  const waiting = [claims.prepare(podOf('u1'), never), claims.prepare(podOf('u2'), never)];
  await asked.promise;
  assert.deepEqual(await claims.prepare(podOf('u3', 'c3'), never), { ok: true });
  await claims.unprepare('u3', never);
  assert.deepEqual(calls, ['NodePrepareResources slow.example', 'NodePrepareResources d.example', 'NodeUnprepareResources d.example']);
  hangs.resolve();
  assert.deepEqual(await Promise.all(waiting), [{ ok: true }, { ok: true }]);
  assert.equal(calls.length, 3);
  const text = await readFile(file, 'utf8');
  assert.ok(text.includes('u1') && text.includes('u2') && !text.includes('u3'), text);
});

test('a pod that may not use a claim leaves nothing to be taken back', async () => {
  const api = new FakeKubeApi({ clock: realClock });
  claimed(api, ['u9']);
  const plugins = { has: () => false, healthOf: () => null, call: async () => assert.fail('nobody is to be called') };
  const claims = await DraClaims.open({ api, clock: realClock, log: silentLog, file: join(dir, 'other'), plugins, onDone() {} });
  const words = async (uid: string): Promise<string> => {
    const result = await claims.prepare(podOf(uid), never);
    return result.ok ? 'ok' : (result.events?.[0]?.message ?? '');
  };
  assert.match(await words('u1'), /pod p-u1 \(u1\) is not allowed to use ResourceClaim c1/);
  assert.match(await words('u9'), /DRA driver d.example is not registered$/);
  await claims.unprepare('u9', never);
});

test('a plugin of the older API is called, its health followed, and one of no known service is refused', async () => {
  const heard: string[] = [];
  const told = Promise.withResolvers<string>();
  const stop = new AbortController();
  const plugins = new DraPlugins({
    api: new FakeKubeApi({ clock: realClock }),
    clock: realClock,
    log: silentLog,
    nodeName: 'n1',
    signal: stop.signal,
    onCall: (driver, method, status) => heard.push(`${driver} ${method.split('/').at(-1)} ${status}`),
    onHealth: (driver, devices) => told.resolve(`${driver} ${devices.join()}`),
  });
  const endpoint = join(dir, 'dra.sock');
  const older = serviceOf<DRAPluginMethods>(dra, 'k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin', 'k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin');
  const ends = Promise.withResolvers<void>();
  await using server = await serveGrpc(endpoint, [
    served(older, {
      NodePrepareResources: ({ claims }) => ({
        claims: Object.fromEntries(claims.map(({ uid }) => [uid, { devices: [{ poolName: 'p', deviceName: 'd', shareId: 's' }] }])),
      }),
      NodeUnprepareResources: () => ({ claims: {} }),
    }),
    served(serviceOf<DRAResourceHealthMethods>(health, 'v1.DRAResourceHealth'), {
      async *NodeWatchResources() {
        yield { devices: [{ device: { poolName: 'p', deviceName: 'd' }, health: 'UNHEALTHY', message: 'hot' }] };
        await ends.promise;
      },
    }),
  ]);
  void server;
  const plugin = { name: 'd.example', endpoint, versions: ['v1beta1.DRAPlugin', 'v1.DRAResourceHealth'] };
  assert.throws(
    () => plugins.validate({ ...plugin, versions: ['v9.DRAPlugin'] }),
    /none of services supported by the plugin \(\["v9.DRAPlugin"\]\) are supported by the kubelet/,
  );
  assert.throws(() => plugins.validate({ ...plugin, versions: [] }), /empty list of supported gRPC services/);
  await plugins.register(plugin);
  await assert.rejects(plugins.register(plugin), /already registered for DRA driver plugin d.example/);
  const answer = await plugins.call('d.example', 'NodePrepareResources', { claims: [{ uid: 'x', name: 'c', namespace: 'ns' }] }, never);
  assert.deepEqual(answer.claims['x']?.devices[0]?.deviceName, 'd');
  assert.equal(await told.promise, 'd.example p/d');
  assert.equal(plugins.healthOf('d.example', 'p', 'd')?.message, 'hot');
  assert.deepEqual(heard, ['d.example NodePrepareResources OK']);
  await plugins.deregister(plugin);
  assert.equal(plugins.has('d.example'), false);
  await assert.rejects(plugins.call('d.example', 'NodePrepareResources', {}, never), /DRA driver d.example is not registered/);
  stop.abort();
  ends.resolve();
  plugins[Symbol.dispose]();
});

test('what a driver published goes half a minute after its plugin could be reached last, and stays when it comes back in time', async () => {
  const clock = createFakeClock();
  const stop = new AbortController();
  const wiped: string[] = [];
  let status = 200;
  const api = Object.assign(new FakeKubeApi({ clock }), {
    raw: async (_method: string, _path: string, { query }: { query?: Record<string, string> } = {}) => {
      wiped.push(query?.['fieldSelector'] ?? '');
      return { status, headers: {}, body: new Uint8Array() };
    },
  });
  const seams = { onCall() {}, onHealth() {} };
  using plugins = new DraPlugins({ api, clock, log: silentLog, nodeName: 'n1', signal: stop.signal, ...seams });
  const endpoint = join(dir, 'away.sock');
  const service = serviceOf<DRAPluginMethods>(dra, 'k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin');
  const serve = (): Promise<AsyncDisposable> =>
    serveGrpc(endpoint, [served(service, { NodePrepareResources: () => ({ claims: {} }), NodeUnprepareResources: () => ({ claims: {} }) })]);
  const reachable = async (wanted: boolean): Promise<void> => {
    for (let left = 500; plugins.isReachable('d.example') !== wanted; left--) {
      assert.ok(left > 0, `it is ${wanted ? 'not ' : ''}connected`);
      await realClock.sleep(10);
    }
  };
  const first = await serve();
  await plugins.register({ name: 'd.example', endpoint, versions: ['v1.DRAPlugin'] });
  await reachable(true);
  await clock.advance(60_000);
  await first[Symbol.asyncDispose]();
  await reachable(false);
  await clock.advance(29_000);
  const second = await serve();
  await reachable(true);
  await clock.advance(60_000);
  assert.deepEqual(wiped, []);
  await second[Symbol.asyncDispose]();
  await reachable(false);
  status = 503;
  await clock.advance(31_000);
  assert.deepEqual(wiped.splice(0, 1), ['spec.driver=d.example,spec.nodeName=n1']);
  const third = await serve();
  await reachable(true);
  await third[Symbol.asyncDispose]();
  await reachable(false);
  status = 200;
  wiped.length = 0;
  await clock.advance(29_000);
  assert.deepEqual(wiped, [], 'what could not be taken back before it was there again is its own');
  await clock.advance(2_000);
  assert.equal(wiped.length, 1);
  stop.abort();
});
