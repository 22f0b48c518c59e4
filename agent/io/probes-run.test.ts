import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer as createHttp, type RequestListener } from 'node:http';
import { createSecureServer as createHttp2s, createServer as createHttp2, type ServerHttp2Stream } from 'node:http2';
import { createServer as createHttps } from 'node:https';
import { createServer as createTcp, type AddressInfo, type Server, type Socket } from 'node:net';
import { test, type TestContext } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { selfSigned } from '../../base/x509.ts';
import type { Container, Pod, Probe } from '../../proto/kube/types.ts';
import type { Cri } from './cri.ts';
import { createProbeRunner } from './probes-run.ts';

const never = new AbortController().signal;
type ExecSync = Cri['runtime']['execSync'];

async function run(probe: Probe, options: { container?: Partial<Container>; execSync?: ExecSync; podIP?: string; signal?: AbortSignal; gates?: boolean } = {}) {
  const execSync: ExecSync = options.execSync ?? (async () => assert.fail('no exec expected'));
  const runner = createProbeRunner({ execSync }, realClock, { grpcTls: options.gates ?? false, h2c: options.gates ?? false });
  return runner(
    { pod: {} as Pod, container: { name: 'c', ...options.container }, containerId: 'c1', podIP: options.podIP ?? '127.0.0.1', probe },
    options.signal ?? never,
  );
}

