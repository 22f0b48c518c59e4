import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exec } from '../exec.ts';

/** What runs in a process of its own, which can be ended from outside should its event loop stand still. */
const GIVING_UP = `
import { subscribe } from 'node:diagnostics_channel';
import { constants } from 'node:http2';
const { realClock } = await import('../clock.ts');
const { Credentials } = await import('./credentials.ts');
const { bytesOf } = await import('./http-client.ts');
const { configFor, TestServer } = await import('./test-server.ts');
const { openUndiciClient } = await import('./undici.ts');
await using server = new TestServer();
server.handler = ({ path }) => (path === '/slow' ? { live: (write) => write('first') } : { body: {} });
const port = await server.listen();
const connect = new Credentials(configFor(port), realClock).connector(() => {}, new AbortController().signal);
const client = openUndiciClient('https://127.0.0.1:' + port, { connect, perSession: 90, pingMs: 15_000 });
const ask = (path, body, signal) => client.request({ method: 'POST', path, headers: {}, body, headersTimeout: 30_000, signal });
await bytesOf((await ask('/a', '{}', new AbortController().signal)).body);
const said = [];
const stop = new AbortController();
subscribe('undici:request:bodySent', ({ request }) => { if (request.path === '/b') stop.abort(new Error('enough')); });
const given = ask('/b', JSON.stringify('x'.repeat(300)), stop.signal).catch((error) => said.push('request: ' + error.message));
await given;
const later = new AbortController();
const { body } = await ask('/slow', '{}', later.signal);
const read = bytesOf(body).catch((error) => said.push('body: ' + error.message));
later.abort(new Error('enough of it'));
await read;
// More than the connection takes at once: what is left of it waits in the stream as it is given up.
for (const afterMs of [0, 2, 10, 30]) {
  await ask('/b', JSON.stringify('x'.repeat(3_000_000)), AbortSignal.timeout(afterMs)).catch(() => {});
}
// The server may still hold what was given up, and then refuses streams until it has let go of it.
for (;;) {
  try {
    await bytesOf((await ask('/c', '{}', new AbortController().signal)).body);
    break;
  } catch (error) {
    if (error?.http2ErrorCode !== constants.NGHTTP2_ENHANCE_YOUR_CALM && error?.cause?.http2ErrorCode !== constants.NGHTTP2_ENHANCE_YOUR_CALM) throw error;
  }
}
said.push('goes on');
await client.destroy();
console.log(said.join(', '));
process.exit(0);
`;

test('a request that is given up as it is sent leaves a connection that goes on', async () => {
  const { stdout } = await exec([process.execPath, '--disable-warning=ExperimentalWarning', '--input-type=module', '-e', GIVING_UP], {
    doing: 'giving up a request',
    timeoutMs: 10_000,
    cwd: import.meta.dirname,
  });
  assert.equal(stdout.trim(), 'request: enough, body: enough of it, goes on');
});
