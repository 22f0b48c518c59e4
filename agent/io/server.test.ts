import assert from 'node:assert/strict';
import { once } from 'node:events';
import { appendFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttp, type IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { connect as connectTcp, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { realClock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { issueCertificate, selfSigned } from '../../base/x509.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { PodFacts } from '../core/types.ts';
import type { Pods } from '../seams.ts';
import { createServerAuth, type ServerAuthOptions } from './server-auth.ts';
import { createServerRoutes, type ServerRuntimeCalls } from './server-routes.ts';
import { createSystemLogs } from './system-logs.ts';
import { startHealthz, startReadOnly, startServer, type AgentServer } from './server.ts';
import { ScriptedApi } from './test-api.ts';

const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
const ca = selfSigned({ subject: { commonName: 'ca' }, ...validity, isCA: true });
const otherCa = selfSigned({ subject: { commonName: 'other' }, ...validity, isCA: true });
const serving = issueCertificate({ subject: { commonName: 'n1' }, ...validity, usages: ['serverAuth'], ipAddresses: ['127.0.0.1'] }, ca);
const apiserver = issueCertificate(
  { subject: { commonName: 'kube-apiserver', organizations: ['a-group', 'b-group'] }, ...validity, usages: ['clientAuth'] },
  ca,
);
const stranger = issueCertificate({ subject: { commonName: 'kube-apiserver' }, ...validity, usages: ['clientAuth'] }, otherCa);

const pod: Pod = {
  metadata: { name: 'p', namespace: 'ns', uid: 'u1' },
  spec: { containers: [{ name: 'c', image: 'i', tty: true }] },
  status: { containerStatuses: [{ name: 'c', image: 'i', imageID: '', ready: true, restartCount: 0, state: { running: {} }, containerID: 'containerd://c1' }] },
};

interface Setup {
  server: AgentServer;
  api: ScriptedApi;
  logPath: string;
  facts: PodFacts;
  execs: unknown[];
  running: { value: boolean };
  root: string;
  verbosities: number[];
}

async function setUp(
  t: TestContext,
  options: { streamUrl?: string; allocatedPods?: boolean; auth?: Partial<ServerAuthOptions>; api?: ScriptedApi['answer'] } = {},
): Promise<Setup> {
  const root = await mkdtemp(join(tmpdir(), 'server-'));
  t.after(() => rm(root, { recursive: true }));
  const logPath = join(root, 'ns_p_u1', 'c', '0.log');
  await mkdir(dirname(logPath), { recursive: true });
  const running = { value: true };
  const facts = {
    uid: 'u1',
    namespace: 'ns',
    name: 'p',
    sandboxes: [{ id: 's1', ready: true }],
    get containers() {
      return [{ id: 'c1', name: 'c', state: running.value ? 'running' : 'exited' }];
    },
  } as unknown as PodFacts;
  const pods = {
    list: () => [pod],
    byName: (namespace: string, name: string) => (namespace === 'ns' && name === 'p' ? pod : undefined),
    facts: () => facts,
    allFacts: () => [facts],
  } as unknown as Pods;
  const execs: unknown[] = [];
  const verbosities: number[] = [];
  const streaming = async (request: unknown) => {
    execs.push(request);
    return { url: options.streamUrl ?? 'http://127.0.0.1:1/x' };
  };
  const runtime = {
    containerStatus: async () => ({ status: { logPath }, info: {} }),
    exec: streaming,
    attach: streaming,
    portForward: streaming,
    checkpointContainer: async (request: unknown) => void execs.push(request),
    execSync: async ({ cmd }: { cmd: string[] }) => ({ stdout: Buffer.from(cmd.join('|')), stderr: Buffer.from('!'), exitCode: cmd[0] === 'false' ? 1 : 0 }),
  } as unknown as ServerRuntimeCalls;
  const api = new ScriptedApi(options.api ?? (() => ({ metadata: {}, status: { allowed: true } })));
  const auth = createServerAuth({
    clock: realClock,
    api,
    nodeName: 'n1',
    x509: true,
    anonymous: false,
    tokenWebhook: { enabled: true, cacheTtlMs: 120_000 },
    authorization: { allowedTtlMs: 300_000, deniedTtlMs: 30_000 },
    ...options.auth,
  });
  const routes = createServerRoutes({
    clock: realClock,
    log: silentLog,
    pods,
    runtime,
    runtimeTimeoutMs: 5_000,
    podLogsDir: root,
    debugHandlers: true,
    webSockets: true,
    splitStreams: false,
    systemLogs: createSystemLogs({ root: join(root, 'log'), sys: createFakeSys(), queries: true }),
    debug: {
      rootDir: root,
      startedMs: 0,
      flagz: { v: '2' },
      statusz: true,
      checkpoints: true,
      profiles: null,
      setVerbosity: (level) => verbosities.push(level),
    },
    allocated: () => pods.list().slice(0, 1),
    configz: () => ({ port: 10250 }),
    syncLoop: () => null,
    metrics: async (page) => `page_${page} 1\n`,
    stats: async () => ({ node: {} }),
  });
  const server = await startServer({
    log: silentLog,
    address: '127.0.0.1',
    port: 0,
    tls: { cert: serving.certificatePem, key: serving.privateKeyPem, ca: ca.certificatePem, minVersion: 'TLSv1.2', ciphers: undefined },
    auth,
    ...(options.allocatedPods === undefined ? {} : { allocatedPods: options.allocatedPods }),
    handle: routes.handle,
    upgrade: routes.upgrade,
  });
  t.after(() => server[Symbol.asyncDispose]());
  return { server, api, root, logPath, facts, execs, running, verbosities };
}

const asApiserver = { cert: apiserver.certificatePem, key: apiserver.privateKeyPem };

async function get(server: AgentServer, path: string, client: object = asApiserver, method = 'GET'): Promise<{ status: number; text: string }> {
  const sent = httpsRequest({ host: '127.0.0.1', port: server.port, path, method, ca: ca.certificatePem, agent: false, ...client });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  let text = '';
  for await (const piece of response) text += String(piece);
  return { status: response.statusCode ?? 0, text };
}

test('a client certificate names user and groups, and the API server decides', async (t) => {
  const { server, api } = await setUp(t);
  assert.deepEqual(await get(server, '/healthz'), { status: 200, text: 'ok' });
  const [review] = api.calls;
  assert.ok(review !== undefined);
  assert.deepEqual((review.body as { spec: unknown }).spec, {
    user: 'kube-apiserver',
    groups: ['a-group', 'b-group', 'system:authenticated'],
    resourceAttributes: { verb: 'get', version: 'v1', resource: 'nodes', subresource: 'healthz', name: 'n1' },
  });
  await get(server, '/healthz/ping');
  assert.equal(api.calls.length, 1);
});

test('what pods were given, where the feature is on', async (t) => {
  const { server: without } = await setUp(t);
  assert.deepEqual(await get(without, '/allocatedPods'), { status: 404, text: '404 page not found\n' });
  const { server, api } = await setUp(t, { allocatedPods: true });
  assert.match((await get(server, '/allocatedPods')).text, /^\{"kind":"PodList".*"status":\{\}\}\]\}\n?$/);
  assert.match(JSON.stringify(api.calls[0]?.body), /"resource":"nodes","subresource":"pods"/);
  assert.match((await get(server, `/allocatedPods/ns/p`)).text, /^\{"kind":"Pod",/);
  assert.deepEqual(await get(server, '/allocatedPods/ns/other'), { status: 404, text: 'pod not found' });
});

test('strangers: no certificate, one of another CA, a bad token', async (t) => {
  const { server } = await setUp(t, {
    api: ({ ref }) => (ref.resource === 'tokenreviews' ? { metadata: {}, status: { authenticated: false } } : { metadata: {}, status: { allowed: true } }),
  });
  assert.deepEqual(await get(server, '/pods', {}), { status: 401, text: 'Unauthorized' });
  assert.equal((await get(server, '/pods', { cert: stranger.certificatePem, key: stranger.privateKeyPem })).status, 401);
  assert.equal((await get(server, '/pods', { headers: { authorization: 'Bearer nope' } })).status, 401);
});

test('a token is reviewed once and remembered; what is denied is said', async (t) => {
  const { server, api } = await setUp(t, {
    api: ({ ref, body }) => {
      if (ref.resource === 'tokenreviews') return { metadata: {}, status: { authenticated: true, user: { username: 'prom', groups: ['g'] } } };
      return {
        metadata: {},
        status: { allowed: (body as { spec: { resourceAttributes: { subresource: string } } }).spec.resourceAttributes.subresource === 'metrics' },
      };
    },
  });
  const client = { headers: { authorization: 'Bearer good' } };
  assert.deepEqual(await get(server, '/metrics/cadvisor', client), { status: 200, text: 'page_cadvisor 1\n' });
  assert.deepEqual(await get(server, '/metrics', client), { status: 200, text: 'page_ 1\n' });
  assert.deepEqual(await get(server, '/pods', client), { status: 403, text: 'Forbidden (user=prom, verb=get, resource=nodes, subresource(s)=[pods proxy])\n' });
  assert.deepEqual(api.summary(), ['create tokenreviews', 'create subjectaccessreviews', 'create subjectaccessreviews', 'create subjectaccessreviews']);
});

test('an API server that is away is a 500, not an open door', async (t) => {
  const { server } = await setUp(t, {
    api: () => {
      throw new Error('refused');
    },
  });
  assert.equal((await get(server, '/pods')).status, 500);
});

test('who cannot be authenticated learns nothing of why', async (t) => {
  const { server } = await setUp(t, {
    api: () => {
      throw new Error('connect ECONNREFUSED 10.0.0.1:6443');
    },
  });
  assert.deepEqual(await get(server, '/pods', { headers: { authorization: 'Bearer x' } }), { status: 401, text: 'Unauthorized' });
});

test('a request target that is no path is refused, whatever follows the slashes', async (t) => {
  const { server, api } = await setUp(t, { api: ({ body }) => ({ metadata: {}, status: { allowed: JSON.stringify(body).includes('"metrics"') } }) });
  for (const path of ['//', '//[', '///', '//metrics/exec/ns/p/c', '/metrics/../exec/ns/p/c']) assert.equal((await get(server, path, {})).status, 307, path);
  // None of these may be judged as one path and served as another.
  assert.equal((await get(server, '/%65xec/ns/p/c')).status, 403);
  for (const path of ['/metrics%2f..%2fpods', '/metrics/..%2fpods', '/metrics/%2e%2e/exec/ns/p/c', '/Metrics'])
    assert.equal((await get(server, path)).status, 404, path);
  assert.ok(api.calls.every(({ body }) => !JSON.stringify(body).includes('"pods"')));
});

test('anonymous and AlwaysAllow when configured', async (t) => {
  const { server, api } = await setUp(t, { auth: { anonymous: true, authorization: 'AlwaysAllow' } });
  assert.equal((await get(server, '/configz', {})).text, '{"kubeletconfig":{"port":10250}}\n');
  assert.equal(JSON.parse((await get(server, '/pods', {})).text).items[0].metadata.name, 'p');
  assert.equal(api.calls.length, 0);
});

test('unknown paths and methods', async (t) => {
  const { server } = await setUp(t);
  assert.equal((await get(server, '/nothing')).status, 404);
  assert.equal((await get(server, '/pods', asApiserver, 'DELETE')).status, 405);
  assert.deepEqual(await get(server, '/exec/ns/p/c?command=ls&output=1', asApiserver, 'POST'), { status: 500, text: 'Upgrade request required\n' });
});

test('logs: whole, tail, failures in upstream’s words', async (t) => {
  const { server, logPath } = await setUp(t);
  assert.match((await get(server, '/containerLogs/ns/p/c')).text, /^failed to try resolving symlinks in path /);
  await writeFile(logPath, '2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:01Z stderr F two\n');
  assert.deepEqual(await get(server, '/containerLogs/ns/p/c'), { status: 200, text: 'one\ntwo\n' });
  assert.deepEqual(await get(server, '/containerLogs/ns/p/c?tailLines=1&timestamps=true'), { status: 200, text: '2026-01-01T00:00:01.000000000Z two\n' });
  assert.deepEqual(await get(server, '/containerLogs/ns/p/c?previous=true'), { status: 400, text: 'previous terminated container "c" in pod "p" not found' });
  assert.deepEqual(await get(server, '/containerLogs/ns/p/x'), { status: 404, text: 'container "x" not found in pod "p"' });
  assert.deepEqual(await get(server, '/containerLogs/ns/q/c'), { status: 404, text: 'pod "q" does not exist' });
  assert.equal((await get(server, '/containerLogs/ns/p/c?tailLines=-1')).status, 422);
});

test('a followed log comes as it is written and ends with the container', async (t) => {
  const { server, logPath, running } = await setUp(t);
  await writeFile(logPath, '');
  const sent = httpsRequest({
    host: '127.0.0.1',
    port: server.port,
    path: '/containerLogs/ns/p/c?follow=true',
    ca: ca.certificatePem,
    agent: false,
    ...asApiserver,
  });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  await appendFile(logPath, '2026-01-01T00:00:00Z stdout F one\n');
  const [piece] = (await once(response, 'data')) as [Buffer];
  assert.equal(piece.toString(), 'one\n');
  running.value = false;
  const startedMs = Date.now();
  await once(response, 'end');
  assert.ok(Date.now() - startedMs < 2_000);
});

/** A runtime's streaming server: says the upgrade, then echoes in capitals; `/refuse` answers 404. */
async function streamingServer(t: TestContext) {
  const sockets = new Set<Socket>();
  const seen: IncomingMessage[] = [];
  const server = createHttp((request, response) => {
    seen.push(request);
    response.writeHead(404).end('no such session');
  });
  server.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
    seen.push(request);
    sockets.add(socket);
    socket
      .on('close', () => sockets.delete(socket))
      .on('error', () => socket.destroy())
      .on('end', () => socket.end());
    if (request.url === '/refuse') return void socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone');
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n');
    const echo = (data: Buffer): void => {
      if (data.includes('quit')) socket.end('BYE');
      else socket.write(Buffer.from(data.toString('latin1').toUpperCase(), 'latin1'));
    };
    if (head.length > 0) echo(head);
    socket.on('data', echo);
    return undefined;
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { base: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, sockets };
}

function upgrade(server: AgentServer, path: string, rest = ''): TLSSocket {
  const socket = connectTls({ host: '127.0.0.1', port: server.port, ca: ca.certificatePem, ...asApiserver });
  socket.on('error', () => undefined);
  socket.write(
    `POST ${path} HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3.channel.k8s.io\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\n${rest}`,
  );
  return socket;
}

async function readUntil(socket: TLSSocket, end: string): Promise<string> {
  let text = '';
  for await (const piece of socket.iterator({ destroyOnReturn: false })) {
    text += String(piece);
    if (text.includes(end)) return text;
  }
  return text;
}

test('exec is spliced to the URL of the runtime, byte for byte, with the headers but for credentials', async (t) => {
  const stub = await streamingServer(t);
  const { server, execs } = await setUp(t, { streamUrl: `${stub.base}/exec/token` });
  const socket = upgrade(server, '/exec/ns/p/c?command=sh&command=-c&command=a%20b&input=1&output=1&error=1&tty=0', 'early');
  const head = await readUntil(socket, 'EARLY');
  assert.match(head, /^HTTP\/1\.1 101 Switching Protocols\r\n/);
  assert.match(head, /X-Stream-Protocol-Version: v4\.channel\.k8s\.io/);
  assert.deepEqual(execs, [{ containerId: 'c1', cmd: ['sh', '-c', 'a b'], stdin: true, stdout: true, stderr: true, tty: false }]);
  const [request] = stub.seen;
  assert.equal(request?.url, '/exec/token');
  assert.deepEqual(
    request?.rawHeaders.filter((_, index, all) => all[index - 1] === 'X-Stream-Protocol-Version'),
    ['v4.channel.k8s.io', 'v3.channel.k8s.io'],
  );
  assert.equal(request?.headers.authorization, undefined);
  const big = 'x'.repeat(5_000_000);
  socket.write(big);
  let received = 0;
  for await (const piece of socket.iterator({ destroyOnReturn: false })) {
    received += (piece as Buffer).length;
    if (received === big.length) break;
  }
  socket.write('quit');
  assert.equal(await readUntil(socket, 'BYE'), 'BYE');
  await once(socket, 'close');
});

test('a client that goes leaves no connection to the runtime, and the other way round', async (t) => {
  const stub = await streamingServer(t);
  const { server } = await setUp(t, { streamUrl: `${stub.base}/portforward/token` });
  const socket = upgrade(server, '/portForward/ns/p');
  await readUntil(socket, '\r\n\r\n');
  assert.equal(stub.sockets.size, 1);
  socket.destroy();
  for (let tries = 0; stub.sockets.size > 0 && tries < 200; tries++) await delay(10);
  assert.equal(stub.sockets.size, 0);
  const second = upgrade(server, '/portForward/ns/p');
  await readUntil(second, '\r\n\r\n');
  for (const each of stub.sockets) each.resetAndDestroy();
  await once(second, 'close');
});

test('attach takes the terminal from the container, and a refusal of the runtime arrives as it is', async (t) => {
  const stub = await streamingServer(t);
  const { server, execs } = await setUp(t, { streamUrl: `${stub.base}/refuse` });
  const answer = await readUntil(upgrade(server, '/attach/ns/p/c?input=1&output=1&error=1'), 'gone');
  assert.match(answer, /^HTTP\/1\.1 404 Not Found/);
  assert.deepEqual(execs, [{ containerId: 'c1', stdin: true, stdout: true, stderr: false, tty: true }]);
});

test('upgrades are refused before the runtime is asked', async (t) => {
  const { server, execs, running } = await setUp(t);
  assert.match(
    await readUntil(upgrade(server, '/exec/ns/p/c?command=ls'), 'stderr'),
    /^HTTP\/1\.1 400 .*you must specify at least 1 of stdin, stdout, stderr$/s,
  );
  assert.match(await readUntil(upgrade(server, '/exec/ns/q/c?command=ls&output=1'), 'exist'), /^HTTP\/1\.1 404 .*pod does not exist$/s);
  running.value = false;
  assert.match(await readUntil(upgrade(server, '/exec/ns/p/c?command=ls&output=1'), ')'), /^HTTP\/1\.1 500 .*container not found \("c"\)$/s);
  assert.deepEqual(execs, []);
});

/** Whether the other side gave the whole connection up: what is still sent is then answered by a reset. */
async function closedWithin(socket: TLSSocket, ms: number): Promise<boolean> {
  const failed = once(socket, 'error', { signal: AbortSignal.timeout(ms) }).catch((error: unknown) => (error as Error).name !== 'AbortError');
  const writing = setInterval(() => socket.write('x'), 50);
  const gone = await failed;
  clearInterval(writing);
  return gone !== false;
}

test('a refused upgrade leaves no connection behind, even when its client never closes', async (t) => {
  const { server } = await setUp(t);
  const halfOpen = { allowHalfOpen: true };
  const socket = connectTls({ host: '127.0.0.1', port: server.port, ca: ca.certificatePem, ...halfOpen });
  socket.on('error', () => undefined);
  t.after(() => socket.destroy());
  socket.write('POST /exec/ns/p/c?command=ls&output=1 HTTP/1.1\r\nHost: n1\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n');
  assert.match(await readUntil(socket, 'until the end'), /^HTTP\/1\.1 401 /);
  assert.ok(await closedWithin(socket, 5_000));
});

test('an unreachable streaming server is a 500 for this stream only', async (t) => {
  const { server } = await setUp(t);
  assert.match(await readUntil(upgrade(server, '/exec/ns/p/c?command=ls&output=1'), 'streaming server'), /^HTTP\/1\.1 500 /);
  assert.equal((await get(server, '/healthz')).status, 200);
});

test('one connection serves many requests, and outlives a pause longer than Node’s own 5 s', async (t) => {
  const { server } = await setUp(t);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  await get(server, '/healthz', { ...asApiserver, agent });
  const [socket] = Object.values(agent.freeSockets)[0] ?? [];
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.timers.tick(90_000);
  t.mock.timers.reset();
  await get(server, '/healthz', { ...asApiserver, agent });
  assert.equal(Object.values(agent.freeSockets)[0]?.[0], socket);
});

test('a changed certificate serves the next connection', async (t) => {
  const { server } = await setUp(t);
  const next = issueCertificate({ subject: { commonName: 'second' }, ...validity, usages: ['serverAuth'], ipAddresses: ['127.0.0.1'] }, ca);
  server.renew({ cert: next.certificatePem, key: next.privateKeyPem, ca: ca.certificatePem });
  const socket = connectTls({ host: '127.0.0.1', port: server.port, ca: ca.certificatePem, ...asApiserver });
  await once(socket, 'secureConnect');
  assert.equal(socket.getPeerCertificate().subject.CN, 'second');
  socket.destroy();
  assert.equal((await get(server, '/healthz')).status, 200);
});

test('while there is no certificate every handshake fails, and the first one that comes is served', async (t) => {
  const { server } = await setUp(t);
  server.renew({ cert: '', key: '', ca: ca.certificatePem });
  const refused = connectTls({ host: '127.0.0.1', port: server.port, ca: ca.certificatePem, ...asApiserver });
  const [error] = (await once(refused, 'error')) as [Error];
  assert.match(error.message, /handshake/);
  server.renew({ cert: serving.certificatePem, key: serving.privateKeyPem, ca: ca.certificatePem });
  assert.equal((await get(server, '/healthz')).status, 200);
});

test('a taken port is one clear failure', async (t) => {
  const { server } = await setUp(t);
  const tls = { cert: serving.certificatePem, key: serving.privateKeyPem, minVersion: 'TLSv1.2', ciphers: undefined } as const;
  const auth = createServerAuth({
    clock: realClock,
    api: new ScriptedApi(() => ({})),
    nodeName: 'n1',
    x509: false,
    anonymous: true,
    tokenWebhook: { enabled: false, cacheTtlMs: 0 },
    authorization: 'AlwaysAllow',
  });
  const options = { log: silentLog, address: '127.0.0.1', port: server.port, tls, auth, handle: async () => undefined, upgrade: async () => undefined };
  await assert.rejects(startServer(options), { code: 'exists' });
});

test('the read-only port serves what streams nothing', async (t) => {
  const seen: string[] = [];
  const readOnly = await startReadOnly({
    log: silentLog,
    address: '127.0.0.1',
    port: 0,
    handle: async (route, _request, response) => {
      seen.push(route.kind);
      response.end('x');
    },
  });
  t.after(() => readOnly[Symbol.asyncDispose]());
  const url = `http://127.0.0.1:${readOnly.port}`;
  for (const path of ['/pods', '/metrics/cadvisor', '/stats/summary', '/healthz']) assert.equal((await fetch(url + path)).status, 200);
  for (const path of ['/configz', '/containerLogs/a/b/c', '/exec/a/b/c', '/runningpods/']) assert.equal((await fetch(url + path)).status, 404);
  assert.equal((await fetch(`${url}/pods`, { method: 'DELETE' })).status, 405);
  const odd = connectTcp(readOnly.port, '127.0.0.1');
  odd.write('GET // HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n');
  assert.match(String(await once(odd, 'data')), /^HTTP\/1\.1 307 /);
  assert.deepEqual(seen, ['pods', 'metrics', 'stats', 'healthz']);
});

test('the local health endpoint', async (t) => {
  let trouble: string | null = null;
  const health = await startHealthz('127.0.0.1', 0, () => trouble);
  t.after(() => health[Symbol.asyncDispose]());
  const url = `http://127.0.0.1:${health.port}/healthz`;
  assert.deepEqual([(await fetch(url)).status, await (await fetch(url)).text()], [200, 'ok']);
  trouble = 'sync loop';
  assert.equal((await fetch(url)).status, 500);
  assert.equal((await fetch(`http://127.0.0.1:${health.port}/pods`)).status, 404);
});
