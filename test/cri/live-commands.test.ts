import { FakeHost } from '../../base/fake-host.ts';
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createListener, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import { createCriClient } from '../../cri/client.ts';
import { parseRule } from '../../cri/core/fault-text.ts';
import { grep } from '../../cri/grep.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { askTap } from '../../cri/io/feed.ts';
import { openTap, type Tap, type TapStatus } from '../../cri/io/tap.ts';
import { record } from '../../cri/record.ts';
import { show } from '../../cri/show.ts';
import { top } from '../../cri/top.ts';
import { watchWhat } from '../../cri/watch.ts';
import { web } from '../../cri/web-command.ts';
import { sys } from './splice-way.ts';
import { servedFake, type ServedFake } from './served-fake.ts';

let world: ServedFake;
let folder: string;
let tap: Tap;
let made = 0;
const listen = (): string => join(folder, 'tap.sock');
const file = (): string => join(folder, `${++made}.crirec`);

before(async () => {
  world = await servedFake();
  ({ folder } = world);
  tap = await openTap({ listen: listen(), upstream: world.socket, recorder: 'a test', clock: realClock, sys, control: { pid: process.pid } });
});

after(async () => {
  await tap.stop();
  await world[Symbol.asyncDispose]();
});

function hostOf(): { host: Host; out: () => string; stop: () => void } {
  const end = new AbortController();
  const host = new FakeHost([], end.signal);
  return { host, out: () => host.out, stop: () => end.abort() };
}

async function until(done: () => boolean | Promise<boolean>): Promise<void> {
  for (let at = 0; at < 2_000; at++) {
    if (await done()) return;
    await delay(10);
  }
  assert.fail(`it did not come in 20 s: ${done.toString()}`);
}

/** A pod with a container that is looked at, and a call that fails. */
async function pod(name: string): Promise<void> {
  await using client = createCriClient(connectRuntime(listen()));
  const { podSandboxId } = await client.runtime.runPodSandbox({ config: { metadata: { name, namespace: 'default', uid: name } } });
  await client.runtime.podSandboxStatus({ podSandboxId });
  await client.runtime.podSandboxStatus({ podSandboxId });
  const { containerId } = await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name: 'main' }, image: { image: 'busybox' }, command: ['sleep', '5'] },
  });
  await client.runtime.startContainer({ containerId });
  await assert.rejects(client.runtime.containerStatus({ containerId: 'nobody' }), (error) => hasCode(error, 'not-found'));
}

/** Waits until so many look. */
async function viewers(count: number): Promise<void> {
  await until(async () => ((await askTap(`${listen()}.tap`, { do: 'status' }, new AbortController().signal)) as TapStatus).viewers === count);
}

const control = (): { tap: string } => ({ tap: `${listen()}.tap` });

