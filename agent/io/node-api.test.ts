import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { OpError } from '../../base/errors.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Node, NodeCondition } from '../../proto/kube/types.ts';
import type { NodeFacts, NodeSettings } from '../core/node-status.ts';
import { createNodeApi } from './node-api.ts';
import { absentApi, standaloneProblem } from './standalone.ts';
import { ScriptedApi, type ApiCall } from './test-api.ts';

const settings: NodeSettings = {
  nodeName: 'n1',
  kubeletVersion: 'v1.37.2',
  port: 10250,
  maxPods: 110,
  podsPerCore: 0,
  kubeReserved: {},
  systemReserved: {},
  evictionHard: {},
  labels: {},
  taints: [],
  providerID: '',
  declaredFeatures: [],
};
const facts: NodeFacts = {
  machine: {
    hostname: 'n1',
    architecture: 'amd64',
    kernelVersion: 'k',
    osImage: 'o',
    machineID: 'm',
    systemUUID: 's',
    bootID: 'b',
    cpus: 2,
    memoryBytes: 2 ** 30,
    swapBytes: 0,
    hugepages: {},
  },
  runtime: { version: 'containerd://2.4.0', handlers: [], supplementalGroupsPolicy: false, troubles: [] },
  pressures: { memory: false, disk: false, pid: false },
  addresses: [{ type: 'InternalIP', address: '10.0.0.5' }],
  ephemeralBytes: null,
  images: [],
};

interface World {
  node: Node | undefined;
  version: number;
  /** Nodes may not be made. */
  forbids?: boolean;
}

/** Just enough of an API server to hold one Node; patches of the status are merged by field and by condition type. */
function nodeServer(world: World) {
  return new ScriptedApi((call: ApiCall) => {
    if (call.ref.resource !== 'nodes') return { metadata: {} };
    if (call.verb === 'create') {
      if (world.forbids === true) throw new ApiError(403, 'Forbidden', 'no');
      if (world.node !== undefined) throw new ApiError(409, 'AlreadyExists', 'exists');
      world.node = { ...(call.body as Node), metadata: { ...(call.body as Node).metadata, uid: 'u1', resourceVersion: String(++world.version) } };
      return world.node;
    }
    if (world.node === undefined) throw new ApiError(404, 'NotFound', 'nodes "n1" not found');
    if (call.verb !== 'patch') return world.node;
    const patch = call.body as { metadata?: object; status?: { conditions?: NodeCondition[] } };
    const conditions = world.node.status?.conditions ?? [];
    const changed = patch.status?.conditions ?? [];
    world.node = {
      ...world.node,
      metadata: { ...world.node.metadata, ...patch.metadata, resourceVersion: String(++world.version) },
      status: {
        ...world.node.status,
        ...patch.status,
        conditions: [...conditions.filter(({ type }) => !changed.some((each) => each.type === type)), ...changed],
      },
    };
    return world.node;
  });
}

function start(
  t: TestContext,
  world: World,
  overrides: { facts?: () => NodeFacts; register?: boolean; registerAgain?: boolean; getOnExistsOnly?: boolean } = {},
) {
  const clock = createFakeClock();
  const api = nodeServer(world);
  const told: string[] = [];
  const node = createNodeApi({
    clock,
    rng: seededRng(3),
    log: silentLog,
    api,
    events: { event: (_target, _type, reason) => void told.push(reason) },
    settings,
    register: overrides.register ?? true,
    registerAgain: overrides.registerAgain ?? false,
    getOnExistsOnly: overrides.getOnExistsOnly ?? false,
    leaseDurationSeconds: 40,
    statusUpdateMs: 10_000,
    statusReportMs: 300_000,
    facts: async () => (overrides.facts ?? (() => facts))(),
  });
  const stop = new AbortController();
  const done = node.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  const statusWrites = () => api.calls.filter(({ verb, ref }) => verb === 'patch' && ref.subresource === 'status');
  return { clock, api, node, told, statusWrites };
}

