import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../base/fake-clock.ts';
import type { KubeObject } from '../base/kubeapi/types.ts';
import { silentLog } from '../base/log.ts';
import { proxyConfig } from './core/config.ts';
import { FakeApi } from './fake.ts';
import { ProxyHealth } from './health.ts';
import { proxyMetrics } from './io/metrics.ts';
import { Proxy } from './proxy.ts';
import type { ServiceTable } from './sync.ts';

/** A table that writes nothing; `before` says when, or that not. */
function table(before: () => Promise<void>): ServiceTable {
  return {
    portCount: 0,
    isLarge: false,
    staleCount: 0,
    failureMetrics: { any: 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total' },
    writeChanges: async () => ({ ok: true, refused: [] }),
    writeWhole: async () => {
      await before();
      return { ok: true, refused: [] };
    },
    deleteStale: async () => ({ ok: true, deleted: 0 }),
    isIntact: async () => true,
  };
}

test('a health check is served at a family’s addresses once that family is written, with its own count', async () => {
  const clock = createFakeClock();
  const fake = new FakeApi();
  const config = proxyConfig({ mode: 'nftables', nodePortAddresses: ['all'] });
  fake.put('services', {
    kind: 'Service',
    metadata: { namespace: 'lab', name: 'echo' },
    spec: {
      type: 'LoadBalancer',
      ...{ externalTrafficPolicy: 'Local', healthCheckNodePort: 32000, ports: [{ port: 80, nodePort: 30080, protocol: 'TCP' }] },
      ...{ clusterIP: '10.96.0.8', clusterIPs: ['10.96.0.8', 'fd00:96::8'], ipFamilies: ['IPv4', 'IPv6'] },
    },
  } as KubeObject);
  const slice = (addressType: 'IPv4' | 'IPv6', ...addresses: string[]): void =>
    fake.put('endpointslices', {
      kind: 'EndpointSlice',
      metadata: { namespace: 'lab', name: `echo-${addressType}`, labels: { 'kubernetes.io/service-name': 'echo' } },
      addressType,
      ports: [{ name: '', port: 8080, protocol: 'TCP' }],
      endpoints: addresses.map((address) => ({ addresses: [address], nodeName: 'node-a', conditions: { ready: true } })),
    } as unknown as KubeObject);
  slice('IPv4', '10.244.0.3', '10.244.0.4');
  slice('IPv6', 'fd00:10:244::3');
  const written = Promise.withResolvers<void>();
  let served: string[] = [];
  const proxy = new Proxy({
    config,
    nodeName: 'node-a',
    families: ['ip', 'ip6'],
    createTable: (family) => table(async () => (family === 'ip' ? await written.promise : undefined)),
    conntrack: { deleteStale: async () => 0 },
    healthPorts: {
      update: async (checks) => {
        served = checks.flatMap(({ hosts, port, localEndpoints }) => hosts.map((host) => `${host} ${port} ${localEndpoints}`)).toSorted();
      },
    },
    health: new ProxyHealth({ clock, timeoutMs: 60_000 }),
    metrics: proxyMetrics(),
    clock,
    log: silentLog,
    machineAddresses: () => ['127.0.0.1'],
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

test('a defect in one family ends all of the proxy, so that it is started again', async () => {
  const clock = createFakeClock();
  const { api } = new FakeApi();
  const config = proxyConfig({ mode: 'nftables' });
  const proxy = new Proxy({
    config,
    nodeName: 'node-a',
    families: ['ip', 'ip6'],
    createTable: (family) =>
      table(async () => {
        if (family === 'ip6') throw new TypeError('a defect');
      }),
    conntrack: { deleteStale: async () => 0 },
    healthPorts: { update: async () => {} },
    health: new ProxyHealth({ clock, timeoutMs: 60_000 }),
    metrics: proxyMetrics(),
    clock,
    log: silentLog,
    machineAddresses: () => ['127.0.0.1'],
  });
  const ended = assert.rejects(proxy.run(api, new AbortController().signal), { name: 'TypeError', message: 'a defect' });
  await clock.advance(5_000);
  await clock.settle();
  assert.equal(clock.armed, 0, 'nothing of it goes on');
  await ended;
});
