import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { HttpMetrics } from './http-metrics.ts';

test('requests are counted by what they ask for, and a stranger’s paths are one', async () => {
  const clock = createFakeClock();
  const metrics = new HttpMetrics(clock);
  const over = metrics.began('GET', '/metrics/cadvisor?x', 'readwrite');
  for (const [method, url] of [
    ['POST', '/exec/ns/p/c'],
    ['BREW', '/coffee'],
    ['GET', '/tea'],
  ] as const)
    metrics.began(method, url, 'readwrite')();
  metrics.streamed('exec');
  await clock.advance(2_000);
  const during = metrics.text();
  assert.match(during, /kubelet_http_inflight_requests\{long_running="false",method="GET",path="metrics\/cadvisor",server_type="readwrite"\} 1\n/);
  over();
  over();
  const text = metrics.text();
  assert.match(text, /kubelet_http_inflight_requests\{long_running="false",method="GET",path="metrics\/cadvisor",server_type="readwrite"\} 0\n/);
  assert.match(text, /kubelet_http_requests_duration_seconds_sum\{long_running="false",method="GET",path="metrics\/cadvisor",server_type="readwrite"\} 2\n/);
  assert.match(text, /kubelet_http_requests_total\{long_running="true",method="POST",path="exec",server_type="readwrite"\} 1\n/);
  assert.match(text, /kubelet_http_requests_total\{long_running="false",method="other",path="other",server_type="readwrite"\} 1\n/);
  assert.match(text, /kubelet_websocket_streaming_requests_total\{subresource="exec"\} 1\n/);
  assert.ok(!text.includes('coffee'));
});
