import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '../base/clock.ts';
import { createFakeClock } from '../base/fake-clock.ts';
import { OpError } from '../base/errors.ts';
import type { KubeObject } from '../base/kubeapi/types.ts';
import { silentLog } from '../base/log.ts';
import { proxyConfig } from './core/config.ts';
import { FakeApi } from './fake.ts';
import { ProxyHealth } from './health.ts';
import { proxyMetrics } from './io/metrics.ts';
import { Proxy, type ProxyOptions } from './proxy.ts';
import { gathered, type ServiceTable } from './sync.ts';

/** A table that writes nothing; `before` says when, or that not. */
function table(before: (what: 'whole' | 'changes') => Promise<void>): ServiceTable {
  return {
    portCount: 0,
    isLarge: false,
    staleCount: 0,
    failureMetrics: { any: 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total' },
    writeChanges: async () => {
      await before('changes');
      return { ok: true, refused: [] };
    },
    writeWhole: async (_settings, rules) => {
      await gathered(rules);
      await before('whole');
      return { ok: true, refused: [] };
    },
    deleteStale: async () => ({ ok: true, deleted: 0 }),
    isIntact: async () => true,
  };
}

/** A proxy of node-a on a machine that only has a loopback address. */
function proxyOf(clock: Clock, options: Pick<ProxyOptions, 'config' | 'families' | 'createTable'> & Partial<ProxyOptions>): Proxy {
  return new Proxy({
    nodeName: 'node-a',
    conntrack: { deleteStale: async () => 0 },
    healthPorts: { update: async () => {} },
    health: new ProxyHealth({ clock, timeoutMs: 60_000 }),
    metrics: proxyMetrics(),
    clock,
    log: silentLog,
    machineAddresses: () => ['127.0.0.1'],
    ...options,
  });
}

/** A Service that a load balancer asks about, with as many endpoints on this node as there are addresses. */
function putEcho(fake: FakeApi): (addressType: 'IPv4' | 'IPv6', ...addresses: string[]) => void {
  fake.put('services', {
    kind: 'Service',
    metadata: { namespace: 'lab', name: 'echo' },
    spec: {
      type: 'LoadBalancer',
      ...{ externalTrafficPolicy: 'Local', healthCheckNodePort: 32000, ports: [{ port: 80, nodePort: 30080, protocol: 'TCP' }] },
      ...{ clusterIP: '10.96.0.8', clusterIPs: ['10.96.0.8', 'fd00:96::8'], ipFamilies: ['IPv4', 'IPv6'] },
    },
  } as KubeObject);
  return (addressType, ...addresses) =>
    fake.put('endpointslices', {
      kind: 'EndpointSlice',
      metadata: { namespace: 'lab', name: `echo-${addressType}`, labels: { 'kubernetes.io/service-name': 'echo' } },
      addressType,
      ports: [{ name: '', port: 8080, protocol: 'TCP' }],
      endpoints: addresses.map((address) => ({ addresses: [address], nodeName: 'node-a', conditions: { ready: true } })),
    } as unknown as KubeObject);
}

test('a health check is served at a family’s addresses once that family is written, with its own count', async () => {
  const clock = createFakeClock();
  const fake = new FakeApi();
  const config = proxyConfig({ mode: 'nftables', nodePortAddresses: ['all'] });
  const slice = putEcho(fake);
  slice('IPv4', '10.244.0.3', '10.244.0.4');
  slice('IPv6', 'fd00:10:244::3');
  const written = Promise.withResolvers<void>();
  let served: string[] = [];
  const proxy = proxyOf(clock, {
    config,
    families: ['ip', 'ip6'],
    createTable: (family) => table(async () => (family === 'ip' ? await written.promise : undefined)),
    healthPorts: {
      update: async (checks) => {
        served = checks.flatMap(({ hosts, port, localEndpoints }) => hosts.map((host) => `${host} ${port} ${localEndpoints}`)).toSorted();
      },
    },
  });
  const stop = new AbortController();
  const running = proxy.run(fake.api, stop.signal);
  await clock.advance(6_000);
  assert.deepEqual(served, [':: 32000 1'], 'no rule of IPv4 is there yet');
  written.resolve();
  await clock.settle();
  assert.deepEqual(served, ['0.0.0.0 32000 2', ':: 32000 1']);
  slice('IPv4');
  await clock.advance(1_000);
  slice('IPv6');
  await clock.advance(1_000);
  assert.deepEqual(served, ['0.0.0.0 32000 0', ':: 32000 0']);
  stop.abort();
  await running;
});

test('a health check tells of the endpoints that the rules lead to, not of those that were heard of since', async () => {
  const clock = createFakeClock();
  const fake = new FakeApi();
  const slice = putEcho(fake);
  slice('IPv4', '10.244.0.3');
  const writes: (() => void)[] = [];
  const told: string[] = [];
  const proxy = proxyOf(clock, {
    config: proxyConfig({ mode: 'nftables', nodePortAddresses: ['all'] }),
    families: ['ip'],
    createTable: () => table(() => new Promise((resolve) => writes.push(resolve))),
    healthPorts: { update: async (checks) => void told.push(checks.map(({ hosts, localEndpoints }) => `${hosts.join(' ')} ${localEndpoints}`).join()) },
  });
  const stop = new AbortController();
  const running = proxy.run(fake.api, stop.signal);
  /** While what is worked out is written, there are `count` endpoints. */
  const written = async (count: number): Promise<void> => {
    await clock.advance(6_000);
    slice('IPv4', ...['10.244.0.3', '10.244.0.4', '10.244.0.5'].slice(0, count));
    writes.shift()!();
    await clock.settle();
  };
  await written(3);
  assert.deepEqual(told, ['0.0.0.0 1']);
  await written(2);
  assert.deepEqual(told, ['0.0.0.0 1', '0.0.0.0 3']);
  await written(0);
  await written(0);
  assert.deepEqual(told, ['0.0.0.0 1', '0.0.0.0 3', '0.0.0.0 2', '0.0.0.0 0']);
  fake.remove('services', 'lab', 'echo');
  await written(0);
  await written(0);
  assert.equal(told.at(-1), '');
  stop.abort();
  await running;
});

test('somebody else’s change is looked for while something of ours changes all the time', async () => {
  const clock = createFakeClock();
  const fake = new FakeApi();
  const slice = putEcho(fake);
  const writes: string[] = [];
  let looks = 0;
  const proxy = proxyOf(clock, {
    config: proxyConfig({ mode: 'nftables' }),
    families: ['ip'],
    createTable: () => ({
      ...table(async (what) => void writes.push(what)),
      isIntact: async () => ++looks !== 2,
    }),
  });
  const stop = new AbortController();
  const running = proxy.run(fake.api, stop.signal);
  await clock.advance(6_000);
  for (let second = 0; second < 95; second++) {
    slice('IPv4', `10.244.0.${second}`);
    await clock.advance(1_000);
  }
  assert.equal(looks, 3, 'every 30 s');
  assert.deepEqual([...new Set(writes)], ['whole', 'changes']);
  assert.equal(writes.filter((what) => what === 'whole').length, 2, 'and what is found is repaired');
  stop.abort();
  await running;
});

test('an end while all is worked out is none that failed, and the rest is not worked out any more', async () => {
  const clock = createFakeClock();
  const fake = new FakeApi();
  for (let number = 0; number < 1000; number++) {
    fake.put('services', { kind: 'Service', metadata: { namespace: 'lab', name: `s${number}` }, spec: { clusterIP: '10.96.0.1' } } as KubeObject);
  }
  const stop = new AbortController();
  const lines: string[] = [];
  const note = (line: string): void => void lines.push(line);
  let parts = 0;
  const proxy = proxyOf(clock, {
    config: proxyConfig({ mode: 'nftables' }),
    families: ['ip'],
    createTable: () => ({
      ...table(async () => {}),
      writeWhole: async (_settings, rules) => {
        for await (const _ of rules) if (++parts === 2) stop.abort();
        return { ok: false, error: new OpError('aborted', 'write', 'stopped by the caller') };
      },
    }),
    log: { ...silentLog, error: note, warn: note },
  });
  const running = proxy.run(fake.api, stop.signal);
  await clock.advance(6_000);
  await running;
  assert.deepEqual([parts, lines], [2, []]);
});

test('a defect in one family ends all of the proxy, so that it is started again', async () => {
  const clock = createFakeClock();
  const { api } = new FakeApi();
  const config = proxyConfig({ mode: 'nftables' });
  const proxy = proxyOf(clock, {
    config,
    families: ['ip', 'ip6'],
    createTable: (family) =>
      table(async () => {
        if (family === 'ip6') throw new TypeError('a defect');
      }),
  });
  const ended = assert.rejects(proxy.run(api, new AbortController().signal), { name: 'TypeError', message: 'a defect' });
  await clock.advance(5_000);
  await clock.settle();
  assert.equal(clock.armed, 0, 'nothing of it goes on');
  await ended;
});
