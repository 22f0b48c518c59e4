import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { once } from 'node:events';
import type { ServerHttp2Stream } from 'node:http2';
import { createServer } from 'node:https';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test as testOnce, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pod } from '../../proto/kube/types.ts';
import { realClock, type Clock } from '../clock.ts';
import { hasCode } from '../errors.ts';
import { silentLog } from '../log.ts';
import { seededRng } from '../rng.ts';
import { createKubeApi } from './client.ts';
import { ApiError } from './errors.ts';
import type { KubeApiOptions } from './kube-client.ts';
import { createPlainKubeApi } from './plain.ts';
import { configMaps, leases, pods } from './refs.ts';
import { authority, clientPair, configFor, serving, TestServer, Wire } from './test-server.ts';
import type { KubeApi } from './types.ts';

/** Time that goes fifty times faster. */
const quick: Clock = {
  ...realClock,
  monoMs: () => realClock.monoMs() * 50,
  sleep: (ms, signal) => realClock.sleep(ms / 50, signal),
  after: (ms, callback) => realClock.after(ms / 50, callback),
};

let create: typeof createKubeApi = createKubeApi;

/** Runs a test with undici and with Node's own modules. */
function test(name: string, body: (t: TestContext) => Promise<void>): void {
  for (const [by, how] of Object.entries({ undici: createKubeApi, plain: createPlainKubeApi }))
    testOnce(`${by}: ${name}`, async (t) => {
      create = how;
      await body(t);
    });
}

function open(port: number, extra: Partial<KubeApiOptions> = {}): KubeApi {
  return create({ config: configFor(port), log: silentLog, clock: realClock, rng: seededRng(1), userAgent: 'test/1', ...extra });
}

async function until(condition: () => boolean, what: string, ms = 5000): Promise<void> {
  for (let waited = 0; !condition(); waited += 5) {
    assert.ok(waited < ms, `not within ${ms} ms: ${what}`);
    await delay(5);
  }
}

function pod(name: string, version: number): Pod {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: 'a', resourceVersion: String(version) }, spec: { containers: [] } };
}

const bookmark = (version: number, end = false): unknown => ({
  type: 'BOOKMARK',
  object: { kind: 'Pod', metadata: { resourceVersion: String(version), ...(end && { annotations: { 'k8s.io/initial-events-end': 'true' } }) } },
});

const status = (code: number, reason: string, message = reason): unknown => ({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code, reason, message });

/** A handler that writes down what it hears. */
function recorder(): {
  log: string[];
  handler: { replaced(items: readonly Pod[]): void; changed(type: string, object: Pod): void; trouble(error: unknown): void };
} {
  const log: string[] = [];
  return {
    log,
    handler: {
      replaced: (items) => void log.push(`replaced ${items.map((item) => `${item.kind}/${item.metadata.name}`).join(',')}`),
      changed: (type, object) => void log.push(`${type} ${object.metadata.name}`),
      trouble: (error) => void log.push(`trouble ${error instanceof ApiError ? error.code : (error as { code: string }).code}`),
    },
  };
}

test('a request carries token, agent and content type; answers become objects and ApiErrors', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = (request) => {
    if (request.method === 'PATCH') return { body: pod('p', 2) };
    return { status: 409, headers: { 'retry-after': '3' }, body: status(409, 'Conflict', 'changed meanwhile') };
  };
  await using api = open(port, { config: configFor(port, { token: 'secret' }) });
  const answer = await api.patch<Pod>({ ...pods('a', 'p'), subresource: 'status' }, 'apply', { x: 1 }, { force: true, query: { fieldManager: 'me' } });
  assert.equal(answer.metadata.name, 'p');
  const [request] = server.requests;
  assert.equal(`${request?.method} ${request?.path} ${request?.query.toString()}`, 'PATCH /api/v1/namespaces/a/pods/p/status force=true&fieldManager=me');
  assert.equal(request?.headers['content-type'], 'application/apply-patch+yaml');
  assert.equal(request?.headers['authorization'], 'Bearer secret');
  assert.equal(request?.headers['user-agent'], 'test/1');
  await assert.rejects(
    api.update(pods('a', 'p'), pod('p', 1)),
    (error: unknown) => error instanceof ApiError && error.code === 409 && error.reason === 'Conflict' && error.retryAfterMs === 3000,
  );
});

