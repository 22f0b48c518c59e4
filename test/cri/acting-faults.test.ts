import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { createCriClient, type CriClient } from '../../cri/client.ts';
import { ArmedRules } from '../../cri/core/fault-rules.ts';
import { parseRule } from '../../cri/core/fault-text.ts';
import { RpcError } from '../../cri/errors.ts';
import type { FakeRuntime } from '../../cri/fake.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { openActing, type Fired } from '../../cri/io/acting.ts';
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

interface Armed extends AsyncDisposable {
  readonly client: CriClient;
  readonly fired: readonly Fired[];
}

async function armed(...lines: readonly string[]): Promise<Armed> {
  const path = join(folder, `acting-${++made}`);
  const fired: Fired[] = [];
  const rules = new ArmedRules(lines.map(parseRule), () => 0);
  const acting = await openActing({ path, upstream: world.socket, clock: realClock, armed: () => rules, onFired: (one) => fired.push(one) });
  const client = createCriClient(connectRuntime(path));
  return {
    client,
    fired,
    [Symbol.asyncDispose]: async () => {
      await client[Symbol.asyncDispose]();
      await acting[Symbol.asyncDispose]();
    },
  };
}

/** `ok`, or gRPC's status and words. */
async function outcome(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'ok';
  } catch (error) {
    return error instanceof RpcError ? `${error.status}: ${error.description}` : String(error);
  }
}

const pod = (name: string, attempt = 0): object => ({ config: { metadata: { name, namespace: 'default', uid: name, attempt } } });
const calls = (method: string): number => fake.calls.filter((call) => call.method === method).length;

test('after: the runtime did it, and the caller is told that it failed', async () => {
  await using given = await armed('RunPodSandbox pod=default/after nth=1 after error deadline');
  assert.equal(await outcome(given.client.runtime.runPodSandbox(pod('other'))), 'ok');
  assert.equal(await outcome(given.client.runtime.runPodSandbox(pod('after'))), 'DeadlineExceeded: context deadline exceeded');
  assert.equal([...fake.sandboxes.values()].filter(({ config }) => config.metadata?.name === 'after').length, 1);
  assert.match(await outcome(given.client.runtime.runPodSandbox(pod('after'))), /name .* is reserved/);
  assert.deepEqual(
    given.fired.map(({ number, method, subject }) => [number, method, subject.pod]),
    [[1, 'RunPodSandbox', 'default/after']],
  );
});

test('what the runtime itself refuses is not spoilt', async () => {
  await using given = await armed('ContainerStatus after error unavailable');
  assert.match(await outcome(given.client.runtime.containerStatus({ containerId: 'none' })), /^NotFound/);
});

test('error: with words, and without the runtime', async () => {
  await using given = await armed('Version error unavailable "no rööm %"');
  const before_ = calls('Version');
  assert.equal(await outcome(given.client.runtime.version({})), 'Unavailable: no rööm %');
  assert.equal(calls('Version'), before_);
});

test('delay, before and after', async () => {
  await using given = await armed('Version delay 120ms', 'Status after delay 120ms');
  for (const call of [() => given.client.runtime.version({}), () => given.client.runtime.status({})]) {
    const start = realClock.monoMs();
    assert.equal(await outcome(call()), 'ok');
    assert.ok(realClock.monoMs() - start >= 119);
  }
});

test('drop: the call is reset, and with it nothing else', async () => {
  await using given = await armed('Version drop');
  const status = given.client.runtime.status({});
  assert.match(await outcome(given.client.runtime.version({})), /^Internal: /);
  assert.equal(await outcome(status), 'ok');
});

test('drop connection: all that is open on it fails, and the next call finds a new one', async () => {
  await using given = await armed('Version nth=1 drop connection', 'Status delay 5s');
  const status = outcome(given.client.runtime.status({}));
  await delay(50);
  assert.match(await outcome(given.client.runtime.version({})), /^Unavailable/);
  assert.match(await status, /^Unavailable/);
  for (let tries = 0; (await outcome(given.client.runtime.version({}))) !== 'ok'; tries++) {
    assert.ok(tries < 100);
    await delay(50);
  }
});

test('hang: until the caller gives up', async () => {
  await using given = await armed('Version hang', 'RunPodSandbox pod=hung after hang');
  const before_ = calls('Version');
  assert.match(await outcome(given.client.runtime.version({}, { timeoutMs: 150 })), /^DeadlineExceeded/);
  assert.equal(calls('Version'), before_);
  assert.match(await outcome(given.client.runtime.runPodSandbox(pod('hung'), { timeoutMs: 1500 })), /^DeadlineExceeded/);
  assert.equal([...fake.sandboxes.values()].filter(({ config }) => config.metadata?.name === 'hung').length, 1);
});

