import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, link, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { connect, createServer, type Server as NetServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import { createCriClient } from '../../cri/client.ts';
import type { RecordedCall, RecordedEntry, RecordedMessage } from '../../cri/core/recording.ts';
import { serveFake, type ServedRuntime } from '../../cri/fake-serve.ts';
import { FakeRuntime } from '../../cri/fake.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { readRecording } from '../../cri/io/recording-read.ts';
import { openTap, type TapOptions } from '../../cri/io/tap.ts';
import { sys } from './splice-way.ts';

let folder: string;
let fake: FakeRuntime;
let server: ServedRuntime;
let made = 0;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tap-'));
  fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: 'busybox', present: true });
  server = await serveFake(fake, join(folder, 'runtime.sock'));
});

after(async () => {
  server.forceShutdown();
  await rm(folder, { recursive: true });
});

const path = (name: string): string => join(folder, `${name}-${++made}`);

function options(extra: Partial<TapOptions> = {}): TapOptions {
  return { listen: path('tap.sock'), upstream: join(folder, 'runtime.sock'), recorder: 'a test', clock: realClock, sys, ...extra };
}

async function entries(file: string): Promise<RecordedEntry[]> {
  const all: RecordedEntry[] = [];
  for await (const entry of readRecording(file, (bytes) => assert.fail(`${bytes} bytes are cut off`))) all.push(entry);
  return all;
}

async function callsOf(file: string): Promise<RecordedCall[]> {
  return (await entries(file)).filter((entry) => entry.type === 'call');
}

function fields(message: RecordedMessage | undefined): Record<string, unknown> {
  assert.ok(message !== undefined && 'fields' in message, JSON.stringify(message));
  return message.fields as Record<string, unknown>;
}

const podConfig = { metadata: { name: 'web', namespace: 'default', uid: 'u', attempt: 0 }, labels: { app: 'web' } };

test('whole calls are recorded: both messages, status, times, connection and stream', async () => {
  const record = path('calls.crirec');
  const given = options({ record: { path: record, maxBytes: 1e9, append: false } });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  const { podSandboxId } = await client.runtime.runPodSandbox({ config: podConfig });
  await assert.rejects(client.runtime.containerStatus({ containerId: 'böse' }), (error) => hasCode(error, 'not-found'));
  const totals = await tap.stop();
  assert.equal(totals?.calls, 2);
  assert.equal((await stat(record)).mode & 0o777, 0o600);
  const [header, ...rest] = await entries(record);
  assert.ok(header?.type === 'recording' && header.redacted && header.version === 1);
  assert.deepEqual(
    rest.map((entry) => (entry.type === 'call' ? entry.method : entry.type === 'connection' ? entry.event : entry.type)),
    ['open', 'RunPodSandbox', 'ContainerStatus', 'close', 'stop'],
  );
  const [run, status] = rest.filter((entry) => entry.type === 'call');
  assert.ok(run !== undefined && status !== undefined);
  assert.deepEqual(fields(run.requests[0]), { config: { metadata: { name: 'web', namespace: 'default', uid: 'u', attempt: 0 }, labels: { app: 'web' } } });
  assert.deepEqual(fields(run.responses[0]), { podSandboxId });
  assert.deepEqual(run.status, { code: 0, name: 'OK', message: '' });
  assert.deepEqual([run.service, run.connection, run.stream, run.call, status.stream, status.call], ['runtime.v1.RuntimeService', 1, 1, 1, 3, 2]);
  assert.ok(run.end !== null && run.end.monoMs >= run.start.monoMs && Math.abs(Date.parse(run.start.wall) - Date.now()) < 60_000);
  assert.deepEqual(status.status, { code: 5, name: 'NotFound', message: 'an error occurred when try to find container "böse": not found' });
  assert.match(run.requestMetadata?.['user-agent'] ?? '', /grpc-node/);
});

