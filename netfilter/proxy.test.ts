import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../base/fake-clock.ts';
import { silentLog } from '../base/log.ts';
import { proxyConfig } from './core/config.ts';
import { FakeApi } from './fake.ts';
import { ProxyHealth } from './health.ts';
import { proxyMetrics } from './io/metrics.ts';
import { HealthPorts } from './io/servers.ts';
import { Proxy } from './proxy.ts';
import type { ServiceTable } from './sync.ts';

test('a defect in one family ends all of the proxy, so that it is started again', async () => {
  const clock = createFakeClock();
  const { api } = new FakeApi();
  const config = proxyConfig({ mode: 'nftables' });
  const table = (isBroken: boolean): ServiceTable => ({
    portCount: 0,
    isLarge: false,
    staleCount: 0,
    failureMetrics: { any: 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total' },
    writeChanges: async () => ({ ok: true, refused: [] }),
    writeWhole: async () => {
      if (isBroken) throw new TypeError('a defect');
      return { ok: true, refused: [] };
    },
    deleteStale: async () => ({ ok: true, deleted: 0 }),
    isIntact: async () => true,
  });
  const proxy = new Proxy({
    config,
    nodeName: 'node-a',
    families: ['ip', 'ip6'],
    createTable: (family) => table(family === 'ip6'),
    conntrack: { deleteStale: async () => 0 },
    healthPorts: new HealthPorts({ log: silentLog, isHealthy: () => true }),
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
