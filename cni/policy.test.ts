import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../base/errors.ts';
import { createFakeClock, type FakeClock } from '../base/fake-clock.ts';
import { ApiError } from '../base/kubeapi/errors.ts';
import { FakeKubeApi } from '../base/kubeapi/fake.ts';
import * as refs from '../base/kubeapi/refs.ts';
import { silentLog } from '../base/log.ts';
import type { NetworkPolicy, Pod } from '../proto/kube/types.ts';
import { parseAddress } from './core/address.ts';
import type { PolicyTable } from './io/policy-table.ts';
import { PolicyNetwork } from './policy.ts';

/** Keeps the texts; the kernel's table is only there or not. */
class FakeTable implements PolicyTable {
  readonly texts: string[] = [];
  isThere = false;
  fails = 0;
  async write(text: string): Promise<void> {
    await Promise.resolve();
    if (this.fails > 0) {
      this.fails--;
      throw new OpError('failed', 'write', 'refused');
    }
    if (!text.includes('forward') && !text.startsWith('table') && !this.isThere) throw new OpError('failed', 'write', 'no table');
    this.isThere = !text.startsWith('table') || text.includes('forward');
    this.texts.push(text);
  }
  async read(): Promise<{ state: 'none' } | { state: 'unknown' }> {
    return await Promise.resolve({ state: this.isThere ? 'unknown' : 'none' });
  }
}

const pod = (name: string, ip: string | null, labels: Record<string, string> = {}): Pod => ({
  metadata: { name, namespace: 'x', labels },
  spec: { nodeName: 'n1', containers: [{ name: 'c' }] },
  ...(ip === null ? {} : { status: { podIP: ip, podIPs: [{ ip }] } }),
});
const policy: NetworkPolicy = { metadata: { name: 'p', namespace: 'x' }, spec: { podSelector: { matchLabels: { app: 'web' } } } };

interface Stage {
  readonly api: FakeKubeApi;
  readonly table: FakeTable;
  readonly network: PolicyNetwork;
  readonly clock: FakeClock;
}

async function run(work: (at: Stage) => Promise<void>, before: (api: FakeKubeApi) => void = () => {}): Promise<void> {
  const clock = createFakeClock();
  await using api = new FakeKubeApi({ clock });
  before(api);
  const table = new FakeTable();
  const stop = new AbortController();
  api.put(refs.namespaces('x'), { metadata: { name: 'x' } });
  const network = new PolicyNetwork({ nodeName: 'n1', table, clock, log: silentLog });
  const running = network.run(api, stop.signal).catch(() => {});
  await clock.advance(200);
  await work({ api, table, network, clock });
  stop.abort();
  await clock.settle();
  await running;
}

test('a refused write is done again as a whole one, and nothing of it is lost', async () => {
  await run(async ({ api, table, clock }) => {
    assert.equal(table.texts.length, 1);
    api.put(refs.networkPolicies('x', 'p'), policy);
    api.put(refs.pods('x', 'a'), pod('a', '10.0.0.1', { app: 'web' }));
    await clock.advance(500);
    assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump ingress/);
    table.fails = 3;
    api.put(refs.pods('x', 'b'), pod('b', '10.0.0.2', { app: 'web' }));
    await clock.advance(30_000);
    assert.match(table.texts.at(-1)!, /^table inet[\s\S]*10\.0\.0\.1 : jump[\s\S]*10\.0\.0\.2 : jump/);
    assert.equal(table.fails, 0);
  });
});

test('a table that somebody took away is there again without a change', async () => {
  await run(async ({ api, table, clock }) => {
    api.put(refs.networkPolicies('x', 'p'), policy);
    api.put(refs.pods('x', 'a'), pod('a', '10.0.0.1', { app: 'web' }));
    await clock.advance(500);
    const before = table.texts.length;
    await clock.advance(120_000);
    assert.equal(table.texts.length, before);
    table.isThere = false;
    // Changes that write nothing keep nobody from looking.
    for (let at = 0; at < 12; at++) {
      api.put(refs.pods('x', 'c'), pod('c', '10.0.0.3', { at: String(at) }));
      await clock.advance(5_000);
    }
    assert.equal(table.texts.length, before + 1);
    assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump/);
  });
});