test('registers, and writes the status again only every five minutes when nothing is new', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api, node, told, statusWrites } = start(t, world);
  await clock.advance(1_000);
  assert.equal(api.summary()[0], 'create nodes');
  assert.equal((await node.ready(new AbortController().signal)).metadata.uid, 'u1');
  assert.deepEqual(node.hostIPs(), ['10.0.0.5']);
  assert.deepEqual(told, ['NodeHasSufficientMemory', 'NodeHasNoDiskPressure', 'NodeHasSufficientPID', 'NodeReady']);
  assert.equal(statusWrites().length, 0);
  await clock.advance(298_000);
  assert.equal(statusWrites().length, 0);
  await clock.advance(12_000);
  assert.equal(statusWrites().length, 1);
  await clock.advance(300_000);
  assert.equal(statusWrites().length, 2);
  assert.ok(api.calls.every(({ lane }) => lane === 'heartbeat'));
});

test('an existing node is reconciled, not replaced', async (t) => {
  const world: World = {
    node: { metadata: { name: 'n1', uid: 'old', resourceVersion: '1', labels: { mine: 'x' } }, spec: { podCIDR: '10.1.0.0/24' } },
    version: 1,
  };
  const { clock, api } = start(t, world);
  await clock.advance(500);
  assert.deepEqual(
    api.summary().filter((line) => !line.includes('leases')),
    ['create nodes', 'get nodes/n1', 'patch nodes/n1', 'patch nodes/n1/status'],
  );
  assert.equal(world.node?.spec.podCIDR, '10.1.0.0/24');
  assert.equal(world.node?.metadata.uid, 'old');
});

test('a Node that may not be made is looked for, unless that is switched off', async (t) => {
  const world = (): World => ({ node: { metadata: { name: 'n1', uid: 'old', resourceVersion: '1' }, spec: {} }, version: 1, forbids: true });
  const { clock, node } = start(t, world());
  await clock.advance(500);
  assert.equal(node.node()?.metadata.uid, 'old');
  const other = start(t, world(), { getOnExistsOnly: true });
  await other.clock.advance(500);
  assert.equal(other.node.node(), undefined);
});

test('the labels of architecture and system are put back while the agent runs, with the status', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api, statusWrites } = start(t, world);
  await clock.advance(1_000);
  const made = world.node;
  assert.ok(made !== undefined);
  const labels = { ...made.metadata.labels, 'kubernetes.io/os': 'dummyOS', 'kubernetes.io/arch': 'dummyArch', mine: 'x' };
  world.node = { ...made, metadata: { ...made.metadata, labels, resourceVersion: String(++world.version) } };
  for (const { handler } of api.reflected) handler.changed('MODIFIED', world.node);
  await clock.advance(12_000);
  assert.deepEqual(
    statusWrites().map(({ body }) => (body as Node).metadata),
    [{ labels: { 'kubernetes.io/arch': 'amd64', 'kubernetes.io/os': 'linux' } }],
  );
});

test('news goes out at the next look, or at once when kicked', async (t) => {
  const world: World = { node: undefined, version: 1 };
  let now = facts;
  const { clock, node, told, statusWrites } = start(t, world, { facts: () => now });
  await clock.advance(1_000);
  now = { ...facts, runtime: { ...facts.runtime, troubles: ['PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s'] } };
  node.kick();
  await clock.settle();
  assert.equal(statusWrites().length, 1);
  assert.equal(told.at(-1), 'NodeNotReady');
  assert.equal(world.node?.status?.conditions?.find(({ type }) => type === 'Ready')?.reason, 'KubeletNotReady');
  now = facts;
  await clock.advance(11_000);
  assert.equal(statusWrites().length, 2);
  assert.equal(told.at(-1), 'NodeReady');
});

test('until the runtime was ready once the state is looked at ten times a second', async (t) => {
  const world: World = { node: undefined, version: 1 };
  let now: NodeFacts = { ...facts, runtime: { ...facts.runtime, troubles: ['container runtime status check may not have completed yet'] } };
  const { clock, told } = start(t, world, { facts: () => now });
  await clock.advance(1_050);
  now = facts;
  await clock.advance(150);
  assert.equal(told.at(-1), 'NodeReady');
});