async function listen(t: TestContext, server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const http = (t: TestContext, listener: RequestListener): Promise<number> => listen(t, createHttp(listener));

async function freePort(): Promise<number> {
  const server = createTcp().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

test('http: status codes', async (t) => {
  const port = await http(t, (request, response) => void response.writeHead(Number((request.url ?? '').slice(1))).end('body'));
  const get = (status: number) => run({ httpGet: { port, path: `/${status}` } });
  assert.deepEqual(await get(200), { result: 'success', output: 'body' });
  assert.equal((await get(399)).result, 'warning');
  assert.deepEqual(await get(400), { result: 'failure', output: 'HTTP probe failed with statuscode: 400' });
  assert.deepEqual(await get(503), { result: 'failure', output: 'HTTP probe failed with statuscode: 503' });
});

test('http: headers, named port, host and query', async (t) => {
  const seen: Record<string, unknown>[] = [];
  const port = await http(t, (request, response) => {
    seen.push({ ...request.headers, url: request.url });
    response.end();
  });
  const container = { ports: [{ name: 'web', containerPort: port }] };
  await run(
    {
      httpGet: {
        port: 'web',
        path: '/healthz?x=1',
        host: 'localhost',
        httpHeaders: [
          { name: 'X-A', value: '1' },
          { name: 'Host', value: 'example.com' },
        ],
      },
    },
    { container },
  );
  await run({
    httpGet: {
      port,
      httpHeaders: [
        { name: 'Accept', value: '' },
        { name: 'User-Agent', value: 'mine' },
      ],
    },
  });
  assert.deepEqual(seen[0], { 'x-a': '1', host: 'example.com', 'user-agent': 'kube-probe/1.37', accept: '*/*', connection: 'close', url: '/healthz?x=1' });
  assert.deepEqual([seen[1]?.['accept'], seen[1]?.['user-agent'], seen[1]?.['url']], [undefined, 'mine', '/']);
});

test('http: redirects are followed on the same host only', async (t) => {
  const port = await http(t, (request, response) => {
    if (request.url === '/a') return void response.writeHead(302, { location: '/b' }).end();
    if (request.url === '/away') return void response.writeHead(302, { location: 'http://example.com/' }).end('gone');
    if (request.url === '/loop') return void response.writeHead(302, { location: '/loop' }).end();
    response.end('here');
    return undefined;
  });
  assert.deepEqual(await run({ httpGet: { port, path: '/a' } }), { result: 'success', output: 'here' });
  assert.deepEqual(await run({ httpGet: { port, path: '/away' } }), { result: 'warning', output: 'Probe terminated redirects, Response body: gone' });
  assert.deepEqual(await run({ httpGet: { port, path: '/loop' } }), {
    result: 'failure',
    output: `Get "http://127.0.0.1:${port}/loop": stopped after 10 redirects`,
  });
});

test('http: nobody listens, no answer, a cut answer, and a long body', async (t) => {
  const closed = await freePort();
  assert.deepEqual(await run({ httpGet: { port: closed, path: '/x' } }), {
    result: 'failure',
    output: `Get "http://127.0.0.1:${closed}/x": dial tcp 127.0.0.1:${closed}: connect: connection refused`,
  });
  const silent = await listen(
    t,
    createTcp(() => undefined),
  );
  assert.deepEqual(await run({ timeoutSeconds: 0.1, httpGet: { port: silent } }), {
    result: 'failure',
    output: `Get "http://127.0.0.1:${silent}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
  });
  const hangUp = await listen(
    t,
    createTcp((socket) => socket.end()),
  );
  assert.deepEqual(await run({ httpGet: { port: hangUp } }), { result: 'failure', output: `Get "http://127.0.0.1:${hangUp}": EOF` });
  const long = await http(t, (_request, response) => void response.end('x'.repeat(1_000_000)));
  assert.equal((await run({ httpGet: { port: long } })).output.length, 10 * 1024);
});

test('https: the certificate is not judged; a plain server is told', async (t) => {
  const pair = selfSigned({ subject: { commonName: 'x' }, notBeforeMs: 0, notAfterMs: 1 });
  const secure = await listen(
    t,
    createHttps({ cert: pair.certificatePem, key: pair.privateKeyPem }, (_request, response) => void response.end('ok')),
  );
  assert.deepEqual(await run({ httpGet: { port: secure, scheme: 'HTTPS' } }), { result: 'success', output: 'ok' });
  const plain = await http(t, (_request, response) => void response.end());
  assert.match((await run({ httpGet: { port: plain, scheme: 'HTTPS' } })).output, /http: server gave HTTP response to HTTPS client/);
});

test('tcp: connects and resets; refused and unreachable', async (t) => {
  let reset = false;
  const port = await listen(
    t,
    createTcp((socket) => socket.on('error', (error: NodeJS.ErrnoException) => (reset = error.code === 'ECONNRESET'))),
  );
  assert.deepEqual(await run({ tcpSocket: { port } }), { result: 'success', output: '' });
  const closed = await freePort();
  assert.deepEqual(await run({ tcpSocket: { port: closed } }), { result: 'failure', output: `dial tcp 127.0.0.1:${closed}: connect: connection refused` });
  assert.equal((await run({ tcpSocket: { port: 'web' } })).result, 'error');
  assert.equal(reset, true);
});

test('exec: exit code and output, static environment, deadline, and a runtime that refuses', async () => {
  const probe: Probe = { timeoutSeconds: 3, exec: { command: ['cat', '$(FILE)', '$(OTHER)'] } };
  const container = {
    env: [
      { name: 'FILE', value: '/a' },
      { name: 'OTHER', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
    ],
  };
  const seen: unknown[] = [];
  const answer =
    (exitCode: number, stdout = 'out', stderr = 'err'): ExecSync =>
    async (request, call) => {
      seen.push(request, call?.timeoutMs);
      return { exitCode, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
    };
  assert.deepEqual(await run(probe, { container, execSync: answer(0) }), { result: 'success', output: 'outerr' });
  assert.deepEqual(seen, [{ containerId: 'c1', cmd: ['cat', '/a', '$(OTHER)'], timeout: 3 }, 8_000]);
  assert.deepEqual(await run(probe, { execSync: answer(1) }), { result: 'failure', output: 'outerr' });
  assert.equal((await run(probe, { execSync: answer(1, 'x'.repeat(20_000)) })).output.length, 10 * 1024);
  const fails =
    (code: 'deadline' | 'not-found'): ExecSync =>
    async () => {
      throw new OpError(code, 'ExecSync', 'said');
    };
  assert.deepEqual(await run({ exec: { command: ['sleep', '5'] } }, { execSync: fails('deadline') }), {
    result: 'failure',
    output: 'command timed out: "sleep 5" timed out after 1s',
  });
  assert.equal((await run({ exec: { command: ['x'] } }, { execSync: fails('not-found') })).result, 'error');
});

/** A health server in bare HTTP/2. */
function healthServer(t: TestContext, answer: (stream: ServerHttp2Stream, service: string) => void): Promise<number> {
  const server = createHttp2();
  server.on('stream', (stream, headers) => {
    assert.equal(headers[':path'], '/grpc.health.v1.Health/Check');
    const pieces: Buffer[] = [];
    stream.on('data', (piece: Buffer) => pieces.push(piece));
    stream.on('error', () => undefined);
    stream.on('end', () => answer(stream, Buffer.concat(pieces).subarray(7).toString()));
  });
  return listen(t, server);
}

function reply(stream: ServerHttp2Stream, status: number, code = 0, message = ''): void {
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
  stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': String(code), 'grpc-message': encodeURIComponent(message) }));
  if (code === 0) stream.end(status === 0 ? Buffer.from([0, 0, 0, 0, 0]) : Buffer.from([0, 0, 0, 0, 2, 0x08, status]));
  else stream.end();
}

test('grpc: serving, not serving, unknown service, not implemented, silent, absent', async (t) => {
  const port = await healthServer(t, (stream, service) => {
    if (service === 'silent') return;
    if (service === 'none') return reply(stream, 0, 12, 'unknown service grpc.health.v1.Health');
    if (service === 'missing') return reply(stream, 0, 5, 'unknown service');
    reply(stream, service === 'down' ? 2 : service === 'zero' ? 0 : 1);
  });
  const check = (service: string, timeoutSeconds = 1) => run({ timeoutSeconds, grpc: { port, service } });
  assert.deepEqual(await check(''), { result: 'success', output: 'service healthy' });
  assert.deepEqual(await check('down'), { result: 'failure', output: 'service unhealthy (responded with "NOT_SERVING")' });
  assert.deepEqual(await check('zero'), { result: 'failure', output: 'service unhealthy (responded with "UNKNOWN")' });
  assert.deepEqual(await check('missing'), { result: 'failure', output: 'error: health rpc probe failed: rpc error: code = NotFound desc = unknown service' });
  assert.match((await check('none')).output, /does not implement the grpc health protocol \(grpc\.health\.v1\.Health\): unknown service/);
  assert.deepEqual(await check('silent', 2), { result: 'failure', output: 'timeout: health rpc did not complete within 2s' });
  const closed = await freePort();
  // Upstream's client asks again until the time is up, and tells that alone.
  assert.deepEqual(await run({ timeoutSeconds: 0.1, grpc: { port: closed } }), {
    result: 'failure',
    output: `timeout: failed to connect service "127.0.0.1:${closed}" within 100ms: context deadline exceeded`,
  });
});

test('grpc: a server that comes up within the time is asked again', async (t) => {
  const port = await freePort();
  const asked = run({ timeoutSeconds: 10, grpc: { port } });
  const server = createHttp2().on('stream', (stream: ServerHttp2Stream) => {
    stream.resume();
    reply(stream, 1);
  });
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => void sockets.add(socket));
  const up = setTimeout(() => server.listen(port, '127.0.0.1'), 200);
  t.after(() => {
    clearTimeout(up);
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  assert.deepEqual(await asked, { result: 'success', output: 'service healthy' });
});

const serverPair = () => {
  const { certificatePem, privateKeyPem } = selfSigned({ subject: { commonName: 'x' }, notBeforeMs: Date.now() - 1000, notAfterMs: Date.now() + 60_000 });
  return { cert: certificatePem, key: privateKeyPem };
};

test('grpc over TLS, where the gate lets the mode count; certificates are not judged', async (t) => {
  const server = createHttp2s(serverPair());
  server.on('stream', (stream) => {
    stream.resume();
    reply(stream, 1);
  });
  const port = await listen(t, server);
  const grpc = { port, mode: 'TLS' };
  assert.deepEqual(await run({ grpc }, { gates: true }), { result: 'success', output: 'service healthy' });
  assert.match((await run({ timeoutSeconds: 0.3, grpc })).output, /^timeout: failed to connect service/);
  assert.match((await run({ timeoutSeconds: 0.3, grpc: { port, mode: 'Plaintext' } }, { gates: true })).output, /^timeout: failed to connect service/);
});

test('http: HTTP/2 in clear text where the gate lets the protocol count', async (t) => {
  const seen: unknown[] = [];
  const server = createHttp2();
  server.on('stream', (stream, headers) => {
    seen.push([headers[':path'], headers[':authority'], headers['user-agent'], headers['x-a']]);
    stream.respond({ ':status': headers[':path'] === '/no' ? 500 : 200 });
    stream.end('two');
  });
  const port = await listen(t, server);
  const httpGet = {
    port,
    protocol: 'HTTP2',
    path: '/yes?q=1',
    httpHeaders: [
      { name: 'Host', value: 'here' },
      { name: 'X-A', value: 'b' },
    ],
  };
  assert.deepEqual(await run({ httpGet }, { gates: true }), { result: 'success', output: 'two' });
  assert.deepEqual(await run({ httpGet: { port, protocol: 'HTTP2', path: '/no' } }, { gates: true }), {
    result: 'failure',
    output: 'HTTP probe failed with statuscode: 500',
  });
  assert.deepEqual(seen, [
    ['/yes?q=1', 'here', 'kube-probe/1.37', 'b'],
    ['/no', `127.0.0.1:${port}`, 'kube-probe/1.37', undefined],
  ]);
  assert.equal((await run({ httpGet: { ...httpGet, protocol: 'HTTP1' } }, { gates: true })).result, 'failure');
  const old = await http(t, (_request, response) => void response.end('one'));
  assert.deepEqual(await run({ httpGet: { port: old, protocol: 'HTTP2' } }), { result: 'success', output: 'one' });
  assert.match((await run({ httpGet: { port: old, protocol: 'HTTP2' } }, { gates: true })).output, /the frame header looked like an HTTP\/1\.1 header$/);
  const silent = await listen(
    t,
    createTcp(() => undefined),
  );
  assert.match((await run({ timeoutSeconds: 0.1, httpGet: { port: silent, protocol: 'HTTP2' } }, { gates: true })).output, /Client\.Timeout exceeded/);
});

test('https: a server that speaks HTTP/2 alone is understood', async (t) => {
  const server = createHttp2s(serverPair());
  server.on('stream', (stream) => {
    stream.respond({ ':status': 200 });
    stream.end('two');
  });
  const port = await listen(t, server);
  assert.deepEqual(await run({ httpGet: { port, scheme: 'HTTPS' } }), { result: 'success', output: 'two' });
});

test('a run that is given up ends at once', async (t) => {
  const silent = await listen(
    t,
    createTcp(() => undefined),
  );
  for (const probe of [{ httpGet: { port: silent } }, { grpc: { port: silent } }] as Probe[]) {
    const stop = new AbortController();
    const running = run({ ...probe, timeoutSeconds: 60 }, { signal: stop.signal });
    stop.abort(new Error('stopped'));
    await assert.rejects(running);
  }
});

test('a pod without an address is not probed at the node instead', async (t) => {
  const port = await http(t, (_request, response) => void response.end('the node'));
  for (const probe of [{ tcpSocket: { port } }, { httpGet: { port } }, { grpc: { port } }]) {
    const answer = await run(probe, { podIP: '' });
    assert.deepEqual(answer, { result: 'error', output: 'the pod has no address' }, JSON.stringify(probe));
  }
});
