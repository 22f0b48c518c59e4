import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import http2 from 'node:http2';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { createCriClient, type CriClient } from './client.ts';
import { RpcError } from './errors.ts';
import { serveFake } from './fake-serve.ts';
import { FakeRuntime } from './fake.ts';
import { connectRuntime } from './grpc.ts';
import { openTap } from './io/tap.ts';
import { main } from './main.ts';

const image = 'docker.io/library/busybox:1';
let folder: string;
let recording: string;
let made = 0;
const running = new Set<Running>();

interface Running {
  readonly stop: () => Promise<{ code: number; out: string; err: string }>;
  readonly err: () => string;
}

/** A command of `nodelet cri`, until it ends or is told to. */
function run(...args: string[]): Running {
  const controller = new AbortController();
  let out = '';
  let err = '';
  const host: Host = {
    args,
    env: {},
    pid: process.pid,
    stdout: (text) => (out += text),
    stderr: (text) => (err += text),
    signal: controller.signal,
    isTerminal: false,
  };
  const ended = main(host);
  const own: Running = {
    err: () => err,
    stop: async () => {
      running.delete(own);
      controller.abort();
      return { code: await ended, out, err };
    },
  };
  running.add(own);
  return own;
}

async function whole(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const code = await main({
    args,
    env: {},
    pid: process.pid,
    stdout: (text) => (out += text),
    stderr: (text) => (err += text),
    signal: new AbortController().signal,
    isTerminal: false,
  });
  return { code, out, err };
}

async function served(...args: string[]): Promise<Running & { client: CriClient; socket: string }> {
  const socket = join(folder, `served-${++made}.sock`);
  const playing = run('serve', recording, '--listen', socket, ...args);
  while (!playing.err().includes('listening')) await delay(5);
  return { ...playing, socket, client: createCriClient(connectRuntime(socket)) };
}

afterEach(async () => {
  for (const one of running) await one.stop();
});

const podConfig = (name: string) => ({ metadata: { name, namespace: 'default', uid: `uid-${name}`, attempt: 0 }, logDirectory: join(folder, 'logs', name) });

/** A pod whose init container ends, and whose app is asked something and stopped. */
async function live(client: CriClient): Promise<void> {
  await client.runtime.version({});
  await client.images.pullImage({ image: { image } });
  await client.images.imageStatus({ image: { image } });
  const config = podConfig('web');
  const { podSandboxId } = await client.runtime.runPodSandbox({ config });
  await client.runtime.podSandboxStatus({ podSandboxId });
  const start = async (name: string): Promise<string> => {
    const request = { podSandboxId, config: { metadata: { name }, image: { image }, logPath: `${name}/0.log` }, sandboxConfig: config };
    const { containerId } = await client.runtime.createContainer(request);
    await client.runtime.startContainer({ containerId });
    return containerId;
  };
  const init = await start('init');
  for (;;) {
    const { status } = await client.runtime.containerStatus({ containerId: init });
    if (status?.state === 'CONTAINER_EXITED') break;
    await delay(20);
  }
  const app = await start('app');
  await client.runtime.execSync({ containerId: app, cmd: ['hostname'] });
  await client.runtime.stopContainer({ containerId: app, timeout: 5 });
  await client.runtime.containerStatus({ containerId: app });
  await client.runtime.stopPodSandbox({ podSandboxId });
  await client.runtime.removePodSandbox({ podSandboxId });
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cri-serve-'));
  recording = join(folder, 'calls.crirec');
  const fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: image });
  fake.script('init', { exitAfterMs: 60, exitCode: 0 });
  fake.onExec = () => ({ stdout: 'web\n' });
  await using _server = await serveFake(fake, join(folder, 'fake.sock'));
  const listen = join(folder, 'tap.sock');
  const tap = await openTap({
    listen,
    upstream: join(folder, 'fake.sock'),
    record: { path: recording, maxBytes: 1e9, append: false },
    recorder: 'a test',
    clock: realClock,
  });
  const client = createCriClient(connectRuntime(listen));
  await live(client);
  await client[Symbol.asyncDispose]();
  await tap.stop();
});

after(() => rm(folder, { recursive: true }));