test('containers and sandboxes that were there before go by their names too', async () => {
  const { podSandboxId } = (await fake.call({ service: 'RuntimeService', method: 'RunPodSandbox', request: pod('old') }, { timeoutMs: 1000 })) as {
    podSandboxId: string;
  };
  const create = { podSandboxId, config: { metadata: { name: 'app', attempt: 0 }, image: { image: 'busybox' } }, sandboxConfig: null };
  const { containerId } = (await fake.call({ service: 'RuntimeService', method: 'CreateContainer', request: create }, { timeoutMs: 1000 })) as {
    containerId: string;
  };
  await using given = await armed('StartContainer pod=default/old container=app image=busybox error unknown "x"', 'PodSandboxStatus pod=old error unknown "y"');
  assert.equal(await outcome(given.client.runtime.startContainer({ containerId })), 'Unknown: x');
  assert.equal(await outcome(given.client.runtime.podSandboxStatus({ podSandboxId, verbose: false })), 'Unknown: y');
  assert.equal(await outcome(given.client.runtime.containerStatus({ containerId, verbose: false })), 'ok');
});

test('hide: items leave a list, by pod and by container', async () => {
  await using given = await armed('ListPodSandbox first=1 hide pod=default/old', 'ListContainers hide container=ap?');
  const names = async (): Promise<(string | undefined)[]> =>
    (await given.client.runtime.listPodSandbox({ filter: null })).items.map(({ metadata }) => metadata?.name);
  const first = await names();
  const second = await names();
  assert.deepEqual(
    first,
    second.filter((name) => name !== 'old'),
  );
  assert.ok(second.includes('old'));
  assert.equal((await given.client.runtime.listContainers({ filter: null })).containers.length, 0);
});

/** Until the runtime has one more stream of events. */
async function streaming(before_: number): Promise<void> {
  for (let tries = 0; calls('GetContainerEvents') === before_; tries++) {
    assert.ok(tries < 500);
    await delay(10);
  }
}

test('events: dropped, doubled and late', async () => {
  const watch = async (rule: string): Promise<string[]> => {
    await using given = await armed(rule);
    const stop = new AbortController();
    const streams = calls('GetContainerEvents');
    const got: string[] = [];
    const stream = given.client.runtime.getContainerEvents({}, { signal: stop.signal });
    const reading = (async () => {
      for await (const event of stream) if (got.push(event.containerEventType) === 2) break;
    })().catch(() => {});
    await streaming(streams);
    await fake.call({ service: 'RuntimeService', method: 'RunPodSandbox', request: pod(`events-${++made}`) }, { timeoutMs: 1000 });
    await Promise.race([reading, delay(1500)]);
    stop.abort();
    await reading;
    return got.map((type) => type.slice('CONTAINER_'.length, -'_EVENT'.length));
  };
  assert.deepEqual(await watch('Version hang'), ['CREATED', 'STARTED']);
  assert.deepEqual(await watch('GetContainerEvents events drop pod=default/events-* type=created'), ['STARTED']);
  assert.deepEqual(await watch('GetContainerEvents events duplicate nth=1'), ['CREATED', 'CREATED']);
  assert.deepEqual(await watch('GetContainerEvents events delay 150ms'), ['CREATED', 'STARTED']);
  assert.deepEqual(await watch('GetContainerEvents events delay 9s type=started'), ['CREATED']);
});

test('truncate: a stream ends after so many messages, as the rule says', async () => {
  const read = async (rule: string): Promise<[number, string]> => {
    await using given = await armed(rule);
    let count = 0;
    const streams = calls('GetContainerEvents');
    const ended = outcome(
      (async () => {
        for await (const event of given.client.runtime.getContainerEvents({}, { timeoutMs: 3000 })) count += event.containerId === '' ? 0 : 1;
      })(),
    );
    await streaming(streams);
    await fake.call({ service: 'RuntimeService', method: 'RunPodSandbox', request: pod(`cut-${++made}`) }, { timeoutMs: 1000 });
    return [count, await ended];
  };
  assert.match((await read('GetContainerEvents truncate 1'))[1], /^Internal/);
  assert.equal((await read('GetContainerEvents truncate 1 end'))[1], 'ok');
  assert.equal((await read('GetContainerEvents truncate 0 error unavailable "away"'))[1], 'Unavailable: away');
});