test('a server whose certificate the kubeconfig does not vouch for is refused', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  await using api = open(port, { config: configFor(port, { ca: { data: Buffer.from(clientPair('other').certificatePem) } }) });
  await assert.rejects(api.get(pods('a', 'p')), (error: unknown) => hasCode(error, 'denied'));
  await using trusting = open(port, { config: { server: `https://127.0.0.1:${port}`, namespace: 'default', insecure: true } });
  await assert.rejects(trusting.get(pods('a', 'p')), (error: unknown) => error instanceof ApiError && error.code === 404);
});

test('nobody there is unavailable, no answer is deadline, giving up is aborted', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = () => ({ live: () => {} });
  await using api = open(port);
  await assert.rejects(api.get(pods('a', 'p'), { timeoutMs: 50 }), (error: unknown) => hasCode(error, 'deadline'));
  const controller = new AbortController();
  const call = api.get(pods('a', 'p'), {}, controller.signal);
  await delay(20);
  controller.abort();
  await assert.rejects(call, (error: unknown) => hasCode(error, 'aborted'));
  await using nobody = open(1);
  await assert.rejects(nobody.get(pods('a', 'p')), (error: unknown) => hasCode(error, 'unavailable'));
});

test('429 is waited out as long as the server says, within the time given', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  let refusals = 2;
  server.handler = () => (refusals-- > 0 ? { status: 429, headers: { 'retry-after': '1' }, body: status(429, 'TooManyRequests') } : { body: pod('p', 1) });
  await using api = open(port, { clock: quick });
  const startedMs = performance.now();
  await api.get(pods('a', 'p'));
  assert.ok(performance.now() - startedMs >= 39, 'two pauses of one (short) second');
  assert.equal(server.requests.length, 3);
  refusals = 1;
  await assert.rejects(open(port).get(pods('a', 'p'), { timeoutMs: 500 }), (error: unknown) => error instanceof ApiError && error.code === 429);
});

test('the rate is limited after a first burst, but never for heartbeats', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = () => ({ body: pod('p', 1) });
  await using api = open(port, { qps: 20, burst: 2 });
  const startedMs = performance.now();
  for (let count = 0; count < 4; count++) await api.get(pods('a', 'p'));
  const limitedMs = performance.now() - startedMs;
  assert.ok(limitedMs >= 90, `two of four waited 50 ms each, together ${limitedMs}`);
  const beats = performance.now();
  for (let count = 0; count < 100; count++) await api.get(leases('a', 'n'), { lane: 'heartbeat' });
  assert.ok(performance.now() - beats < 4_000, 'limited they would take five seconds');
});

test('a session carries at most 90 watches, requests and heartbeats have sessions of their own', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  const open200: ServerHttp2Stream[] = [];
  server.handler = (request) => {
    if (!request.query.has('watch')) return { body: pod('p', 1) };
    return {
      live(write, stream) {
        open200.push(stream);
        write(bookmark(1, true));
      },
    };
  };
  await using api = open(port);
  await using stop = {
    controller: new AbortController(),
    async [Symbol.asyncDispose]() {
      this.controller.abort();
    },
  };
  const { log, handler } = recorder();
  const loops = Array.from({ length: 200 }, (_, index) =>
    api.reflect(configMaps('a'), { fieldSelector: `metadata.name=c${index}` }, handler, stop.controller.signal),
  );
  await until(() => log.length === 200, '200 watches are open');
  const perSession = new Map<number, number>();
  for (const request of server.requests) perSession.set(request.session, (perSession.get(request.session) ?? 0) + 1);
  assert.deepEqual(
    [...perSession.values()].sort((a, b) => b - a),
    [90, 90, 20],
  );
  const startedMs = performance.now();
  await api.get(pods('a', 'p'));
  await api.get(leases('a', 'n'), { lane: 'heartbeat' });
  assert.ok(performance.now() - startedMs < 1000);
  const [request, beat] = server.requests.slice(-2);
  assert.ok(!perSession.has(request?.session ?? 0) && !perSession.has(beat?.session ?? 0) && request?.session !== beat?.session);
  stop.controller.abort();
  await Promise.all(loops);
  await until(() => open200.every((stream) => stream.destroyed || stream.closed), 'every stream is given back');
});