test('a pod begins once its policies stand, by the address that the API does not know yet', async () => {
  await run(async ({ api, table, network, clock }) => {
    let isIn = false;
    const admit = (name: string, ip: string): void => {
      isIn = false;
      void network.admit(`x/${name}`, 'c1', [parseAddress(ip)!]).then(() => (isIn = true));
    };
    admit('early', '10.0.0.9');
    await clock.settle();
    assert.equal(isIn, true, 'nobody waits without policies');
    api.put(refs.networkPolicies('x', 'p'), policy);
    await clock.advance(500);
    admit('a', '10.0.0.1');
    await clock.advance(1_000);
    assert.equal(isIn, false, 'its labels are not known');
    api.put(refs.pods('x', 'a'), pod('a', null, { app: 'web' }));
    await clock.advance(500);
    assert.equal(isIn, true);
    assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump ingress/);
    const writes = table.texts.length;
    api.put(refs.pods('x', 'a'), pod('a', '10.0.0.1', { app: 'web' }));
    await clock.advance(500);
    assert.equal(table.texts.length, writes, 'the API tells what is known');
    admit('a', '10.0.0.5');
    await clock.advance(500);
    assert.equal(isIn, true);
    assert.match(table.texts.at(-1)!, /10\.0\.0\.5 : jump ingress/);
    network.release('x/a', 'c0');
    await clock.advance(500);
    assert.match(table.texts.at(-1)!, /10\.0\.0\.5 : jump ingress/);
    network.release('x/a', 'c1');
    api.remove(refs.pods('x', 'a'));
    await clock.advance(500);
    assert.match(table.texts.at(-1)!, /^table inet nodelet-policy \{ \}\ndelete table/);
    admit('never', '10.0.0.7');
    await clock.advance(10_000);
    assert.equal(isIn, true, 'a pod that nobody knows is not held for ever');
  });
});

/** A server that knows no such resource, or lets nobody read it, until it does. */
const refused =
  (code: number, times: number) =>
  (api: FakeKubeApi): void =>
    api.inject({ resource: 'clusternetworkpolicies', times, error: new ApiError(code, code === 404 ? 'NotFound' : 'Forbidden', 'refused') });
const clusterPolicy = {
  metadata: { name: 'c' },
  spec: { tier: 'Admin', priority: 1, subject: { namespaces: {} }, egress: [{ action: 'Deny', to: [{ nodes: {} }] }] },
};

for (const code of [404, 403])
  test(`without ClusterNetworkPolicies (${code}) NetworkPolicies stand, and the former once there are any`, async () => {
    await run(
      async ({ api, table, clock }) => {
        api.put(refs.networkPolicies('x', 'p'), policy);
        api.put(refs.pods('x', 'a'), pod('a', '10.0.0.1', { app: 'web' }));
        await clock.advance(500);
        assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump ingress/);
        api.put(refs.clusterNetworkPolicies('c'), clusterPolicy);
        api.put(refs.nodes('n1'), { metadata: { name: 'n1' }, status: { addresses: [{ type: 'InternalIP', address: '192.0.2.1' }] } });
        await clock.advance(300_000);
        assert.match(table.texts.at(-1)!, /set nodes-\S+-4 \{[^}]*192\.0\.2\.1/);
        assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump admin-egress-/);
        refused(404, 1000)(api);
        api.cutWatches();
        await clock.advance(60_000);
        assert.doesNotMatch(table.texts.at(-1)!, /admin-egress/);
        assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump ingress/);
      },
      refused(code, 8),
    );
  });

test('a pod waits for ClusterNetworkPolicies as for NetworkPolicies', async () => {
  await run(async ({ api, table, network, clock }) => {
    api.put(refs.clusterNetworkPolicies('c'), {
      ...clusterPolicy,
      spec: { ...clusterPolicy.spec, egress: [{ action: 'Deny', to: [{ networks: ['0.0.0.0/0'] }] }] },
    });
    await clock.advance(500);
    let isIn = false;
    void network.admit('x/a', 'c1', [parseAddress('10.0.0.1')!]).then(() => (isIn = true));
    await clock.advance(500);
    assert.equal(isIn, false);
    api.put(refs.pods('x', 'a'), pod('a', null));
    await clock.advance(500);
    assert.equal(isIn, true);
    assert.match(table.texts.at(-1)!, /10\.0\.0\.1 : jump admin-egress/);
  });
});
