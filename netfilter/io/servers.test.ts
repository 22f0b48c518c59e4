import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { ProxyHealth } from '../health.ts';
import { proxyMetrics } from './metrics.ts';
import { serve } from './http.ts';
import { HealthPorts, serveHealthz } from './servers.ts';

let nowMs = 1_000_000;
let monoMs = 0;
const health = new ProxyHealth({ clock: { nowMs: () => nowMs, monoMs: () => monoMs }, timeoutMs: 60_000 });
const ports = new HealthPorts({ log: silentLog, isHealthy: () => health.healthy });
after(() => ports[Symbol.asyncDispose]());

async function freePort(): Promise<number> {
  await using server = await serve('127.0.0.1', 0, () => {});
  return server.port;
}

async function get(port: number, path = '/'): Promise<{ status: number; body: string; weight: string | null }> {
  const response = await fetch(`http://127.0.0.1:${port}${path}`);
  return { status: response.status, body: await response.text(), weight: response.headers.get('x-load-balancing-endpoint-weight') };
}

test('a health-check node port tells the truth about local endpoints and about the proxy', async () => {
  const port = await freePort();
  const check = { key: 'lab/echo', port, hosts: ['127.0.0.1'] };
  await ports.update([{ ...check, localEndpoints: 2 }]);
  const two = await get(port);
  assert.deepEqual(
    [two.status, two.weight, JSON.parse(two.body)],
    [200, '2', { service: { namespace: 'lab', name: 'echo' }, localEndpoints: 2, serviceProxyHealthy: true }],
  );
  await ports.update([{ ...check, localEndpoints: 0 }]);
  assert.equal((await get(port)).status, 503);
  await ports.update([{ ...check, localEndpoints: 1 }]);
  health.updated('IPv4');
  health.queued('IPv4');
  // A clock that is set forward makes nothing late, and one that is set back hides nothing.
  nowMs += 3_600_000;
  assert.equal((await get(port)).status, 200);
  nowMs -= 7_200_000;
  monoMs += 60_000;
  const late = await get(port);
  assert.deepEqual([late.status, JSON.parse(late.body).serviceProxyHealthy], [503, false]);
  health.updated('IPv4');
  assert.equal((await get(port)).status, 200);
  nowMs += 3_600_000;
  await ports.update([]);
  await assert.rejects(get(port));
});

test('a health-check port that somebody else holds is opened once it is free', async () => {
  const holder = await serve('127.0.0.1', 0, (_request, response) => response.end('other'));
  const check = { key: 'lab/echo', port: holder.port, hosts: ['127.0.0.1'], localEndpoints: 1 };
  await ports.update([check]);
  assert.equal((await get(holder.port)).body, 'other');
  await holder[Symbol.asyncDispose]();
  await ports.update([check]);
  assert.equal((await get(holder.port)).weight, '1');
  await ports.update([]);
});

test('each address of a port is opened by itself, and trouble with one is told once', async () => {
  const told: string[] = [];
  await using several = new HealthPorts({ log: silentLog, isHealthy: () => true, failed: (service, problem) => told.push(`${service}: ${problem}`) });
  const holder = await serve('127.0.0.2', 0, () => {});
  const check = { key: 'lab/echo', port: holder.port, hosts: ['127.0.0.2', '127.0.0.1'], localEndpoints: 1 };
  await several.update([check]);
  await several.update([check]);
  assert.equal((await get(holder.port)).weight, '1');
  assert.equal(told.length, 1);
  assert.match(told[0]!, new RegExp(`^lab/echo: the health check of lab/echo cannot be served on port ${holder.port}: .*EADDRINUSE`));
  await holder[Symbol.asyncDispose]();
  await several.update([{ ...check, localEndpoints: 3 }]);
  const response = await fetch(`http://127.0.0.2:${holder.port}/`);
  assert.equal(response.headers.get('x-load-balancing-endpoint-weight'), '3');
});

test('healthz counts the node in, livez does not, and both are counted', async () => {
  const metrics = proxyMetrics();
  await using healthz = await serveHealthz({ host: '127.0.0.1', port: 0 }, health, metrics);
  assert.deepEqual([(await get(healthz.port, '/healthz')).status, (await get(healthz.port, '/livez')).status], [503, 200]);
  health.nodeChanged({ exists: true, deleting: false, toBeDeleted: false });
  const body = JSON.parse((await get(healthz.port, '/healthz')).body) as object;
  assert.deepEqual(Object.keys(body), ['lastUpdated', 'currentTime', 'nodeEligible', 'healthy', 'status']);
  health.nodeChanged({ exists: true, deleting: false, toBeDeleted: true });
  assert.equal((await get(healthz.port, '/healthz')).status, 503);
  const text = metrics.text();
  assert.match(text, /^kubeproxy_proxy_healthz_total\{code="503"\} 2$/m);
  assert.match(text, /^kubeproxy_proxy_livez_total\{code="200"\} 1$/m);
});
