import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { createCriClient } from '../../cri/client.ts';
import { parseRule } from '../../cri/core/fault-text.ts';
import type { RecordedCall } from '../../cri/core/recording.ts';
import { RpcError } from '../../cri/errors.ts';
import type { FakeRuntime } from '../../cri/fake.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { readRecording } from '../../cri/io/recording-read.ts';
import { openTap, type Tap, type TapOptions } from '../../cri/io/tap.ts';
import { sys } from './splice-way.ts';
import { servedFake, type ServedFake } from './served-fake.ts';

let world: ServedFake;
let folder: string;
let fake: FakeRuntime;
let made = 0;

before(async () => {
  world = await servedFake();
  ({ folder, fake } = world);
});

after(async () => {
  await world[Symbol.asyncDispose]();
});

async function started(extra: Partial<TapOptions> = {}): Promise<AsyncDisposable & { tap: Tap; listen: string; record: string; said: string[] }> {
  const listen = join(folder, `tap-${++made}`);
  const record = `${listen}.crirec`;
  const said: string[] = [];
  const tap = await openTap({
    listen,
    upstream: world.socket,
    record: { path: record, maxBytes: 1e9, append: false },
    recorder: 'a test',
    clock: realClock,
    sys,
    say: (text) => said.push(text),
    ...extra,
  });
  return { tap, listen, record, said, [Symbol.asyncDispose]: async () => void (await tap.stop()) };
}

async function callsOf(record: string): Promise<RecordedCall[]> {
  const calls: RecordedCall[] = [];
  for await (const entry of readRecording(record)) if (entry.type === 'call') calls.push(entry);
  return calls;
}

/** Makes a call again that its own side says was not begun, because the connection had been told to go: gRPC for Go does so by itself. */
async function asGo<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof RpcError) || !error.description.includes('REFUSED_STREAM')) throw error;
    }
  }
}

/** `ok`, or gRPC's status. */
async function outcome(call: () => Promise<unknown>): Promise<string> {
  try {
    await asGo(call);
    return 'ok';
  } catch (error) {
    return error instanceof RpcError ? error.status : String(error);
  }
}

async function until(holds: () => boolean): Promise<void> {
  for (let tries = 0; !holds(); tries++) {
    assert.ok(tries < 500);
    await delay(10);
  }
}

const pod = (name: string): object => ({ config: { metadata: { name, namespace: 'default', uid: name, attempt: 0 } } });

test('rules are armed and disarmed live: what is open goes on, what comes is met, all of it is recorded', async () => {
  await using given = await started();
  const { tap, listen, record, said } = given;
  await using client = createCriClient(connectRuntime(listen));
  assert.equal(await outcome(() => client.runtime.version({})), 'ok');
  const { podSandboxId } = await client.runtime.runPodSandbox(pod('long'));
  const { containerId } = await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name: 'app', attempt: 0 }, image: { image: 'busybox' } },
    sandboxConfig: null,
  });
  await client.runtime.startContainer({ containerId });
  const container = fake.containers.get(containerId);
  assert.ok(container !== undefined);
  container.script = { onStop: { afterMs: 600 } };
  const open = outcome(() => client.runtime.stopContainer({ containerId, timeout: '30' }));
  await delay(50);
  await tap.faults.set([parseRule('RunPodSandbox pod=default/web nth=1 after error deadline')]);
  await delay(50);
  assert.equal(await outcome(() => client.runtime.runPodSandbox(pod('web'))), 'DeadlineExceeded');
  assert.equal(await open, 'ok');
  await until(() => tap.faults.list().connections.outside === 0);
  const state = tap.faults.list();
  assert.equal(state.connections.acting, 1);
  assert.deepEqual(
    state.rules.map(({ text, matched, fired }) => [text, matched, fired]),
    [['RunPodSandbox pod=default/web nth=1 after error DeadlineExceeded', 1, 1]],
  );
  assert.ok(said.includes('rule 1 was done to RunPodSandbox default/web'), said.join());
  await tap.faults.set([]);
  await until(() => tap.faults.list().connections.acting === 0);
  assert.equal(await outcome(() => client.runtime.runPodSandbox(pod('free'))), 'ok');
  await client[Symbol.asyncDispose]();
  await tap.stop();
  assert.equal(existsSync(`${listen}.acting`), false);
  const calls = await callsOf(record);
  const seen = calls.map(({ method, status, connection }) => `${method} ${status?.name} ${connection}`);
  assert.deepEqual(seen.filter((line) => !/^(Create|Start)Container/.test(line)).toSorted(), [
    'RunPodSandbox DeadlineExceeded 2',
    'RunPodSandbox OK 1',
    'RunPodSandbox OK 3',
    'StopContainer OK 1',
    'Version OK 1',
  ]);
  const spoilt = calls.find(({ status }) => status?.name === 'DeadlineExceeded');
  assert.deepEqual(spoilt?.trailers, { 'nodelet-fault': '1 RunPodSandbox pod=default/web nth=1 after error DeadlineExceeded' });
});

test('rules from the start; beside others; with what they have counted, or anew', async () => {
  await using given = await started({ rules: [parseRule('Version error unavailable')] });
  const { tap, listen } = given;
  await using client = createCriClient(connectRuntime(listen));
  assert.equal(await outcome(() => client.runtime.version({})), 'Unavailable');
  const matched = (): readonly number[] => tap.faults.list().rules.map((state) => state.matched);
  await tap.faults.set([parseRule('Status drop')], { add: true });
  assert.deepEqual(matched(), [1, 0]);
  assert.equal(await outcome(() => client.runtime.status({})), 'Internal');
  await tap.faults.set([parseRule('Status drop'), parseRule('Version hang')], { keep: true });
  assert.deepEqual(matched(), [1, 0]);
  await tap.faults.set([parseRule('Status drop')]);
  assert.deepEqual(matched(), [0]);
});

test('a caller that never rests loses no call while rules come and go', async () => {
  await using given = await started();
  const { tap, listen } = given;
  await using client = createCriClient(connectRuntime(listen));
  const before_ = fake.calls.length;
  let answered = 0;
  const over = new AbortController();
  const calling = Array.from({ length: 8 }, async () => {
    for (; !over.signal.aborted; answered++) await asGo(() => client.runtime.version({}));
  });
  for (let round = 0; round < 10; round++) {
    await tap.faults.set(round % 2 === 0 ? [parseRule('RunPodSandbox hang')] : []);
    const goal = answered + 20;
    await until(() => answered >= goal);
  }
  over.abort();
  await Promise.all(calling);
  assert.equal(fake.calls.length - before_, answered);
  assert.ok(tap.counts.opened > 5);
});

test('a stream that does not end is cut when a rule is for it', async () => {
  await using given = await started();
  const { tap, listen } = given;
  await using client = createCriClient(connectRuntime(listen));
  const read = async (): Promise<void> => {
    for await (const event of client.runtime.getContainerEvents({})) assert.ok(event);
  };
  const first = outcome(read);
  await until(() => fake.calls.some(({ method }) => method === 'GetContainerEvents'));
  await tap.faults.set([parseRule('GetContainerEvents error unimplemented')]);
  assert.equal(await first, 'Unavailable');
  assert.equal(await outcome(read), 'Unimplemented');
});