test('environment, credentials, verbose information and applied manifests are withheld unless they are asked for', async () => {
  const secret = 'hunter2';
  const use = async (withSecrets: boolean): Promise<RecordedCall[]> => {
    const record = path('secrets.crirec');
    const given = options({ record: { path: record, maxBytes: 1e9, append: false }, withSecrets });
    const tap = await openTap(given);
    await using client = createCriClient(connectRuntime(given.listen));
    const annotations = { 'kubectl.kubernetes.io/last-applied-configuration': secret, note: 'kept' };
    const { podSandboxId } = await client.runtime.runPodSandbox({
      config: { ...podConfig, annotations, metadata: { ...podConfig.metadata, uid: `${withSecrets}` } },
    });
    await client.runtime.createContainer({
      podSandboxId,
      config: { metadata: { name: 'c' }, image: { image: 'busybox' }, envs: [{ key: 'PASSWORD', value: Buffer.from(secret) }], args: ['kept'] },
    });
    await client.images.pullImage({ image: { image: 'busybox' }, auth: { username: secret, password: secret, serverAddress: 'kept' } });
    await tap.stop();
    return await callsOf(record);
  };
  const hidden = await use(false);
  for (const text of [secret, Buffer.from(secret).toString('base64')]) assert.ok(!JSON.stringify(hidden).includes(text));
  const create = fields(hidden.find(({ method }) => method === 'CreateContainer')?.requests[0])['config'] as { envs: object[]; args: string[] };
  assert.deepEqual(create.envs, [{ key: 'PASSWORD', value: '(withheld)' }]);
  assert.deepEqual(create.args, ['kept']);
  assert.deepEqual(fields(hidden.find(({ method }) => method === 'PullImage')?.requests[0])['auth'], {
    username: '(withheld)',
    password: '(withheld)',
    serverAddress: 'kept',
  });
  const open = JSON.stringify(await use(true));
  assert.equal(open.split(secret).length - 1, 3);
  assert.ok(open.includes(Buffer.from(secret).toString('base64')), 'environment values are bytes');
});

test('a program sys that is older is said to be so, and the tap passes bytes on by itself', async () => {
  const old = path('sys');
  await writeFile(old, '#!/bin/sh\necho usage >&2\nexit 2\n', { mode: 0o755 });
  const said: string[] = [];
  const given = options({ sys: old, say: (text) => void said.push(text) });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  await client.runtime.version({});
  await tap.stop();
  assert.match(said.join('\n'), /older than this; bytes are passed on by this process/);
});

test('messages of a stream are recorded as they come', async () => {
  const record = path('events.crirec');
  const given = options({ record: { path: record, maxBytes: 1e9, append: false } });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  const heard: string[] = [];
  const listening = (async () => {
    for await (const { containerEventType } of client.runtime.getContainerEvents({})) if (heard.push(containerEventType) === 2) break;
  })();
  while (fake.sinks.size === 0) await delay(5);
  await client.runtime.runPodSandbox({ config: { metadata: { name: 'q', namespace: 'n', uid: 'v' } } });
  await listening;
  await delay(50);
  await tap.stop();
  const all = await entries(record);
  const messages = all.filter((entry) => entry.type === 'message');
  assert.deepEqual(
    messages.map(({ message }) => fields(message)['containerEventType']),
    ['CONTAINER_CREATED_EVENT', 'CONTAINER_STARTED_EVENT'],
  );
  const call = all.find((entry) => entry.type === 'call' && entry.method === 'GetContainerEvents') as RecordedCall;
  assert.equal(`${call.responsesBefore} ${call.status === null} ${call.cut}`, '2 true the caller reset it: cancelled');
  assert.ok(all.some((entry) => entry.type === 'opening' && entry.call === call.call));
});

test('a message of 16 MB, 300 calls at once, and a hundred cancelled ones', async () => {
  const record = path('large.crirec');
  const given = options({ record: { path: record, maxBytes: 1e9, append: false }, bufferBytes: 64 * 1024 * 1024 });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  const { podSandboxId } = await client.runtime.runPodSandbox({ config: { metadata: { name: 'large', namespace: 'n', uid: 'l' } } });
  const { containerId } = await client.runtime.createContainer({ podSandboxId, config: { metadata: { name: 'c' }, image: { image: 'busybox' } } });
  await client.runtime.startContainer({ containerId });
  fake.onExec = () => ({ stdout: 'x'.repeat(15_900_000) });
  assert.equal((await client.runtime.execSync({ containerId, cmd: ['yes'] })).stdout.length, 15_900_000);
  await Promise.all(Array.from({ length: 300 }, () => client.runtime.version({})));
  fake.images.add({ name: 'slow', pullMs: 60_000 });
  for (let done = 0; done < 100; done++) {
    const stop = new AbortController();
    const pull = client.images.pullImage({ image: { image: 'slow' } }, { signal: stop.signal });
    setImmediate(() => stop.abort());
    await assert.rejects(pull, (error) => hasCode(error, 'aborted'));
  }
  await client.runtime.version({});
  const totals = await tap.stop();
  assert.equal(totals?.blindConnections, 0);
  const calls = await callsOf(record);
  const exec = calls.find(({ method }) => method === 'ExecSync');
  assert.ok((exec?.responses[0]?.sizeBytes ?? 0) > 15_900_000);
  assert.equal(Buffer.from(String(fields(exec?.responses[0])['stdout']), 'base64').length, 15_900_000);
  assert.equal(calls.filter(({ method, status }) => method === 'Version' && status?.code === 0).length, 301);
});