test('a reflection lists by streaming and goes on from the last version after a cut', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  let watches = 0;
  server.handler = () => ({
    live(write, stream) {
      if (watches++ === 0) {
        write({ type: 'ADDED', object: pod('x', 3) });
        write({ type: 'ADDED', object: pod('y', 4) });
        write(bookmark(7, true));
        write({ type: 'MODIFIED', object: pod('x', 8) });
        write(bookmark(12));
        setTimeout(() => stream.session?.socket.destroy(), 20);
      } else {
        write({ type: 'DELETED', object: pod('y', 13) });
      }
    },
  });
  await using api = open(port, { clock: quick });
  const stop = new AbortController();
  const { log, handler } = recorder();
  const loop = api.reflect(pods(), { fieldSelector: 'spec.nodeName=n1' }, handler, stop.signal);
  await until(() => log.includes('DELETED y'), 'the deletion is seen');
  stop.abort();
  await loop;
  assert.deepEqual(log, ['replaced Pod/x,Pod/y', 'MODIFIED x', 'trouble unavailable', 'DELETED y']);
  const [first, second] = server.requests;
  assert.equal(first?.query.get('sendInitialEvents'), 'true');
  assert.equal(first?.query.get('resourceVersionMatch'), 'NotOlderThan');
  assert.equal(first?.query.get('allowWatchBookmarks'), 'true');
  const seconds = Number(first?.query.get('timeoutSeconds'));
  assert.ok(seconds >= 300 && seconds < 600);
  assert.equal(second?.query.get('resourceVersion'), '12', 'from the bookmark, not from the last event');
  assert.equal(second?.query.get('fieldSelector'), 'spec.nodeName=n1');
});

test('only 410 makes a reflection list again', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  let requests = 0;
  server.handler = (request) => {
    requests++;
    if (request.query.has('sendInitialEvents')) {
      return {
        live(write, stream) {
          write({ type: 'ADDED', object: pod(requests === 1 ? 'x' : 'z', 3) });
          write(bookmark(5, true));
          if (requests === 1) stream.end();
        },
      };
    }
    // An orderly end, a refusal, then too old twice over: once as an event, as a server with a cache says it.
    if (requests === 2) return { status: 500, body: status(500, 'InternalError') };
    return {
      live(write, stream) {
        write({ type: 'ERROR', object: status(410, 'Expired', 'too old resource version: 5 (9)') });
        stream.end();
      },
    };
  };
  await using api = open(port, { clock: quick });
  const stop = new AbortController();
  const { log, handler } = recorder();
  const loop = api.reflect(pods(), {}, handler, stop.signal);
  await until(() => log.includes('replaced Pod/z'), 'a second list');
  stop.abort();
  await loop;
  assert.deepEqual(log, ['replaced Pod/x', 'trouble 500', 'trouble 410', 'replaced Pod/z']);
});

