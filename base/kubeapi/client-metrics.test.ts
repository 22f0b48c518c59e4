import assert from 'node:assert/strict';
import { test } from 'node:test';
import { realClock } from '../clock.ts';
import { createKubeApi } from './client.ts';
import { pods } from './refs.ts';
import { configFor, TestServer } from './test-server.ts';
import { silentLog } from '../log.ts';
import { seededRng } from '../rng.ts';
import { ClientMetrics } from './client-metrics.ts';
import type { RequestTracer } from './client-metrics.ts';

test('requests are counted and traced as client-go has them, watches too', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  const spans: { name: string; attributes: Record<string, string | number> }[] = [];
  const tracer: RequestTracer = {
    traceparent: () => `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`,
    async span(name, options, work) {
      const span = { name, attributes: { ...options.attributes } };
      spans.push(span);
      return work((more) => void Object.assign(span.attributes, more));
    },
  };
  const observer = new ClientMetrics(realClock, tracer);
  await using api = createKubeApi({ config: configFor(port), log: silentLog, clock: realClock, rng: seededRng(1), userAgent: 'test/1', qps: 50, observer });
  await assert.rejects(api.get(pods('ns', 'p')), /not found/);
  server.handler = () => ({ status: 201, body: { metadata: { name: 'p' } } });
  await api.create(pods('ns'), { metadata: { name: 'p' } });
  const host = `127.0.0.1:${port}`;
  const text = observer.text();
  for (const line of [
    `rest_client_requests_total{code="404",host="${host}",method="GET"} 1`,
    `rest_client_requests_total{code="201",host="${host}",method="POST"} 1`,
    `rest_client_request_duration_seconds_count{host="${host}",verb="POST"} 1`,
    `rest_client_request_size_bytes_sum{host="${host}",verb="POST"} 25`,
    `rest_client_rate_limiter_duration_seconds_count{host="${host}",verb="GET"} 1`,
  ])
    assert.ok(text.includes(`${line}\n`), `${line}\n${text}`);
  assert.deepEqual(spans[0], {
    name: 'HTTP GET',
    attributes: {
      'http.request.method': 'GET',
      'url.full': `https://${host}/api/v1/namespaces/ns/pods/p`,
      'server.address': '127.0.0.1',
      'server.port': port,
      'http.response.status_code': 404,
      'error.type': '404',
    },
  });
  assert.match(server.requests[0]?.headers['traceparent'] ?? '', /^00-a+-b+-01$/);
});
