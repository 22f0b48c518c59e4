import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../clock.ts';
import { Credentials } from './credentials.ts';
import { bytesOf, type HttpClient, type HttpRequest } from './http-client.ts';
import { openPlainClient } from './plain-client.ts';
import { configFor, TestServer } from './test-server.ts';

function clientOf(port: number, pingMs = 15_000): HttpClient {
  const credentials = new Credentials(configFor(port), realClock);
  return openPlainClient(`https://127.0.0.1:${port}`, { connect: credentials.connector(() => {}, new AbortController().signal), perSession: 90, pingMs });
}

const get = (path: string, more: Partial<HttpRequest> = {}): HttpRequest => ({
  method: 'GET',
  path,
  headers: {},
  body: null,
  headersTimeout: 30_000,
  signal: new AbortController().signal,
  ...more,
});

async function until(condition: () => boolean, what: string, ms = 5_000): Promise<void> {
  const endMs = performance.now() + ms;
  while (!condition()) {
    assert.ok(performance.now() < endMs, `not within ${ms} ms: ${what}`);
    await delay(5);
  }
}

test('a session whose end the other side does not answer is given up, and harms nothing else', async (t) => {
  await using server = new TestServer();
  server.handler = () => ({ body: {} });
  const port = await server.listen();
  // Passes all but the end on.
  const deaf = createServer({ allowHalfOpen: true }, (inner) => {
    const outer = connect(port, '127.0.0.1');
    t.after(() => outer.destroy());
    t.after(() => inner.destroy());
    inner.on('error', () => {}).on('data', (chunk) => outer.write(chunk));
    outer.on('error', () => {}).on('data', (chunk) => inner.write(chunk));
  });
  t.after(() => deaf.close());
  await once(deaf.listen(0, '127.0.0.1'), 'listening');
  const client = clientOf((deaf.address() as AddressInfo).port, 1_000);
  await bytesOf((await client.request(get('/a'))).body);
  assert.equal(await Promise.race([client.close().then(() => 'closed'), delay(15_000, 'still waiting', { ref: false })]), 'closed');
});

test('a session that the server has left is ended with the client', async () => {
  await using server = new TestServer();
  server.handler = ({ path }) => (path === '/watch' ? { live: (write) => write('first') } : { body: {} });
  const client = clientOf(await server.listen());
  const watch = await client.request(get('/watch'));
  const ended = bytesOf(watch.body).then(
    () => 'ended',
    () => 'failed',
  );
  for (const session of server.sessions) session.close();
  // Until the client has heard of it, requests still go to the session that is left, and may be refused.
  for (let tries = 0; server.sessionCount < 2 && tries < 200; tries++) {
    await client.request(get('/b')).then(
      ({ body }) => bytesOf(body),
      () => undefined,
    );
    await delay(10);
  }
  assert.equal(server.sessionCount, 2);
  await client.destroy();
  assert.equal(await Promise.race([ended, delay(2_000, 'still open', { ref: false })]), 'failed');
});

test('a request that runs while its connection is being made is answered, though the client is closed meanwhile', async () => {
  await using server = new TestServer();
  server.handler = () => ({ body: {} });
  const client = clientOf(await server.listen());
  const answer = client.request(get('/a', { method: 'POST', body: '{}' }));
  const closed = client.close();
  const { statusCode, body } = await answer;
  assert.equal(statusCode, 200);
  await bytesOf(body);
  await closed;
  await until(() => server.sessions.size === 0, 'its connection is closed');
});

test('a request that HTTP refuses to send fails, and neither holds up the end nor the process', async (t) => {
  const plain = createServer((socket) => void socket.on('error', () => {}).resume());
  t.after(() => plain.close());
  await once(plain.listen(0, '127.0.0.1'), 'listening');
  const { port } = plain.address() as AddressInfo;
  const client = openPlainClient(`http://127.0.0.1:${port}`, {
    connect: new Credentials(configFor(port), realClock).connector(() => {}, new AbortController().signal),
    perSession: 90,
    pingMs: 15_000,
  });
  const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;
  const before = timers();
  await assert.rejects(client.request(get('/a', { headers: { authorization: 'Bearer a\nb' } })), { code: 'ERR_INVALID_CHAR' });
  assert.equal(timers(), before);
  assert.equal(await Promise.race([client.close().then(() => 'closed'), delay(2_000, 'still waiting', { ref: false })]), 'closed');
});
