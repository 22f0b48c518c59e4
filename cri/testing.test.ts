import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../base/clock.ts';
import { hasCode } from '../base/errors.ts';
import { createFakeClock, type FakeClock } from '../base/fake-clock.ts';
import { createCriClient, type CriClient } from './client.ts';
import { RpcError } from './errors.ts';
import { serveFake } from './fake-serve.ts';
import { FakeRuntime } from './fake.ts';
import { connectRuntime } from './grpc.ts';
import { compose, interceptor, openFaultTap } from './testing.ts';

function world(...rules: readonly string[]): { clock: FakeClock; fake: FakeRuntime; client: CriClient; faults: ReturnType<typeof interceptor> } {
  const clock = createFakeClock();
  const fake = new FakeRuntime({ clock });
  fake.images.add({ name: 'busybox', present: true });
  const faults = interceptor(rules, { clock, seed: 1 });
  return { clock, fake, faults, client: createCriClient(compose(fake, faults)) };
}

async function outcome(call: Promise<unknown>): Promise<string> {
  try {
    await call;
    return 'ok';
  } catch (error) {
    return error instanceof RpcError ? `${error.status}: ${error.description}` : String(error);
  }
}

const pod = (name: string): object => ({ config: { metadata: { name, namespace: 'default', uid: name, attempt: 0 } } });

test('a call that is done and told as failed; counted; switched live', async () => {
  const { fake, client, faults } = world('RunPodSandbox pod=default/web nth=1 after error deadline');
  assert.equal(await outcome(client.runtime.runPodSandbox(pod('web'))), 'DeadlineExceeded: context deadline exceeded');
  assert.equal(fake.sandboxes.size, 1);
  assert.match(await outcome(client.runtime.runPodSandbox(pod('web'))), /is reserved/);
  assert.deepEqual(
    faults.list().map(({ matched, fired }) => [matched, fired]),
    [[2, 1]],
  );
  faults.set([]);
  assert.equal(await outcome(client.runtime.runPodSandbox(pod('other'))), 'ok');
  assert.throws(
    () => faults.set(['RunPodSandbox']),
    (error) => hasCode(error, 'invalid'),
  );
});

test('delays and hangs go by the clock and the caller’s deadline', async () => {
  const { clock, client } = world('Version delay 300ms', 'Status hang', 'RuntimeConfig after delay 5s');
  const late = outcome(client.runtime.version({}));
  const short = outcome(client.runtime.version({}, { timeoutMs: 100 }));
  const hung = outcome(client.runtime.status({}, { timeoutMs: 1000 }));
  const stop = new AbortController();
  const given = outcome(client.runtime.status({}, { timeoutMs: Infinity, signal: stop.signal }));
  const after = outcome(client.runtime.runtimeConfig({}, { timeoutMs: 1000 }));
  await clock.advance(1000);
  stop.abort();
  assert.deepEqual(await Promise.all([late, short, hung, given, after]), [
    'ok',
    'DeadlineExceeded: context deadline exceeded',
    'DeadlineExceeded: context deadline exceeded',
    'Canceled: context canceled',
    'DeadlineExceeded: context deadline exceeded',
  ]);
});

test('drops, and what a client in Go says of them', async () => {
  const { client } = world('Version drop', 'Status drop connection');
  assert.match(await outcome(client.runtime.version({})), /^Internal: stream terminated/);
  assert.match(await outcome(client.runtime.status({})), /^Unavailable: error reading/);
});

test('pods by id, hidden items, events', async () => {
  const { clock, fake, client } = world(
    'StopPodSandbox pod=web error unavailable',
    'ListPodSandbox hide pod=default/web',
    'GetContainerEvents events drop type=started',
  );
  const { podSandboxId } = (await fake.call({ service: 'RuntimeService', method: 'RunPodSandbox', request: pod('web') }, { timeoutMs: 1000 })) as {
    podSandboxId: string;
  };
  assert.match(await outcome(client.runtime.stopPodSandbox({ podSandboxId })), /^Unavailable/);
  await client.runtime.runPodSandbox(pod('free'));
  assert.deepEqual(
    (await client.runtime.listPodSandbox({ filter: null })).items.map(({ metadata }) => metadata?.name),
    ['free'],
  );
  const seen: string[] = [];
  const reading = (async () => {
    for await (const event of client.runtime.getContainerEvents({})) if (seen.push(event.containerEventType) === 2) break;
  })();
  await clock.settle();
  await client.runtime.runPodSandbox(pod('a'));
  await client.runtime.runPodSandbox(pod('b'));
  await reading;
  assert.deepEqual(seen, ['CONTAINER_CREATED_EVENT', 'CONTAINER_CREATED_EVENT']);
});

test('chance goes by its seed', async () => {
  const run = async (): Promise<string> => {
    const { client } = world('Version chance=50% error unknown');
    return (await Promise.all(Array.from({ length: 20 }, () => outcome(client.runtime.version({}))))).map((told) => (told === 'ok' ? '.' : 'x')).join('');
  };
  const first = await run();
  assert.equal(await run(), first);
  assert.match(first, /x.*\.|\..*x/);
});

test('a tap with rules for anybody’s client', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'fault-tap-'));
  const fake = new FakeRuntime({ clock: realClock });
  const server = await serveFake(fake, join(folder, 'runtime'));
  {
    await using tap = await openFaultTap({ listen: join(folder, 'tap'), upstream: join(folder, 'runtime'), rules: ['Version error unavailable "away"'] });
    await using client = createCriClient(connectRuntime(join(folder, 'tap')));
    assert.equal(await outcome(client.runtime.version({})), 'Unavailable: away');
    await tap.set([{ method: 'Version', error: 'Unknown' }]);
    assert.match(await outcome(client.runtime.version({})), /^Unknown/);
    assert.equal(tap.list()[0]?.fired, 1);
  }
  await server[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});