test('a served recording is a runtime that whole pods live on, with logs; its replay matches', async () => {
  const playing = await served();
  assert.equal((await stat(playing.socket)).mode & 0o777, 0o600);
  await live(playing.client);
  const log = await readFile(join(folder, 'logs/web/init/0.log'), 'utf8');
  assert.match(log, /^\d{4}-\d\d-\d\dT[\d:]+\.\d{9}Z stdout F init runs only as .*\n\S+ stdout F init ended with 0 \(Completed\)\n$/);
  const again = await whole('replay', recording, '--upstream', playing.socket, '--speed', 'max');
  assert.match(again.out, /^\d+ calls made, 0 differ$/m, again.out);
  assert.equal(again.code, 0);
  assert.deepEqual((await playing.client.runtime.listPodSandbox({})).items, [], 'a replay leaves nothing');
  assert.equal(existsSync(/files in (\S+)/.exec(again.err)?.[1] ?? '/'), false);
  await playing.client[Symbol.asyncDispose]();
  const { code, out, err } = await playing.stop();
  assert.equal(code, 0);
  assert.match(out, /RunPodSandbox +default\/web#0 +OK +\(as recorded\)/);
  assert.match(err, /\d+ calls: \d+ answered as recorded, \d+ from what is there, 1 not in the recording, 0 refused/, 'the replay asks for the cgroup driver');
  assert.equal(existsSync(playing.socket), false);
});

test('a replay says in JSON what differs, and ends with 1', async () => {
  const fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: image });
  fake.script('init', { exitAfterMs: 20, exitCode: 7 });
  fake.onExec = () => ({ stdout: 'another\n' });
  await using _server = await serveFake(fake, join(folder, 'other.sock'));
  const { code, out } = await whole('replay', recording, '--upstream', join(folder, 'other.sock'), '--speed', 'max', '--json');
  assert.equal(code, 1);
  const lines = out
    .trim()
    .split('\n')
    .map(
      (line) =>
        JSON.parse(line) as {
          method?: string;
          matched?: boolean;
          differences?: { path: string }[];
          summary?: { made: number; differ: number; stopped: boolean };
        },
    );
  const paths = lines.flatMap(({ method, matched, differences }) => (matched === false ? (differences ?? []).map(({ path }) => `${method} ${path}`) : []));
  assert.ok(paths.includes('ExecSync stdout') && paths.includes('ContainerStatus status.exitCode'), paths.join('\n'));
  const { summary } = lines.at(-1) ?? {};
  assert.ok(summary !== undefined && summary.made > 10 && summary.differ >= 2 && !summary.stopped);
  assert.equal(fake.sandboxes.size + fake.containers.size, 0);
  assert.equal(fake.images.list(null).length, 0, 'what was pulled and not there before is gone');
});

test('a replay that is stopped makes no further call and takes away what it made', async () => {
  const fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: image, present: true });
  // The recording's init container ends, this one does not: the replay waits for it.
  await using _server = await serveFake(fake, join(folder, 'slow.sock'));
  const stopped = run('replay', recording, '--upstream', join(folder, 'slow.sock'), '--speed', 'max');
  while (fake.container('init')?.status.state !== 'running') await delay(5);
  const { code, err } = await stopped.stop();
  assert.equal(code, 1);
  assert.match(err, /stopped before its end/);
  assert.equal(fake.sandboxes.size + fake.containers.size, 0);
  assert.equal(fake.images.list(null).length, 1, 'what was there stays');
  assert.equal(existsSync(/files in (\S+)/.exec(err)?.[1] ?? '/'), false);
});

test('strict refuses what is not recorded; streams are refused in words', async () => {
  const playing = await served('--strict', '--quiet', '--no-logs', '--begin', 'empty');
  const { client } = playing;
  const refused = (status: string, words: RegExp) => (error: unknown) => {
    assert.ok(error instanceof RpcError, String(error));
    assert.equal(error.status, status);
    assert.match(error.description, words);
    return true;
  };
  await assert.rejects(client.runtime.runPodSandbox({ config: podConfig('other') }), refused('FailedPrecondition', /no RunPodSandbox of default\/other/));
  await client[Symbol.asyncDispose]();
  const { out, err } = await playing.stop();
  assert.equal(out, '');
  assert.match(err, /1 refused/);
  const plain = await served('--quiet', '--no-logs');
  const { podSandboxId } = await plain.client.runtime.runPodSandbox({ config: podConfig('other') });
  await assert.rejects(plain.client.runtime.portForward({ podSandboxId, port: [80] }), refused('Unimplemented', /this runtime is a recording/));
  await plain.client[Symbol.asyncDispose]();
  assert.match((await plain.stop()).err, /RunPodSandbox default\/other: not in the recording/);
});

test('more cancelled calls in a row than Node allows by itself leave the connection as it is', async () => {
  const playing = await served('--quiet', '--no-logs');
  await playing.client[Symbol.asyncDispose]();
  const session = http2.connect('http://localhost', { createConnection: () => net.connect(playing.socket) });
  const headers = { ':method': 'POST', ':path': '/runtime.v1.RuntimeService/Version', 'content-type': 'application/grpc', te: 'trailers' };
  for (let round = 0; round < 30; round++) {
    await Promise.all(
      Array.from({ length: 100 }, async () => {
        const call = session.request(headers);
        call.on('error', () => {});
        if (call.pending) await once(call, 'ready');
        const closed = once(call, 'close');
        call.close(http2.constants.NGHTTP2_CANCEL);
        await closed;
      }),
    );
  }
  assert.equal(session.destroyed, false);
  const call = session.request(headers);
  call.end(Buffer.alloc(5));
  const [answer] = (await once(call, 'response')) as [http2.IncomingHttpHeaders];
  assert.equal(answer[':status'], 200);
  call.resume();
  const [trailers] = (await once(call, 'trailers')) as [http2.IncomingHttpHeaders];
  assert.equal(trailers['grpc-status'], '0');
  session.destroy();
  await playing.stop();
});

test('wrong input is said in one line', async () => {
  for (const [args, words] of [
    [['serve', join(folder, 'none'), '--listen', join(folder, 'x.sock')], /not-found|no such file/],
    [['serve', recording, '--listen', 'tcp://1.2.3.4:5'], /not a unix socket/],
    [['replay', recording, '--upstream', join(folder, 'x.sock'), '--pod', 'web'], /is no pod/],
  ] as const)
    await assert.rejects(
      main({ args: [...args], env: {}, pid: 1, stdout: () => {}, stderr: () => {}, signal: new AbortController().signal, isTerminal: false }),
      words,
    );
  assert.equal((await whole('serve', recording, '--listen', 'x', '--speed', 'slow')).code, 2);
});
