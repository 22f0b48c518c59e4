import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { connect } from 'node:http2';
import type { ClientHttp2Session } from 'node:http2';
import { after, before, test } from 'node:test';
import { startForTest } from './control.ts';
import type { Running } from './control.ts';

/* What clients do to the server's connection: many streams, many cancels, too much at once. */

let control: Running;
let session: ClientHttp2Session;

before(async () => {
  control = await startForTest(['--without', 'controllers,scheduler']);
  const text = readFileSync(control.kubeconfig, 'utf8');
  const pem = (field: string): string => Buffer.from(new RegExp(`${field}-data: (\\S+)`).exec(text)![1]!, 'base64').toString();
  session = connect(control.server, {
    ca: pem('certificate-authority'),
    cert: pem('client-certificate'),
    key: pem('client-key'),
    settings: { enablePush: false },
  });
  session.on('error', () => {});
});
after(async () => {
  session.destroy();
  await control[Symbol.asyncDispose]();
});

async function send(method: string, path: string, body?: string): Promise<{ status: number; text: string }> {
  const stream = session.request({ ':method': method, ':path': path, 'content-type': 'application/json' });
  stream.end(body);
  let status = 0;
  stream.on('response', (headers) => {
    status = Number(headers[':status']);
  });
  let text = '';
  stream.setEncoding('utf8');
  for await (const chunk of stream as AsyncIterable<string>) text += chunk;
  return { status, text };
}

test('five thousand cancelled watches leave the session usable', async () => {
  for (let round = 0; round < 50; round++) {
    const closed: Promise<void>[] = [];
    for (let at = 0; at < 100; at++) {
      const stream = session.request({ ':path': '/api/v1/configmaps?watch=1' });
      stream.on('error', () => {});
      const { promise, resolve } = Promise.withResolvers<void>();
      stream.on('close', resolve);
      stream.on('response', () => stream.close(8));
      stream.resume();
      closed.push(promise);
    }
    await Promise.all(closed);
  }
  assert.equal((await send('GET', '/readyz')).text, 'ok');
  assert.match((await send('GET', '/metrics')).text, /^apiserver_registered_watchers 0$/m);
});

test('three hundred watches on one connection all hear of one change', async () => {
  const heard: Promise<void>[] = [];
  const streams = Array.from({ length: 300 }, () => {
    const stream = session.request({ ':path': '/api/v1/namespaces/default/configmaps?watch=1' });
    const { promise, resolve } = Promise.withResolvers<void>();
    let text = '';
    stream.setEncoding('utf8');
    stream.on('error', () => {});
    stream.on('data', (chunk: string) => {
      text += chunk;
      if (text.includes('"name":"shout"')) resolve();
    });
    heard.push(promise);
    return stream;
  });
  await send('POST', '/api/v1/namespaces/default/configmaps', JSON.stringify({ metadata: { name: 'shout' } }));
  await Promise.all(heard);
  for (const stream of streams) stream.close(8);
});

test('a body over 3 MiB is refused and the connection lives on', async () => {
  const { status } = await send(
    'POST',
    '/api/v1/namespaces/default/configmaps',
    JSON.stringify({ metadata: { name: 'big' }, data: { a: 'a'.repeat(3 * 1024 * 1024) } }),
  );
  assert.equal(status, 413);
  assert.equal((await send('GET', '/healthz')).text, 'ok');
});

test('a watcher that does not read is cut off, and memory stays bounded', async () => {
  const slow = session.request({ ':path': '/api/v1/namespaces/default/configmaps?watch=1' });
  const closed = Promise.withResolvers<void>();
  slow.on('error', () => {});
  slow.on('close', () => closed.resolve());
  const data = { a: 'a'.repeat(900_000) };
  await send('POST', '/api/v1/namespaces/default/configmaps', JSON.stringify({ metadata: { name: 'wide' }, data }));
  for (let at = 0; at < 20; at++)
    await send('PUT', '/api/v1/namespaces/default/configmaps/wide', JSON.stringify({ metadata: { name: 'wide' }, data: { ...data, at: String(at) } }));
  slow.resume();
  await closed.promise;
});
