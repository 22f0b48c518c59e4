import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock, type FakeClock } from '../base/fake-clock.ts';
import { createCriClient, type CriClient } from './client.ts';
import { Playback } from './core/playback.ts';
import type { RecordedEntry } from './core/recording.ts';
import { RpcError } from './errors.ts';
import { FakeRuntime, type ContainerScript } from './fake.ts';
import { failpoints } from './failpoint.ts';
import { PlaybackRuntime, type PlaybackOptions, type Source } from './playback-runtime.ts';
import { recorder } from './recorder.ts';
import { compose } from './transport.ts';

const image = 'docker.io/library/busybox:1';

interface Stage {
  readonly clock: FakeClock;
  readonly client: CriClient;
  readonly fake: FakeRuntime;
}

/** Records what `act` does with a fake runtime, beginning when `before` is done. */
async function record(
  act: (stage: Stage) => Promise<void>,
  options: { before?: (stage: Stage) => Promise<void>; points?: Record<string, string> } = {},
): Promise<RecordedEntry[]> {
  const clock = createFakeClock();
  const fake = new FakeRuntime({ clock });
  fake.images.add({ name: image, present: true });
  await options.before?.({ clock, client: createCriClient(fake), fake });
  await clock.advance(1000);
  const entries: RecordedEntry[] = [];
  const client = createCriClient(
    compose(fake, recorder({ clock, recorder: 'a test', write: (entry) => entries.push(entry) }), failpoints(clock, options.points)),
  );
  await act({ clock, client, fake });
  return entries;
}

interface Played {
  readonly clock: FakeClock;
  readonly client: CriClient;
  readonly runtime: PlaybackRuntime;
  readonly told: { method: string; source: Source }[];
}

function play(entries: readonly RecordedEntry[], options: Partial<PlaybackOptions> = {}): Played {
  const playback = new Playback();
  for (const entry of entries) playback.take(entry);
  playback.finish();
  const clock = createFakeClock(Date.UTC(2026, 5, 1));
  const runtime = new PlaybackRuntime(playback, {
    clock,
    speed: 1,
    strict: false,
    begin: 'start',
    anyImage: false,
    idEnd: 'e'.repeat(52),
    imageFolder: (recorded) => recorded,
    ...options,
  });
  const told: Played['told'] = [];
  runtime.onCall = ({ method }, source) => told.push({ method, source });
  return { clock, client: createCriClient(runtime), runtime, told };
}

const podConfig = (name: string, uid = 'u', attempt = 0) => ({ metadata: { name, namespace: 'default', uid, attempt }, logDirectory: `/logs/${name}` });

async function sandbox(client: CriClient, name: string, uid?: string, attempt?: number): Promise<string> {
  return (await client.runtime.runPodSandbox({ config: podConfig(name, uid, attempt) })).podSandboxId;
}

async function started(client: CriClient, podSandboxId: string, name: string, attempt = 0): Promise<string> {
  const { containerId } = await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name, attempt }, image: { image }, logPath: `${name}/${attempt}.log` },
    sandboxConfig: podConfig('web'),
  });
  await client.runtime.startContainer({ containerId });
  return containerId;
}

const exitOf = async (client: CriClient, containerId: string): Promise<string> => {
  const { status } = await client.runtime.containerStatus({ containerId });
  return `${status?.state} ${status?.exitCode} ${status?.reason}`;
};

function refused(status: string, description: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof RpcError, String(error));
    assert.equal(error.status, status);
    assert.match(error.description, description);
    return true;
  };
}

/** A pod whose `app` crashes twice, then runs until it is stopped after 3 s. */
async function crashes({ clock, client, fake }: Stage): Promise<void> {
  const lives: ContainerScript[] = [
    { exitAfterMs: 500, exitCode: 3 },
    { exitAfterMs: 700, exitCode: 0, oomKilled: true },
    { onStop: { afterMs: 3000, exitCode: 9 } },
  ];
  fake.script('app', ...lives);
  fake.onExec = (_, [command]) => ({ stdout: `said by ${command}`, exitCode: 4 });
  await client.runtime.version({});
  await client.images.imageStatus({ image: { image } });
  const pod = await sandbox(client, 'web');
  await client.runtime.podSandboxStatus({ podSandboxId: pod });
  for (const attempt of [0, 1]) {
    const id = await started(client, pod, 'app', attempt);
    await clock.advance(1000);
    await client.runtime.containerStatus({ containerId: id });
  }
  const last = await started(client, pod, 'app', 2);
  await client.runtime.execSync({ containerId: last, cmd: ['probe'] });
  const stopping = client.runtime.stopContainer({ containerId: last, timeout: 30 });
  await clock.advance(3000);
  await stopping;
  await client.runtime.containerStatus({ containerId: last });
}