/** Something that listens and does as `handle` says, in place of a runtime. */
async function plainServer(handle: (socket: Socket) => void): Promise<{ path: string; server: NetServer }> {
  const at = path('plain.sock');
  const listening = createServer({ allowHalfOpen: true }, handle);
  await new Promise<void>((resolve) => listening.listen(at, resolve));
  return { path: at, server: listening };
}

function collect(socket: Socket): Promise<Buffer> {
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  return new Promise((resolve, reject) => {
    socket.on('end', () => resolve(Buffer.concat(chunks)));
    socket.on('error', reject);
  });
}

test('what is no HTTP/2 is carried all the same, with its half-closes, and said not to be followed', async () => {
  const upstream = await plainServer((socket) => void collect(socket).then((all) => void socket.end(Uint8Array.from(all).reverse())));
  const record = path('garbage.crirec');
  const said: string[] = [];
  const given = options({ upstream: upstream.path, record: { path: record, maxBytes: 1e9, append: false }, say: (text) => said.push(text) });
  const tap = await openTap(given);
  const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7919) & 255));
  const socket = connect({ path: given.listen, allowHalfOpen: true });
  const answer = collect(socket);
  socket.end(bytes);
  assert.ok((await answer).equals(Uint8Array.from(bytes).reverse()));
  await tap.stop();
  upstream.server.close();
  const blind = (await entries(record)).find((entry) => entry.type === 'connection' && entry.event === 'blind');
  assert.match(JSON.stringify(blind), /does not begin as HTTP\/2 does/);
  assert.match(said.join(), /connection 1: its calls are no longer followed/);
});

test('a sender is held back while its receiver does not read, in both directions', async () => {
  // The first that comes is the tap's own look whether anybody listens.
  const arrived: Socket[] = [];
  const upstream = await plainServer((socket) => void arrived.push(socket.pause()));
  const given = options({ upstream: upstream.path });
  const tap = await openTap(given);
  const socket = connect({ path: given.listen });
  const chunk = Buffer.alloc(1 << 20, 1);
  /** Sends 64 MiB; resolves when it is held back, with what resolves when all was taken. */
  const fill = async (into: Socket): Promise<{ all: Promise<unknown> }> => {
    let taken = 0;
    const all = Promise.all(Array.from({ length: 64 }, () => new Promise<void>((resolve) => into.write(chunk, () => resolve(void (taken += 1))))));
    await delay(300);
    assert.ok(taken < 24, `${taken} MiB were taken although nobody reads`);
    return { all };
  };
  const up = await fill(socket);
  const blocked = arrived.at(-1) ?? assert.fail('no connection came through');
  blocked.resume();
  await up.all;
  socket.pause();
  const down = await fill(blocked);
  socket.resume();
  await down.all;
  // An end, or a failure where something was still on its way.
  const gone = new Promise((resolve) => blocked.once('end', () => blocked.end()).once('close', resolve));
  socket.destroy();
  await gone;
  await tap.stop();
  upstream.server.close();
});

test('an end on one side ends the other; a runtime that is away closes at once', async () => {
  const upstream = await plainServer((socket) => {
    socket.on('error', () => {});
    setTimeout(() => socket.destroy(), 20);
  });
  const given = options({ upstream: upstream.path });
  const tap = await openTap(given);
  const socket = connect({ path: given.listen });
  await new Promise((resolve) => socket.once('close', resolve).resume());
  upstream.server.close();
  const late = connect({ path: given.listen });
  await new Promise((resolve) =>
    late
      .once('close', resolve)
      .resume()
      .once('error', () => {}),
  );
  assert.equal(tap.counts.open, 0);
  await tap.stop();
});

test('more than the decoder can take makes the connection unknown, and harms nothing else', async () => {
  const record = path('overrun.crirec');
  const given = options({ record: { path: record, maxBytes: 1e9, append: false }, bufferBytes: 1 });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  assert.equal((await client.runtime.version({})).runtimeName, 'containerd');
  const totals = await tap.stop();
  assert.equal(totals?.blindConnections, 1);
  assert.match(JSON.stringify(await entries(record)), /more at once than the decoder could take/);
});

test('a full recording ends, traffic goes on', async () => {
  const record = path('full.crirec');
  const said: string[] = [];
  const given = options({ record: { path: record, maxBytes: 100, append: false }, say: (text) => said.push(text) });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  await client.runtime.version({});
  await client.runtime.version({});
  await tap.stop();
  assert.match(said.join(), /is full/);
  assert.equal((await entries(record)).at(-1)?.type, 'stop');
});

