import assert from 'node:assert/strict';
import { createServer, type ServerHttp2Stream } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { RpcError } from '../../cri/mod.ts';
import type { CallOptions } from '../../cri/transport.ts';
import { createTracer, noTracer, openTracer, traceCalls } from './tracer.ts';

/** A collector that keeps what it gets: the paths, and the messages as text in which names can be found. */
async function collector(t: TestContext) {
  const got: { path: string; text: string }[] = [];
  const sessions = new Set<{ destroy(): void }>();
  const server = createServer();
  server.on('session', (session) => sessions.add(session));
  server.on('stream', (stream: ServerHttp2Stream, headers) => {
    const pieces: Buffer[] = [];
    stream.on('data', (piece: Buffer) => pieces.push(piece));
    stream.on('end', () => {
      const body = Buffer.concat(pieces);
      assert.equal(body.readUInt32BE(1), body.length - 5);
      got.push({ path: String(headers[':path']), text: body.subarray(5).toString('latin1') });
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.end(Buffer.alloc(5));
    });
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.after(() => {
    for (const session of sessions) session.destroy();
    server.close();
  });
  return { got, endpoint: `127.0.0.1:${(server.address() as AddressInfo).port}` };
}

test('spans nest, go on in the runtime, and reach the collector', async (t) => {
  const { got, endpoint } = await collector(t);
  const clock = createFakeClock();
  const tracer = createTracer({ clock, log: silentLog, endpoint, perMillion: 1_000_000, hostname: 'n1' });
  const stop = new AbortController();
  const running = tracer.run(stop.signal);
  let sent: CallOptions | undefined;
  const calls = traceCalls(tracer);
  let outside: string | null = '';
  await tracer.span('syncPod', { attributes: { 'k8s.pod.name': 'p' } }, async (set) => {
    outside = tracer.traceparent();
    await calls.call?.({ service: 'RuntimeService', method: 'RunPodSandbox', request: {} }, { timeoutMs: 1 }, async (_call, options) => {
      sent = options;
      return {};
    });
    set({ done: 1 });
  });
  const inside = sent?.headers?.['traceparent'] ?? '';
  assert.equal(inside.split('-')[1], (outside ?? '').split('-')[1]);
  assert.notEqual(inside.split('-')[2], (outside ?? '').split('-')[2]);
  assert.match(inside, /-01$/);
  assert.equal(tracer.traceparent(), null);
  await assert.rejects(
    tracer.span('broken', {}, () => Promise.reject(new Error('no luck'))),
    /no luck/,
  );
  const missing = new RpcError('NotFound', 'ContainerStatus', 'no such container');
  await assert.rejects(async () => {
    await calls.call?.({ service: 'RuntimeService', method: 'ContainerStatus', request: {} }, { timeoutMs: 1 }, () => Promise.reject(missing));
  }, /no such container/);
  stop.abort();
  await running;
  assert.equal(got[0]?.path, '/opentelemetry.proto.collector.trace.v1.TraceService/Export');
  for (const word of [
    'syncPod',
    'runtime.v1.RuntimeService/RunPodSandbox',
    'k8s.pod.name',
    'service.name',
    'kubelet',
    'broken',
    'no luck',
    'rpc.system.name',
    'rpc.response.status_code',
    'NOT_FOUND',
  ])
    assert.ok(got[0]?.text.includes(word), word);
});

test('a caller’s decision counts, and without a rate of one’s own nothing is begun', async (t) => {
  const { got, endpoint } = await collector(t);
  const tracer = openTracer({ endpoint }, { clock: createFakeClock(), log: silentLog, hostname: 'n1' });
  const stop = new AbortController();
  const running = tracer.run(stop.signal);
  const parent = { traceId: 'a'.repeat(32), spanId: 'b'.repeat(16), sampled: true };
  await tracer.span('own', {}, async () => assert.match(tracer.traceparent() ?? '', /-00$/));
  await tracer.span('asked', { parent, kind: 'server' }, async () => assert.match(tracer.traceparent() ?? '', new RegExp(`^00-${parent.traceId}-.*-01$`)));
  stop.abort();
  await running;
  assert.ok(got[0]?.text.includes('asked'));
  assert.ok(!got[0]?.text.includes('own'));
});

test('a collector that is away stops nothing, and no configuration is no tracer', async () => {
  const clock = createFakeClock();
  const tracer = createTracer({ clock, log: silentLog, endpoint: '127.0.0.1:1', perMillion: 1_000_000, hostname: 'n1' });
  const stop = new AbortController();
  const running = tracer.run(stop.signal);
  assert.equal(await tracer.span('a', {}, async () => 7), 7);
  stop.abort();
  await running;
  assert.equal(openTracer(null, { clock, log: silentLog, hostname: 'n1' }), noTracer);
});
