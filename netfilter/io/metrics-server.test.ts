import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { DebugPages } from './debug-pages.ts';
import { serveMetrics, type MetricsServerOptions } from './metrics-server.ts';

const options: MetricsServerOptions = {
  page: { text: () => 'm 1\n' },
  mode: 'nftables',
  document: { mode: 'nftables' },
  flagz: () => ({ v: '2' }),
  statusz: true,
  debug: null,
  clock: { nowMs: () => 90_000 },
  startedMs: 30_000,
};

async function pages(t: TestContext, more: Partial<MetricsServerOptions> = {}): Promise<(path: string, init?: RequestInit) => Promise<string>> {
  const server = await serveMetrics({ host: '127.0.0.1', port: 0 }, { ...options, ...more });
  t.after(() => server[Symbol.asyncDispose]());
  return async (path, init) => {
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, init);
    return `${response.status} ${await response.text()}`;
  };
}

test('what is asked of the mode, the configuration and the metrics', async (t) => {
  const ask = await pages(t);
  assert.equal(await ask('/proxyMode'), '200 nftables');
  assert.equal(await ask('/configz'), '200 {"kubeproxy.config.k8s.io":{"mode":"nftables"}}');
  assert.equal(await ask('/metrics?x=y'), '200 m 1\n');
  assert.equal(await ask('/metricsz'), '404 404 page not found\n');
});

test('a target that is no URL is a page that there is not', async (t) => {
  await using server = await serveMetrics({ host: '127.0.0.1', port: 0 }, options);
  const socket = connect({ host: '127.0.0.1', port: server.port });
  t.after(() => socket.destroy());
  socket.end('GET http://[/?% HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  assert.match(await text(socket), /^HTTP\/1\.1 404 /);
});

test('a page that cannot be made is told of, and the server goes on', async (t) => {
  const ask = await pages(t, { page: { text: () => Promise.reject(new Error('no counters')) } });
  assert.equal(await ask('/metrics'), '500 no counters\n');
  assert.equal(await ask('/proxyMode'), '200 nftables');
});

test('health as upstream’s proxy tells it, and what is counted of it', async (t) => {
  const ask = await pages(t);
  assert.equal(await ask('/healthz'), '200 ok');
  assert.equal(await ask('/healthz?verbose'), '200 [+]ping ok\nhealthz check passed\n');
  assert.equal(await ask('/healthz?exclude=ping'), '200 ok');
  assert.equal(await ask('/healthz/ping'), '200 ok');
  assert.equal(await ask('/healthz/nope'), '404 404 page not found\n');
  const slis = await ask('/metrics/slis');
  assert.match(slis, /^kubernetes_healthcheck\{name="ping",type="healthz"\} 1$/m);
  assert.match(slis, /^kubernetes_healthchecks_total\{name="ping",status="success",type="healthz"\} 2$/m);
  assert.match(slis, /^process_start_time_seconds 30$/m);
  assert.equal(await ask('/metrics/slis', { method: 'DELETE' }), '200 metrics reset\n');
  assert.doesNotMatch(await ask('/metrics/slis'), /kubernetes_healthcheck/);
});

test('z-pages in both forms, and none where their gates are off', async (t) => {
  const ask = await pages(t);
  const plain = { headers: { accept: 'text/plain' } };
  const json = (kind: string): RequestInit => ({ headers: { accept: `application/json;as=${kind};v=v1beta1;g=config.k8s.io` } });
  assert.match(await ask('/flagz', plain), /^200 \nkube-proxy flagz\n.*\nv=2\n$/s);
  assert.equal(
    await ask('/flagz', json('Flagz')),
    '200 {"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"kube-proxy"},"flags":{"v":"2"}}\n',
  );
  assert.match(
    await ask('/statusz', plain),
    /^200 \nkube-proxy statusz\n.*\nUp: 0 hr 01 min 00 sec\n.*\nPaths: \/configz \/flagz \/healthz \/metrics \/proxyMode\n$/s,
  );
  assert.match(await ask('/statusz', json('Statusz')), /"metadata":\{"name":"kube-proxy"\},"startTime":"1970-01-01T00:00:30Z","uptimeSeconds":60,/);
  assert.match(await ask('/statusz', { headers: { accept: 'image/png' } }), /^406 /);
  const off = await pages(t, { flagz: null, statusz: false });
  assert.deepEqual([await off('/flagz', plain), await off('/statusz', plain)], ['404 404 page not found\n', '404 404 page not found\n']);
});

test('profiles and the verbosity where enableProfiling asks for them', async (t) => {
  const off = await pages(t);
  for (const path of ['/debug/pprof/', '/debug/pprof/goroutine', '/debug/flags/v']) assert.equal(await off(path), '404 404 page not found\n');
  const levels: number[] = [];
  const debug = new DebugPages({ clock: realClock, args: ['kube-proxy'], setVerbosity: (level) => levels.push(level) });
  const ask = await pages(t, { debug });
  assert.match(await ask('/debug/pprof/'), /^200 <html>.*href='heap\?debug=1'/s);
  assert.equal(await ask('/debug/pprof', { redirect: 'manual' }), '302 <a href="/debug/pprof/">Found</a>.\n\n');
  assert.match(await ask('/debug/pprof/goroutine?debug=1'), /^200 goroutine profile: total [1-9]/);
  assert.ok((await ask('/debug/pprof/profile?seconds=0.1')).startsWith('200 \u001f'), 'zipped');
  // The command line is a secret of upstream's too; an execution trace is what only Go's scheduler can tell.
  for (const name of ['cmdline', 'trace', 'nothing']) assert.equal(await ask(`/debug/pprof/${name}`), '404 Unknown profile\n');
  assert.equal(await ask('/debug'), '404 404 page not found\n');
  assert.equal(await ask('/debug/flags/v'), '406 unsupported http method\n');
  assert.equal(await ask('/debug/flags/v', { method: 'PUT', body: 'x' }), '400 strconv.ParseUint: parsing "x": invalid syntax\n');
  assert.equal(await ask('/debug/flags/v', { method: 'PUT', body: '3' }), '200 successfully set klog.logging.verbosity to 3\n');
  assert.deepEqual(levels, [3]);
});