test('containers live as they were recorded, whatever their ids, uids and attempts', async () => {
  const { client, clock } = play(await record(crashes));
  const pod = await sandbox(client, 'web', 'another uid', 7);
  const ends: string[] = [];
  for (const attempt of [20, 21]) {
    const id = await started(client, pod, 'app', attempt);
    await clock.advance(499);
    assert.match(await exitOf(client, id), /RUNNING/);
    await clock.advance(500);
    ends.push(await exitOf(client, id));
  }
  assert.deepEqual(ends, ['CONTAINER_EXITED 3 Error', 'CONTAINER_EXITED 137 OOMKilled']);
  const last = await started(client, pod, 'app', 22);
  await clock.advance(60_000);
  const answer = await client.runtime.execSync({ containerId: last, cmd: ['probe'] });
  assert.equal(`${answer.exitCode} ${answer.stdout.toString()}`, '4 said by probe');
  const startedMs = clock.monoMs();
  const stopping = client.runtime.stopContainer({ containerId: last, timeout: 30 });
  await clock.advanceUntil(() => clock.monoMs() - startedMs >= 3000, 3000);
  await stopping;
  assert.equal(await exitOf(client, last), 'CONTAINER_EXITED 9 Error');
  assert.equal((await client.runtime.version({})).runtimeVersion, 'v2.4.0');
});

test('after the recorded calls the last good one is repeated', async () => {
  const entries = await record(
    async ({ client, clock }) => {
      await assert.rejects(sandbox(client, 'web'));
      await clock.advance(10);
      await sandbox(client, 'web');
    },
    { points: { RunPodSandbox: '1*error(unavailable: no network)->off' } },
  );
  const { client } = play(entries);
  await assert.rejects(sandbox(client, 'web'), refused('Unavailable', /^no network$/));
  for (const attempt of [1, 2, 3]) assert.match(await sandbox(client, 'web', 'u', attempt), /^0{11}\de{52}$/);
  const { items } = await client.runtime.listPodSandbox({});
  assert.deepEqual(
    items.map(({ metadata }) => metadata?.attempt),
    [1, 2, 3],
  );
});

test('speed divides durations and lives; at once is without any waiting', async () => {
  const entries = await record(
    async ({ client, clock, fake }) => {
      fake.script('app', { exitAfterMs: 800, exitCode: 2 });
      const pending = sandbox(client, 'web');
      await clock.advance(4000);
      const id = await started(client, await pending, 'app');
      await clock.advance(1000);
      await client.runtime.containerStatus({ containerId: id });
    },
    { points: { RunPodSandbox: 'delay(4000)' } },
  );
  for (const [speed, madeMs, livedMs] of [
    [1, 4000, 800],
    [4, 1000, 200],
    [Infinity, 0, 0],
  ] as const) {
    const { client, clock } = play(entries, { speed });
    const pending = sandbox(client, 'web');
    await clock.advance(madeMs);
    const id = await started(client, await pending, 'app');
    assert.equal(clock.monoMs(), madeMs);
    await clock.advance(livedMs);
    assert.equal(await exitOf(client, id), 'CONTAINER_EXITED 2 Error', `speed ${speed}`);
  }
});

test('a call that its caller gave up hangs as long, and ends at the deadline of the next caller', async () => {
  const entries = await record(
    async ({ client, clock }) => {
      const stop = new AbortController();
      const hanging = client.runtime.runPodSandbox({ config: podConfig('web') }, { signal: stop.signal });
      await clock.advance(200_000);
      stop.abort();
      await assert.rejects(hanging);
    },
    { points: { RunPodSandbox: 'delay(1000000)' } },
  );
  const { client, clock } = play(entries);
  const hanging = client.runtime.runPodSandbox({ config: podConfig('web') }, { timeoutMs: 30_000 });
  const failed = assert.rejects(hanging, refused('DeadlineExceeded', /context deadline exceeded/));
  await clock.advance(29_000);
  assert.equal(clock.armed, 1);
  await clock.advance(1000);
  await failed;
});

test('a start that was refused leaves a container that has ended', async () => {
  const entries = await record(async ({ client, fake }) => {
    fake.script('app', { startError: 'exec: "/no/such/program": no such file or directory' });
    await assert.rejects(started(client, await sandbox(client, 'web'), 'app'));
  });
  const { client } = play(entries);
  const pod = await sandbox(client, 'web');
  await assert.rejects(started(client, pod, 'app'), refused('Unknown', /no such file/));
  const [container] = (await client.runtime.listContainers({})).containers;
  assert.equal(await exitOf(client, container?.id ?? ''), 'CONTAINER_EXITED 128 StartError');
});

test('what is not in the recording is answered by the small runtime, or refused when strict', async () => {
  const entries = await record(crashes);
  const { client, told } = play(entries);
  const other = await sandbox(client, 'other');
  await client.runtime.execSync({ containerId: await started(client, other, 'main'), cmd: ['true'] });
  await client.runtime.stopPodSandbox({ podSandboxId: other });
  await client.runtime.removePodSandbox({ podSandboxId: other });
  assert.deepEqual(new Set(told.map(({ source }) => source)), new Set(['fake']));
  await assert.rejects(client.images.pullImage({ image: { image: 'example.com/absent:1' } }), refused('NotFound', /not found/));
  await assert.rejects(client.runtime.exec({ containerId: await started(client, await sandbox(client, 'web'), 'app') }), refused('Unimplemented', /recording/));

  const strict = play(entries, { strict: true });
  await sandbox(strict.client, 'web');
  await assert.rejects(sandbox(strict.client, 'other'), refused('FailedPrecondition', /^the recording has no RunPodSandbox of default\/other$/));
  await assert.rejects(strict.client.runtime.status({}), refused('FailedPrecondition', /no Status$/));
});

