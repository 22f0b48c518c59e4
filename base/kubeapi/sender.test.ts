import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exec } from '../exec.ts';

/** In a process of its own, which can be ended from outside should its event loop stand still: answers left unread while their requests are sent. */
const LEAVING = `
import { once } from 'node:events';
import { createSecureServer } from 'node:http2';
const { realClock } = await import('../clock.ts');
const { silentLog } = await import('../log.ts');
const { Sender } = await import('./sender.ts');
const { configFor, serving } = await import('./test-server.ts');
const { openUndiciClient } = await import('./undici.ts');
const server = createSecureServer({ key: serving.privateKeyPem, cert: serving.certificatePem });
server.on('session', (session) => session.on('error', () => {}));
server.on('stream', (stream, headers) => {
  stream.on('error', () => {});
  // These answer before they have read a byte.
  if (headers[':path'] === '/early') return stream.respond({ ':status': 200 }), stream.write('first');
  if (headers[':path'] === '/refuse') return stream.respond({ ':status': 413 }), stream.end('too large');
  stream.resume().on('end', () => (stream.respond({ ':status': 200 }), stream.end('{}')));
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const sender = new Sender({ openClient: openUndiciClient, config: configFor(server.address().port), clock: realClock, log: silentLog, userAgent: 'test' });
const never = new AbortController().signal;
const said = [];
for (const size of [300, 120_000, 3_000_000]) {
  const body = JSON.stringify('x'.repeat(size));
  await sender.stream({ method: 'POST', path: '/early', body }, async () => {}, never);
  await sender.stream({ method: 'POST', path: '/early', body }, async (answer) => void (await once(answer, 'data')), never);
  await sender.stream({ method: 'POST', path: '/early', body }, () => Promise.reject(new Error('enough')), never).catch((error) => said.push(error.code));
  await sender.send('requests', { method: 'POST', path: '/early', body }, true, AbortSignal.timeout(20)).catch((error) => said.push(error.code));
  await sender.send('requests', { method: 'POST', path: '/refuse', body }, true).catch((error) => said.push(error.code));
  said.push((await sender.send('requests', { method: 'POST', path: '/whole', body: '{}' }, true)).status);
}
console.log(said.join(' '));
process.exit(0);
`;

test('an answer that is left unread while its request is sent leaves a connection that goes on', async () => {
  const { stdout } = await exec([process.execPath, '--disable-warning=ExperimentalWarning', '--input-type=module', '-e', LEAVING], {
    doing: 'leaving answers unread',
    timeoutMs: 10_000,
    cwd: import.meta.dirname,
  });
  assert.equal(stdout.trim(), Array<string>(3).fill('unavailable aborted 413 200').join(' '));
});