test('a server that refuses streaming lists is listed in pages, a stale page included', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  let stale = true;
  server.handler = (request) => {
    const { query } = request;
    if (query.has('sendInitialEvents')) return { status: 422, body: status(422, 'Invalid') };
    if (query.has('watch')) return { live: () => {} };
    const page = (items: unknown[], next?: string): unknown => ({
      kind: 'PodList',
      apiVersion: 'v1',
      metadata: { resourceVersion: '9', ...(next !== undefined && { continue: next }) },
      items,
    });
    const bare = (name: string): unknown => ({ metadata: { name, namespace: 'a' } });
    if (query.get('continue') === 'two') {
      if (!stale) return { body: page([bare('q')]) };
      stale = false;
      return { status: 410, body: status(410, 'Expired') };
    }
    return query.has('limit') ? { body: page([bare('p')], 'two') } : { body: page([bare('p'), bare('q')]) };
  };
  await using api = open(port, { clock: quick });
  const stop = new AbortController();
  const { log, handler } = recorder();
  const loop = api.reflect(pods(), {}, handler, stop.signal);
  await until(() => server.requests.some((request) => request.query.get('resourceVersion') === '9'), 'the watch');
  stop.abort();
  await loop;
  assert.deepEqual(log, ['replaced Pod/p,Pod/q']);
  assert.deepEqual(
    server.requests.map(({ query }) => `${query.get('limit') ?? '-'} ${query.get('continue') ?? '-'} ${query.get('watch') ?? '-'}`),
    ['- - true', '500 - -', '500 two -', '- - -', '- - true'],
  );
});

test('a server that knows nothing of streaming lists is found out by its silence', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = ({ query }) => {
    if (query.has('watch')) return { live: (write) => query.has('sendInitialEvents') && write({ type: 'ADDED', object: pod('x', 3) }) };
    return { body: { kind: 'PodList', apiVersion: 'v1', metadata: { resourceVersion: '9' }, items: [pod('x', 3)] } };
  };
  await using api = open(port, { clock: quick });
  const stop = new AbortController();
  const { log, handler } = recorder();
  const loop = api.reflect(pods(), {}, handler, stop.signal);
  await until(() => log.length > 0, 'the list');
  stop.abort();
  await loop;
  assert.deepEqual(log, ['replaced Pod/x']);
});

test('a network that goes silent ends neither watch nor request for ever', async () => {
  await using server = new TestServer();
  await using wire = new Wire(await server.listen());
  const port = await wire.listen();
  let watches = 0;
  server.handler = ({ query }) => {
    if (!query.has('watch')) return { body: pod('p', 1) };
    watches++;
    return { live: (write) => (query.has('sendInitialEvents') ? write(bookmark(5, true)) : write({ type: 'ADDED', object: pod('late', 6) })) };
  };
  await using api = open(port, { pingMs: 100, clock: quick });
  const stop = new AbortController();
  const { log, handler } = recorder();
  const loop = api.reflect(pods(), {}, handler, stop.signal);
  await until(() => log.length === 1, 'the list');
  await api.get(leases('a', 'n'), { lane: 'heartbeat' });
  wire.silence();
  await assert.rejects(api.get(leases('a', 'n'), { lane: 'heartbeat', timeoutMs: 2000 }));
  wire.heal();
  await until(() => log.includes('ADDED late'), 'the watch goes on by itself');
  await api.get(leases('a', 'n'), { lane: 'heartbeat' });
  assert.ok(watches >= 2);
  stop.abort();
  await loop;
});

test('a dead connection is left after two pings although nothing else happens', async () => {
  await using server = new TestServer();
  await using wire = new Wire(await server.listen());
  const port = await wire.listen();
  server.handler = () => ({ live: (write) => write(bookmark(5, true)) });
  await using api = open(port, { pingMs: 100 });
  const stop = new AbortController();
  const { log, handler } = recorder();
  const loop = api.reflect(pods(), {}, handler, stop.signal);
  await until(() => log.length === 1, 'the list');
  const startedMs = performance.now();
  wire.silence();
  await until(() => log.includes('trouble unavailable'), 'the watch ends');
  assert.ok(performance.now() - startedMs < 1500);
  stop.abort();
  await loop;
});