test('a deleted Node is not made again, and its Lease is not renewed', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api, node } = start(t, world);
  await clock.advance(1_000);
  world.node = undefined;
  for (const { handler } of api.reflected) handler.changed('DELETED', { metadata: { name: 'n1' } });
  api.calls.length = 0;
  await clock.advance(60_000);
  assert.equal(node.node(), undefined);
  assert.deepEqual([...new Set(api.summary())], ['get nodes/n1']);
});

test('wished: a deleted Node is registered again, told or not', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api, node, statusWrites } = start(t, world, { registerAgain: true });
  await clock.advance(1_000);
  for (const isTold of [true, false]) {
    world.node = undefined;
    if (isTold) for (const { handler } of api.reflected) handler.changed('DELETED', { metadata: { name: 'n1' } });
    const before = statusWrites().length;
    await clock.advance(320_000);
    assert.notEqual(node.node(), undefined, String(isTold));
    assert.ok(statusWrites().length > before || isTold);
  }
  assert.equal(api.calls.filter(({ verb, ref }) => verb === 'create' && ref.resource === 'nodes').length, 3);
});

test('registration goes on until the API server is there', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api } = start(t, world);
  const good = api.answer;
  api.answer = () => {
    throw new OpError('unavailable', 'call', 'refused');
  };
  await clock.advance(20_000);
  const tried = api.calls.length;
  assert.ok(tried >= 5 && tried <= 10, String(tried));
  api.answer = good;
  await clock.advance(8_000);
  assert.equal(world.node?.metadata.name, 'n1');
});

test('cordoning is told, and events carry the UID of the Node', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api, node, told } = start(t, world);
  assert.equal(node.target.uid, '');
  await clock.advance(1_000);
  assert.equal(node.target.uid, 'u1');
  for (const unschedulable of [true, true, undefined]) {
    world.node = { ...(world.node as Node), metadata: { ...world.node?.metadata, resourceVersion: String(++world.version) }, spec: { unschedulable } };
    for (const { handler } of api.reflected) handler.changed('MODIFIED', world.node);
  }
  assert.deepEqual(told.slice(-2), ['NodeNotSchedulable', 'NodeSchedulable']);
});

test('without registerNode the Node is waited for', async (t) => {
  const world: World = { node: undefined, version: 1 };
  const { clock, api, node } = start(t, world, { register: false });
  await clock.advance(5_000);
  assert.ok(!api.summary().includes('create nodes'));
  world.node = { metadata: { name: 'n1', uid: 'u7', resourceVersion: '5' }, spec: {} };
  await clock.advance(8_000);
  assert.equal(node.node()?.metadata.uid, 'u7');
});

test('standalone: the Node is made up here and nobody is asked', async () => {
  const clock = createFakeClock();
  const api = absentApi();
  const stop = new AbortController();
  const node = createNodeApi({
    clock,
    api,
    settings,
    rng: seededRng(1),
    log: silentLog,
    events: { event: () => undefined },
    register: true,
    standalone: true,
    leaseDurationSeconds: 40,
    statusUpdateMs: 10_000,
    statusReportMs: 300_000,
    facts: async () => facts,
  });
  const running = node.run(stop.signal);
  const made = await node.ready(stop.signal);
  assert.equal(made.metadata.uid, undefined);
  assert.equal(made.status?.capacity?.['pods'], '110');
  assert.deepEqual(node.hostIPs(), ['10.0.0.5']);
  await clock.advance(10_000);
  assert.equal(
    node.node()?.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True'),
    true,
  );
  stop.abort();
  await running;
});

test('without an API server nothing that needs one is started', () => {
  const base = { enableServer: true, serverTLSBootstrap: false };
  const config = (webhook: boolean, mode: string) =>
    ({ ...base, authentication: { webhook: { enabled: webhook } }, authorization: { mode } }) as unknown as Parameters<typeof standaloneProblem>[0];
  assert.equal(standaloneProblem(config(false, 'AlwaysAllow')), null);
  assert.match(standaloneProblem(config(true, 'AlwaysAllow')) ?? '', /cannot use webhook authentication/);
  assert.match(standaloneProblem(config(false, 'Webhook')) ?? '', /cannot use webhook authorization/);
  assert.equal(standaloneProblem({ ...config(true, 'Webhook'), enableServer: false }), null);
});