test('it begins with what the recorded runtime held, at the start or at the end', async () => {
  const before = async ({ client, fake }: Stage): Promise<void> => {
    fake.script('short', { exitAfterMs: 5000, exitCode: 6 });
    const pod = await sandbox(client, 'old');
    await started(client, pod, 'long');
    await started(client, pod, 'short');
  };
  const entries = await record(
    async ({ client, clock }) => {
      const [old] = (await client.runtime.listPodSandbox({})).items;
      const { containers } = await client.runtime.listContainers({});
      for (const { id } of containers) await client.runtime.containerStatus({ containerId: id });
      await sandbox(client, 'new');
      await clock.advance(6000);
      for (const { id } of containers) await client.runtime.containerStatus({ containerId: id });
      const [long] = containers;
      await client.runtime.stopContainer({ containerId: long?.id ?? '', timeout: 1 });
      await client.runtime.removeContainer({ containerId: long?.id ?? '' });
      assert.equal(old?.metadata?.name, 'old');
    },
    { before },
  );
  const names = async (client: CriClient): Promise<string> =>
    [
      ...(await client.runtime.listPodSandbox({})).items.map(({ metadata }) => metadata?.name),
      ...(await client.runtime.listContainers({})).containers.map(({ metadata, state }) => `${metadata?.name} ${state}`),
    ].join(', ');
  const start = play(entries);
  assert.equal(await names(start.client), 'old, long CONTAINER_RUNNING, short CONTAINER_RUNNING');
  // Recording began a second into its life.
  await start.clock.advance(3999);
  assert.match(await names(start.client), /short CONTAINER_RUNNING/);
  await start.clock.advance(1);
  assert.match(await names(start.client), /short CONTAINER_EXITED/);
  const [, short] = (await start.client.runtime.listContainers({})).containers;
  assert.equal(await exitOf(start.client, short?.id ?? ''), 'CONTAINER_EXITED 6 Error');
  assert.equal(await names(play(entries, { begin: 'end' }).client), 'old, new, short CONTAINER_EXITED');
  assert.equal(await names(play(entries, { begin: 'empty' }).client), '');
});

test('addresses are the recorded ones, and none is given twice', async () => {
  const entries = await record(async ({ client }) => {
    const pod = await sandbox(client, 'web');
    await client.runtime.podSandboxStatus({ podSandboxId: pod });
    await client.runtime.removePodSandbox({ podSandboxId: pod });
  });
  const { client } = play(entries);
  const ips: string[] = [];
  for (const [name, attempt] of [
    ['other', 0],
    ['web', 0],
    ['web', 1],
  ] as const)
    ips.push((await client.runtime.podSandboxStatus({ podSandboxId: await sandbox(client, name, 'u', attempt) })).status?.network?.ip ?? '');
  assert.equal(ips[1], '10.88.0.1');
  assert.equal(new Set(ips).size, 3, ips.join(' '));
});

test('lists come in pieces where the recorded runtime gave them so, and not where it did not', async () => {
  const entries = await record(crashes);
  const plain = play(entries);
  const all = async (client: CriClient): Promise<string[]> => {
    const names: string[] = [];
    for await (const { containers } of client.runtime.streamContainers({})) names.push(...containers.map(({ metadata }) => metadata?.name ?? ''));
    return names;
  };
  await assert.rejects(all(plain.client), refused('Unimplemented', /unknown method StreamContainers/));
  const at = { wall: '2026-01-01T00:00:09.000Z', monoMs: 9000 };
  const stream = { call: 900, connection: 1, stream: 1801, service: 'runtime.v1.RuntimeService', method: 'StreamContainers', start: at };
  const { client } = play([
    ...entries,
    { type: 'opening', ...stream, requests: [{ fields: {}, sizeBytes: 0 }] },
    { type: 'message', call: 900, at, message: { fields: { containers: [] }, sizeBytes: 0 } },
    { type: 'call', ...stream, end: at, requests: [], responses: [], responsesBefore: 1, status: { code: 0, name: 'OK', message: '' } },
  ]);
  await started(client, await sandbox(client, 'web'), 'app');
  assert.deepEqual(await all(client), ['app']);
});

test('events of what callers do are given to those who listen', async () => {
  const { client } = play(await record(crashes));
  const heard: string[] = [];
  const listening = (async () => {
    for await (const { containerEventType, podSandboxStatus } of client.runtime.getContainerEvents({})) {
      heard.push(`${containerEventType} ${podSandboxStatus?.metadata?.name}`);
      if (heard.length === 4) break;
    }
  })();
  await started(client, await sandbox(client, 'web'), 'app');
  await listening;
  assert.deepEqual(heard, ['CONTAINER_CREATED_EVENT web', 'CONTAINER_STARTED_EVENT web', 'CONTAINER_CREATED_EVENT web', 'CONTAINER_STARTED_EVENT web']);
});
