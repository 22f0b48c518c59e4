import assert from 'node:assert/strict';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { ClientMetrics } from '../../base/kubeapi/client-metrics.ts';
import { silentLog } from '../../base/log.ts';
import { proxyMetrics } from './metrics.ts';
import { metricsPage } from './page.ts';

test('the page has the proxy’s own metrics, its calls to the API server and those of every process, each once', async () => {
  const requests = new ClientMetrics(realClock);
  await requests.around({ method: 'GET', url: 'https://10.0.0.1:6443/api', bodyBytes: 0 }, async (_headers, onAnswer) => onAnswer(200, 10));
  const page = metricsPage({
    ...{ metrics: proxyMetrics(), requests, loopDelay: { text: () => '' }, startedSeconds: 5, log: silentLog },
    readCounters: () => Promise.reject(new Error('no such counter')),
  });
  const text = await page.text();
  const names = [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
  for (const name of [
    'kubeproxy_sync_proxy_rules_service_changes_total',
    'kubernetes_build_info',
    'process_cpu_seconds_total',
    'process_open_fds',
    'process_resident_memory_bytes',
    'process_start_time_seconds',
    'rest_client_request_duration_seconds',
    'rest_client_requests_total',
  ])
    assert.ok(names.includes(name), name);
  assert.equal(new Set(names).size, names.length);
  assert.match(text, /^rest_client_requests_total\{code="200",host="10\.0\.0\.1:6443",method="GET"\} 1$/m);
  assert.match(text, /^process_start_time_seconds 5$/m);
});