test('the socket is as the runtime’s, replaces one that a dead tap left, and is gone afterwards', async () => {
  await chmod(join(folder, 'runtime.sock'), 0o660);
  const given = options();
  const first = await openTap(given);
  assert.equal((await stat(given.listen)).mode & 0o777, 0o660);
  await assert.rejects(openTap(given), (error) => hasCode(error, 'exists'));
  await first.stop();
  assert.ok(!existsSync(given.listen));
  const stale = createServer();
  const other = path('other');
  await new Promise<void>((resolve) => stale.listen(other, resolve));
  await link(other, given.listen);
  await new Promise((resolve) => stale.close(resolve));
  assert.ok(existsSync(given.listen));
  await (await openTap(given)).stop();
  const file = path('file');
  await writeFile(file, '');
  await assert.rejects(openTap(options({ listen: file })), (error) => hasCode(error, 'exists'));
  await assert.rejects(openTap(options({ listen: 'tcp://1' })), (error) => hasCode(error, 'invalid'));
  await assert.rejects(openTap(options({ listen: join(folder, 'runtime.sock') })), (error) => hasCode(error, 'invalid'));
  await assert.rejects(openTap(options({ record: { path: file, maxBytes: 1, append: false } })), (error) => hasCode(error, 'exists'));
});

test('a socket whose process is too busy to answer is not taken for one that a dead process left', async () => {
  const busy = path('busy.sock');
  const script = `require('node:net').createServer().listen({ path: process.argv[1], backlog: 1 }, () => {
    console.log('listening');
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  })`;
  const other = spawn(process.execPath, ['-e', script, busy], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(other.stdout, 'data');
  const waiting: Socket[] = [];
  try {
    for (let isFull = false; !isFull;) {
      const socket = connect({ path: busy });
      waiting.push(socket);
      isFull = await Promise.race([once(socket, 'connect').then(() => false), once(socket, 'error').then(() => true)]).catch(() => true);
    }
    await assert.rejects(openTap(options({ listen: busy })), (error) => hasCode(error, 'exists'));
    assert.ok(existsSync(busy));
  } finally {
    for (const socket of waiting) socket.destroy();
    other.kill('SIGKILL');
    await once(other, 'exit');
  }
});

test('what was flushed before a kill can be read, and what is no recording is refused', async () => {
  const record = path('killed.crirec');
  const given = options({ record: { path: record, maxBytes: 1e9, append: false } });
  const tap = await openTap(given);
  await using client = createCriClient(connectRuntime(given.listen));
  await client.runtime.version({});
  const flushed = async (): Promise<boolean> => {
    for await (const entry of readRecording(record)) if (entry.type === 'call') return true;
    return false;
  };
  while (!(await flushed())) await delay(50);
  const atKill = await readFile(record);
  await tap.stop();
  const cut = path('cut.crirec');
  await writeFile(cut, (await readFile(record)).subarray(0, atKill.length + 20));
  const seen: string[] = [];
  let lostBytes = 0;
  for await (const entry of readRecording(cut, (bytes) => (lostBytes = bytes))) seen.push(entry.type);
  assert.deepEqual(seen, ['recording', 'connection', 'call']);
  assert.equal(lostBytes, 20);
  const foreign = path('foreign');
  await writeFile(foreign, 'not a recording at all');
  for (const [file, code] of [
    [foreign, 'invalid'],
    [path('absent'), 'not-found'],
  ] as const) {
    await assert.rejects(
      async () => {
        for await (const entry of readRecording(file)) assert.fail(entry.type);
      },
      (error) => hasCode(error, code),
    );
  }
});

test('a runtime that is not there yet, or goes, is said once each time; callers are closed meanwhile', async () => {
  const said: string[] = [];
  const upstream = path('late.sock');
  const given = options({ upstream, say: (text) => said.push(text) });
  const tap = await openTap(given);
  for (let tries = 0; tries < 2; tries++) {
    const caller = connect(given.listen);
    await new Promise((resolve) =>
      caller
        .on('error', () => {})
        .once('close', resolve)
        .resume(),
    );
  }
  assert.deepEqual(said, [`${upstream} cannot be reached (nobody listens there): connections are closed until it can`]);
  const late = createServer((socket) => socket.end('here'));
  await new Promise<void>((resolve) => void late.listen(upstream, resolve));
  const caller = connect(given.listen);
  await new Promise((resolve) => caller.once('close', resolve).resume());
  assert.deepEqual(said.slice(1), [`${upstream} can be reached again`]);
  late.close();
  await tap.stop();
});
