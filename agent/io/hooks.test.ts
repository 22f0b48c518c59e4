import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { Cri } from './cri.ts';
import { createHooks } from './hooks.ts';

const pod: Pod = { metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [] } };
const container: Container = { name: 'm' };
const signal = new AbortController().signal;

function hooks(answer: { exitCode: number; stdout?: Uint8Array; stderr?: Uint8Array }) {
  const execSync = async () => ({ stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), ...answer });
  return createHooks({ cri: { runtime: { execSync } } as unknown as Cri, clock: createFakeClock(), tell: () => {} });
}

test('a hook that fails says so with the beginning of what it printed, however much that was', async () => {
  const few = await hooks({ exitCode: 3, stderr: Buffer.from('no such file') }).run(pod, container, 'c', [], { exec: { command: ['x'] } }, 0, signal);
  assert.deepEqual(few, {
    ok: false,
    message: `Exec lifecycle hook ([x]) for Container "m" in Pod "p_n(u)" failed - error: command 'x' exited with 3: no such file, message: "no such file"`,
  });
  const stdout = Buffer.alloc(8 << 20, 'x');
  const much = await hooks({ exitCode: 1, stdout, stderr: stdout }).run(pod, container, 'c', [], { exec: { command: ['x'] } }, 0, signal);
  // The text becomes a waiting message in the pod's status, which the API server takes no more than 1.5 MB of.
  assert.ok(!much.ok && much.message.length < 32 * 1024, String(!much.ok && much.message.length));
});

test('a command that outlives the grace period is left to run until its container ends', async () => {
  const clock = createFakeClock();
  const asked: { timeout: number | undefined; signal: AbortSignal | undefined }[] = [];
  const execSync = (request: { timeout?: number }, options: { signal?: AbortSignal }) => {
    asked.push({ timeout: request.timeout, signal: options.signal });
    return new Promise(() => undefined);
  };
  const slow = createHooks({ cri: { runtime: { execSync } } as unknown as Cri, clock, tell: () => {} });
  const result = slow.run(pod, container, 'c', [], { exec: { command: ['loop'] } }, 30_000, signal);
  await clock.advance(30_000);
  assert.equal((await result).ok, false);
  assert.deepEqual(
    asked.map(({ timeout, signal: of }) => [timeout, of?.aborted]),
    [[0, false]],
  );
});

test('a header may have any name', async (t) => {
  const server = createServer((_, response) => response.writeHead(200).end()).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const heard = once(server, 'request') as Promise<[{ headers: Record<string, string> }]>;
  const httpGet = { port: (server.address() as AddressInfo).port, httpHeaders: [{ name: 'Constructor', value: 'x' }] };
  assert.deepEqual(await hooks({ exitCode: 0 }).run(pod, container, 'c', ['127.0.0.1'], { httpGet }, 0, signal), { ok: true });
  assert.equal((await heard)[0].headers['constructor'], 'x');
});

test('a plain server behind an HTTPS hook is asked again without TLS, and that is told', async (t) => {
  const heard: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    heard.push(request.headers.authorization);
    response.writeHead(200).end();
  }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const httpHeaders = [{ name: 'Authorization', value: 'Basic x' }];
  const told: string[] = [];
  let counted = 0;
  const fallen = createHooks({
    cri: {} as Cri,
    clock: createFakeClock(),
    tell: (_pod, reason, message) => told.push(`${reason} ${message}`),
    metrics: { hookFellBack: () => (counted += 1), sleepCutShort() {} },
  });
  const ask = (scheme: string) => fallen.run(pod, container, 'c', ['127.0.0.1'], { httpGet: { port, scheme, httpHeaders } }, 0, signal);
  assert.deepEqual(await ask('HTTPS'), { ok: true });
  assert.deepEqual(
    [told, counted],
    [[`LifecycleHTTPFallback request to HTTPS lifecycle hook 127.0.0.1:${port} got HTTP response, retry with HTTP succeeded`], 1],
  );
  assert.deepEqual(await ask('HTTP'), { ok: true });
  assert.deepEqual([counted, heard], [1, [undefined, 'Basic x']], 'what was meant for TLS is not sent in clear text');
});