test('what the handler throws ends the reflection', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = () => ({ live: (write) => write(bookmark(5, true)) });
  await using api = open(port);
  const broken = { replaced: (): void => assert.fail('a bug of the caller'), changed: (): void => {} };
  await assert.rejects(api.reflect(pods(), {}, broken, new AbortController().signal), /a bug of the caller/);
});

test('new connections use the client certificate that is in the file then', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = () => ({ body: pod('p', 1) });
  const folder = await mkdtemp(join(tmpdir(), 'kubeapi-'));
  try {
    const cert = join(folder, 'tls.crt');
    const key = join(folder, 'tls.key');
    const put = async (name: string): Promise<void> => {
      const pair = clientPair(name);
      await writeFile(cert, pair.certificatePem);
      await writeFile(key, pair.privateKeyPem);
    };
    await put('first');
    let nowMs = 100_000;
    await using api = open(port, {
      config: configFor(port, { cert: { file: cert }, key: { file: key }, ca: { data: Buffer.from(authority.certificatePem) } }),
      clock: { ...realClock, monoMs: () => nowMs },
    });
    await api.get(pods('a', 'p'));
    await put('second');
    await api.get(pods('a', 'p'));
    nowMs += 31_000;
    await api.get(pods('a', 'p'));
    assert.deepEqual(
      server.requests.map((request) => request.user),
      ['first', 'first', 'second'],
    );
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a server that speaks only HTTP/1.1 gets one request per connection, so that a watch holds up nobody', async () => {
  const server = createServer({ key: serving.privateKeyPem, cert: serving.certificatePem }, (request, response) => {
    response.setHeader('content-type', 'application/json');
    if (request.url?.includes('watch=true') === true) response.write(`${JSON.stringify(bookmark(5, true))}\n`);
    else response.end(JSON.stringify(pod('p', 1)));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    await using api = open((server.address() as AddressInfo).port);
    const stop = new AbortController();
    const { log, handler } = recorder();
    const loops = Array.from({ length: 5 }, () => api.reflect(pods(), {}, handler, stop.signal));
    const answers = await Promise.all(Array.from({ length: 30 }, () => api.get<Pod>(pods('a', 'p'))));
    assert.equal(answers.length, 30);
    await until(() => log.length === 5, 'five watches');
    stop.abort();
    await Promise.all(loops);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test('five hundred watches opened and given up leave no stream behind', async () => {
  await using server = new TestServer();
  const port = await server.listen();
  server.handler = () => ({ live: (write) => write(bookmark(5, true)) });
  await using api = open(port);
  for (let round = 0; round < 10; round++) {
    const stop = new AbortController();
    const { log, handler } = recorder();
    const loops = Array.from({ length: 50 }, () => api.reflect(pods(), {}, handler, stop.signal));
    await until(() => log.length === 50, 'the lists');
    stop.abort();
    await Promise.all(loops);
  }
  assert.ok(server.sessionCount <= 2, `one session served them all, there were ${server.sessionCount}`);
});

test('who waits for a first connection opens none after the end', async (t) => {
  const silent = createTcpServer();
  t.after(() => silent.close());
  let connections = 0;
  let lasting = 0;
  silent.on('connection', (socket) => {
    connections += 1;
    lasting += 1;
    socket.on('error', () => {}).on('close', () => (lasting -= 1));
    socket.resume();
  });
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const { port } = silent.address() as AddressInfo;
  const api = open(port);
  const calls = [api.get(pods('a', 'p')), api.get(pods('a', 'q'))].map((call) =>
    call.then(
      () => 'answered',
      (error: unknown) => (error as { code: string }).code,
    ),
  );
  await until(() => connections === 1, 'the first connects');
  await api[Symbol.asyncDispose]();
  assert.deepEqual(await Promise.all(calls), ['aborted', 'aborted']);
  await until(() => lasting === 0, 'the connection that was being made is given up');
  await delay(50);
  assert.equal(connections, 1);
});