test('watch tells calls as they happen, with the network plugin’s time where the runtime’s metrics say it', async () => {
  let setups = 0;
  const metrics = createServer((_, answer) =>
    answer.end(`containerd_cri_sandbox_create_network_seconds_sum ${setups * 0.25}\ncontainerd_cri_sandbox_create_network_seconds_count ${setups}\n`),
  );
  await new Promise<void>((resolve) => metrics.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(metrics.address() as AddressInfo).port}/v1/metrics`;
  const { host, out, stop } = hostOf();
  const json = hostOf();
  const watching = watchWhat(host, undefined, { ...control(), json: false, lines: true, metrics: url }, realClock, 'a test');
  const asJson = watchWhat(json.host, 'pod/default/seen', { ...control(), json: true, lines: false }, realClock, 'a test');
  await viewers(2);
  setups += 1;
  await pod('seen');
  await until(() => out().includes('nobody') && json.out().includes('StartContainer'));
  stop();
  json.stop();
  await Promise.all([watching, asJson]);
  metrics.close();
  assert.match(out(), /RunPodSandbox +default\/seen {2}ok {2}network plugin 250 ms {2}→ \w{12}\n.*PodSandboxStatus ×2 +default\/seen {2}ok/);
  assert.match(out(), /CreateContainer +default\/seen\/main#0 {2}ok {2}busybox {2}sleep 5/);
  assert.match(out(), /ContainerStatus .*NotFound: an error occurred when try to find container "nobody": not found/);
  const calls = json
    .out()
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { method: string; pod: string; durationMs: number; fields: string[] });
  assert.deepEqual(
    calls.map(({ method }) => method),
    ['RunPodSandbox', 'PodSandboxStatus', 'PodSandboxStatus', 'CreateContainer', 'StartContainer'],
  );
  assert.ok(calls.every(({ pod: of, durationMs }) => of === 'default/seen' && durationMs >= 0));
});

test('watch tells of a call that goes on, and once more when it has ended; a recording has it once', async () => {
  const { host, out, stop } = hostOf();
  const json = hostOf();
  const recording = file();
  const watching = watchWhat(host, undefined, { ...control(), json: false, lines: true }, realClock, 'a test');
  const asJson = watchWhat(json.host, undefined, { ...control(), json: true, lines: false }, realClock, 'a test');
  const recorder = hostOf();
  const written = record(
    recorder.host,
    [],
    { ...control(), output: recording, append: false, maxSize: 1e9, withSecrets: false, json: true },
    realClock,
    'a test',
  );
  await viewers(3);
  await tap.faults.set([parseRule('RunPodSandbox delay 2500ms')]);
  await using client = createCriClient(connectRuntime(listen()));
  await client.runtime.runPodSandbox({ config: { metadata: { name: 'slow', namespace: 'default', uid: 'slow' } } });
  await until(() => /RunPodSandbox +default\/slow {2}ok/.test(out()) && json.out().includes('"outcome":"OK"'));
  await tap.faults.set([]);
  for (const each of [{ stop }, json, recorder]) each.stop();
  await Promise.all([watching, asJson, written]);
  assert.match(out(), /^[\d:.]{12} +1\.\d+ s … {2}RunPodSandbox +default\/slow {2}runs.*\n[^]*2\.\d+ s {2}RunPodSandbox +default\/slow {2}ok/);
  const kinds = json
    .out()
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { kind: string; method: string });
  assert.deepEqual(
    kinds.filter(({ method }) => method === 'RunPodSandbox').map(({ kind }) => kind),
    ['running', 'call'],
  );
  assert.equal((JSON.parse(recorder.out()) as { calls: number }).calls, 1);
});

test('top counts for a while, and ends', async () => {
  const { host, out } = hostOf();
  const counting = top(host, undefined, { ...control(), json: true, once: true, for: 3_000, interval: 1_000 }, realClock, 'a test');
  await viewers(1);
  await pod('counted');
  assert.equal(await counting, 0);
  const { calls, errors, methods } = JSON.parse(out()) as { calls: number; errors: number; methods: { method: string; calls: number }[] };
  assert.equal(`${calls} ${errors}`, '6 1');
  assert.deepEqual(methods[0]?.method, 'PodSandboxStatus');
});

test('record writes what passes while a command runs, whose exit code it has; grep and show find it there', async () => {
  const output = file();
  const flags = { ...control(), output, append: false, maxSize: 1e9, withSecrets: false, json: true };
  const { host, out } = hostOf();
  const recording = record(host, ['sh', '-c', 'sleep 3; exit 7'], flags, realClock, 'a test');
  await viewers(1);
  await pod('kept');
  assert.equal(await recording, 7);
  assert.equal((await stat(output)).mode & 0o777, 0o600);
  const { exitCode, ...said } = JSON.parse(out()) as Record<string, unknown>;
  assert.deepEqual([exitCode, said['calls'], said['pods'], said['errors'], said['entriesLost']], [7, 6, 1, 1, 0]);

  const found = hostOf();
  assert.equal(await grep(found.host, 'command.*=sleep', [output], { ignoreCase: false, full: false, count: false, json: false }), 0);
  assert.match(found.out(), /CreateContainer {2}default\/kept\/main#0 {2}OK\n {4}> config\.command\[0\] = sleep\n$/);
  const none = hostOf();
  assert.equal(await grep(none.host, 'nothing of it', [output], { ignoreCase: false, full: false, count: true, json: false }), 1);
  assert.equal(none.out(), '0\n');
  await assert.rejects(grep(none.host, '(', [output], { ignoreCase: false, full: false, count: false, json: false }), (error) => hasCode(error, 'invalid'));

  const shown = hostOf();
  await show(shown.host, output, { outcome: 'failed', full: false, json: true });
  assert.deepEqual(
    shown
      .out()
      .trim()
      .split('\n')
      .map((line) => (JSON.parse(line) as { method: string; outcome: string }).outcome),
    ['NotFound'],
  );
  const grouped = hostOf();
  await watchWhat(grouped.host, output, { json: false, lines: false }, realClock, 'a test');
  assert.match(grouped.out(), /^default\/kept {2}from [\d:.]+ {2}5 calls\n/);
  assert.match(grouped.out(), /\nthe node {2}from [\d:.]+ {2}1 call, 1 failed\n/);
});

test('a tap of the command’s own is there as long as it runs, and writes its file itself', async () => {
  const output = file();
  const own = join(folder, 'own.sock');
  const flags = { listen: own, upstream: world.socket, output, append: false, maxSize: 1e9, withSecrets: false, json: true };
  const { host, out, stop } = hostOf();
  const recording = record(host, [], flags, realClock, 'a test');
  await until(() => existsSync(`${own}.tap`));
  await using client = createCriClient(connectRuntime(own));
  await client.runtime.version({});
  stop();
  assert.equal(await recording, 0);
  assert.equal((JSON.parse(out()) as { calls: number }).calls, 1);
  assert.ok(!existsSync(own) && !existsSync(`${own}.tap`));

  // Once more into the same file: what was there before is not counted again.
  const more = hostOf();
  const appending = record(more.host, [], { ...flags, append: true }, realClock, 'a test');
  await until(() => existsSync(`${own}.tap`));
  await using again = createCriClient(connectRuntime(own));
  await again.runtime.version({});
  await again.runtime.version({});
  more.stop();
  await appending;
  assert.equal((JSON.parse(more.out()) as { calls: number }).calls, 2);
});

test('a recording by a tap of the command’s own ends when its file takes no more, and that is said once', async () => {
  const output = file();
  const own = join(folder, 'small.sock');
  const said: string[] = [];
  const { host, out } = hostOf();
  const flags = { listen: own, upstream: world.socket, output, append: false, maxSize: 500, withSecrets: false, json: true };
  const recording = record({ ...host, stderr: (text) => said.push(text) }, [], flags, realClock, 'a test');
  await until(() => existsSync(`${own}.tap`));
  await using client = createCriClient(connectRuntime(own));
  await client.runtime.version({});
  assert.equal(await recording, 0);
  assert.equal((JSON.parse(out()) as { ended: string }).ended, 'the file takes no more');
  assert.equal(said.filter((text) => text.includes('full') || text.includes('no more')).length, 1, said.join(''));
});

test('what cannot be reached is said', async () => {
  const { host } = hostOf();
  const flags = { json: true, lines: false };
  await assert.rejects(watchWhat(host, undefined, { ...flags, tap: join(folder, 'nobody') }, realClock, ''), (error) => hasCode(error, 'unavailable'));
  const silent = createListener(() => {});
  await new Promise<void>((resolve) => silent.listen(join(folder, 'silent'), resolve));
  await assert.rejects(watchWhat(host, undefined, { ...flags, tap: join(folder, 'silent') }, realClock, ''), (error) => hasCode(error, 'deadline'));
  silent.close();
  await assert.rejects(watchWhat(host, undefined, { ...flags, listen: '/x' }, realClock, ''), (error) => hasCode(error, 'invalid'));
  await assert.rejects(watchWhat(host, undefined, { ...flags, ...control(), metrics: 'http://127.0.0.1:1/' }, realClock, ''), (error) =>
    hasCode(error, 'unavailable'),
  );
  await assert.rejects(watchWhat(host, join(folder, 'absent'), flags, realClock, ''), (error) => hasCode(error, 'not-found'));
});

test('web is told as the others where to attach', async () => {
  const flags = { listen: '127.0.0.1:0', open: false, json: true, tap: `${listen()}.tap`, node: 'node-1' };
  await assert.rejects(web(hostOf().host, undefined, flags, realClock, 'a test'), (error) => hasCode(error, 'invalid'));
});
