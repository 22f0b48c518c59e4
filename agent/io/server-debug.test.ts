import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { createFakeSys, fakeRunResult } from '../../base/sys/fake.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { HttpFailure } from './server.ts';
import { createServerDebug, type ServerDebugOptions } from './server-debug.ts';
import { createSystemLogs } from './system-logs.ts';
import { placeOf } from '../core/server-paths.ts';

const pod: Pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u1' }, spec: { containers: [{ name: 'c', image: 'i' }] } };
const container = { id: 'c1', name: 'c', state: 'running' };

/** Asks the pages without a server's doorkeeper; status and text, with the calls to the runtime. */
async function pages(t: TestContext, change: Partial<ServerDebugOptions> = {}, isRunning = true) {
  const calls: unknown[] = [];
  const levels: number[] = [];
  const runtime = {
    checkpointContainer: async (request: unknown) => void calls.push(request),
    execSync: async ({ cmd }: { cmd: string[] }) => ({ stdout: Buffer.from(cmd.join('|')), stderr: Buffer.from('!'), exitCode: cmd[0] === 'false' ? 1 : 0 }),
  } as unknown as ServerDebugOptions['runtime'];
  const debug = createServerDebug(
    {
      clock: createFakeClock(Date.parse('2026-01-02T03:04:05.678Z')),
      runtime,
      runtimeTimeoutMs: 1000,
      rootDir: '/r',
      startedMs: 0,
      flagz: { v: '2' },
      statusz: true,
      checkpoints: true,
      profiles: null,
      setVerbosity: (level) => levels.push(level),
      ...change,
    },
    {
      podOf: ({ pod: name }) => (name === 'p' ? pod : fail(404, 'pod does not exist')),
      hasContainer: (_, name) => name === 'c',
      runningContainer: () => (isRunning ? (container as never) : fail(404, 'container not found ("c")')),
    },
  );
  const server = createServer((raw, response) => {
    const url = new URL(raw.url ?? '', 'http://x');
    const place = placeOf(url.pathname);
    const route = place.kind === 'here' ? place.route : null;
    const answered =
      route === null
        ? Promise.reject(new HttpFailure(404, 'no route'))
        : debug.answer(route, { raw, path: url.pathname, query: url.searchParams }, response, t.signal);
    void answered.catch((error: unknown) => {
      const failure = error as HttpFailure;
      response.writeHead(failure.status).end(failure.message);
    });
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  t.after(() => server.close());
  const ask = async (path: string, init: RequestInit = {}): Promise<string> => {
    const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`, init);
    return `${answer.status} ${await answer.text()}`;
  };
  return { ask, calls, levels };
}

function fail(status: number, message: string): never {
  throw new HttpFailure(status, message);
}

test('a checkpoint names pod, container and time, and is made of what runs', async (t) => {
  const { ask, calls } = await pages(t);
  const post = { method: 'POST' };
  const location = '/r/checkpoints/checkpoint-p_ns-c-2026-01-02T03:04:05Z.tar';
  assert.equal(await ask('/checkpoint/ns/p/c', post), `200 ${JSON.stringify({ items: [location] })}`);
  assert.deepEqual(calls, [{ containerId: 'c1', location, timeout: 0 }]);
  assert.equal(await ask('/checkpoint/ns/p/x', post), '404 container x does not exist');
  assert.equal(await ask('/checkpoint/ns/q/c', post), '404 pod does not exist');
  assert.equal(await ask('/checkpoint/ns/p/c?timeout=soon', post), '404 cannot parse value of timeout parameter');
  const stopped = await pages(t, {}, false);
  assert.equal(await stopped.ask('/checkpoint/ns/p/c', post), '500 checkpointing of ns/p/c failed (container c not found)');
  assert.equal(await (await pages(t, { checkpoints: false })).ask('/checkpoint/ns/p/c', post), '404 404: Page Not Found');
});

test('a command’s output, and how it failed', async (t) => {
  const { ask } = await pages(t);
  assert.equal(await ask('/run/ns/p/c?cmd=echo%20a', { method: 'POST' }), '200 echo|a!');
  assert.equal(await ask('/run/ns/p/c?cmd=false', { method: 'POST' }), "500 command 'false' exited with 1: !");
});

test('z-pages, the verbosity, and what is switched off', async (t) => {
  const { ask, levels } = await pages(t);
  assert.match(await ask('/flagz', { headers: { accept: 'text/plain' } }), /^200 \nkubelet flagz\n.*\nv=2\n$/s);
  const json = { headers: { accept: 'application/json;as=Statusz;v=v1beta1;g=config.k8s.io' } };
  assert.match(await ask('/statusz', json), /^200 \{"kind":"Statusz","apiVersion":"config.k8s.io\/v1beta1"/);
  assert.match(await ask('/statusz', { headers: { accept: 'image/png' } }), /^406 /);
  assert.equal(await ask('/debug/flags/v', { method: 'PUT', body: '5' }), '200 successfully set klog.logging.verbosity to 5\n');
  assert.match(await ask('/debug/flags/v', { method: 'PUT', body: 'x' }), /^400 /);
  assert.equal(await ask('/debug/flags/v'), '406 unsupported http method\n');
  assert.deepEqual(levels, [5]);
  assert.equal(await ask('/debug/pprof/heap'), '405 profiling endpoint is disabled.\n');
  const profiles = { answer: async (name: string) => ({ status: 200, type: 'text/plain', body: `of ${name}` }) };
  const profiled = await pages(t, { profiles });
  assert.equal(await profiled.ask('/debug/pprof/heap?seconds=1'), '200 of heap');
  assert.equal(await profiled.ask('/debug/pprof/heap', { method: 'POST' }), '405 405: Method Not Allowed');
  const off = await pages(t, { flagz: null, statusz: false, setVerbosity: null });
  assert.equal(await off.ask('/flagz'), '404 404: Page Not Found');
  assert.equal(await off.ask('/statusz'), '404 404: Page Not Found');
  assert.equal(await off.ask('/debug/flags/v', { method: 'PUT', body: '5' }), '405 flags endpoint is disabled.\n');
});

test('the machine’s logs: files, folders, queries, and no way out of the folder', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'logs-'));
  t.after(() => rm(folder, { recursive: true }));
  const root = join(folder, 'log');
  await mkdir(join(root, 'pods/ns_p_u'), { recursive: true });
  await writeFile(join(folder, 'secret'), 'SECRET');
  await writeFile(join(root, 'syslog'), 'hello\n');
  await writeFile(join(root, 'web.log'), 'web\n');
  await writeFile(join(root, 'pods/ns_p_u/0.log'), 'pod\n');
  // What a pod with a writable log folder might try.
  await symlink('/etc/passwd', join(root, 'pods/absolute'));
  await symlink('../../secret', join(root, 'pods/relative'));
  await symlink('..', join(root, 'pods/up'));
  await symlink('../syslog', join(root, 'pods/inside'));
  execFileSync('mkfifo', [join(root, 'pipe')]);
  const ran: (readonly string[])[] = [];
  const sys = createFakeSys();
  sys.onRun = (request) => {
    ran.push(request.argv);
    return fakeRunResult({ stdout: request.argv.includes('--field') ? 'kubelet.service\n' : 'journal line\n' });
  };
  const asking = (queries: boolean) => {
    const logs = createSystemLogs({ root, sys, queries });
    const server = createServer((raw, response) => {
      // As it came: a URL reader would take the dots away.
      const [path = '', query = ''] = (raw.url ?? '').split('?');
      void logs.answer(decodeURIComponent(path.slice(1)), new URLSearchParams(query), response, t.signal).catch((error: unknown) => {
        const failure = error as HttpFailure;
        response.writeHead(failure.status).end(failure.message);
      });
    }).listen(0, '127.0.0.1');
    t.after(() => server.close());
    return async (path: string): Promise<string> => {
      if (!server.listening) await new Promise((resolve) => server.once('listening', resolve));
      const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/${path}`);
      return `${answer.status} ${await answer.text()}`;
    };
  };
  const ask = asking(true);
  assert.equal(await ask('syslog'), '200 hello\n');
  assert.equal(await ask('pods/inside'), '200 hello\n');
  assert.match(await ask(''), /^200 <!doctype html>.*<a href="pods\/">pods\/<\/a>/s);
  for (const path of ['pods/absolute', 'pods/relative', '..%2Fsecret', '%2e%2e/secret', 'pods/up/../../secret', 'pods%2Fup%2F..%2F..%2Fsecret', 'pipe', 'none'])
    assert.match(await ask(path), /^404 /, path);
  assert.equal(await ask('?query=kubelet'), '200 journal line\n');
  assert.equal(await ask('?query=web'), '200 web\n');
  assert.equal(await ask('?query=nobody'), '200 \nlog not found for nobody\n');
  assert.equal(await ask('?query=/syslog'), '200 hello\n');
  assert.match(await ask('?query=/../secret'), /^406 /);
  assert.match(await ask('?query=/pods/relative'), /^406 /);
  assert.match(await ask('?query=kubelet;x'), /^406 .*unsupported characters/);
  assert.equal(await ask('syslog?query=kubelet'), '406 path not allowed in query mode\n');
  assert.ok(ran.every(([program]) => program === 'journalctl'));
  const before = ran.length;
  assert.match(await asking(false)('?query=kubelet'), /^200 <!doctype html>/);
  assert.equal(ran.length, before);
});
