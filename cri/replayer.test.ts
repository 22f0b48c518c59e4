import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock, type FakeClock } from '../base/fake-clock.ts';
import { createCriClient, type CriClient } from './client.ts';
import type { RecordedEntry } from './core/recording.ts';
import { ReplayPlan } from './core/replay-plan.ts';
import { Rewriter } from './core/replay-rewrite.ts';
import { FakeRuntime } from './fake.ts';
import { failpoints } from './failpoint.ts';
import { recorder } from './recorder.ts';
import { Replayer, type Replayed } from './replayer.ts';
import { CallRenderer } from './render.ts';
import { compose } from './transport.ts';

const image = 'docker.io/library/busybox:1';

interface Runtime {
  readonly clock: FakeClock;
  readonly fake: FakeRuntime;
}

function runtime(): Runtime {
  const clock = createFakeClock();
  const fake = new FakeRuntime({ clock });
  fake.images.add({ name: image, present: true });
  fake.script('init', { exitAfterMs: 2000 });
  return { clock, fake };
}

async function record(act: (client: CriClient, clock: FakeClock) => Promise<void>, points: Record<string, string> = {}): Promise<RecordedEntry[]> {
  const { clock, fake } = runtime();
  const entries: RecordedEntry[] = [];
  await act(createCriClient(compose(fake, recorder({ clock, recorder: 'a test', write: (entry) => entries.push(entry) }), failpoints(clock, points))), clock);
  return entries;
}

interface Result {
  readonly replayed: Replayed[];
  readonly skipped: string[];
  /** What the runtime was asked, one line a call, with when. */
  readonly lines: string[];
  readonly fake: FakeRuntime;
}

async function replay(
  entries: readonly RecordedEntry[],
  options: { speed?: number; points?: Record<string, string>; change?: (fake: FakeRuntime) => void } = {},
): Promise<Result> {
  const { clock, fake } = runtime();
  options.change?.(fake);
  const result: Result = { replayed: [], skipped: [], lines: [], fake };
  const lines = new CallRenderer().recorder((line) => result.lines.push(`${clock.monoMs()} ${line}`));
  const replayer = new Replayer({
    transport: compose(fake, lines, failpoints(clock, options.points)),
    rewriter: new Rewriter({ run: 'r', folder: '/replay', cgroupParent: '/r', exists: () => false, trusted: false }),
    clock,
    speed: options.speed ?? Infinity,
    signal: new AbortController().signal,
    kill: new AbortController().signal,
    prepare: async () => {},
    image: async () => image,
    onReplayed: (one) => result.replayed.push(one),
    onSkipped: ({ method }, why) => result.skipped.push(`${method}: ${why}`),
  });
  const plan = new ReplayPlan();
  let ended = false;
  const all = (async () => {
    for (const entry of entries) {
      const step = plan.take(entry);
      if (step !== null && 'lane' in step) await replayer.offer(step);
    }
    await replayer.end();
    ended = true;
  })();
  await clock.advanceUntil(() => ended, 600_000);
  await all;
  return result;
}

async function pod(client: CriClient, name: string): Promise<string> {
  return (await client.runtime.runPodSandbox({ config: { metadata: { name, namespace: 'default', uid: name, attempt: 0 } } })).podSandboxId;
}

async function started(client: CriClient, podSandboxId: string, name: string): Promise<string> {
  const { containerId } = await client.runtime.createContainer({ podSandboxId, config: { metadata: { name }, image: { image } } });
  await client.runtime.startContainer({ containerId });
  return containerId;
}

/** An init container that takes two seconds, then the app. */
async function initThenApp(client: CriClient, clock: FakeClock): Promise<void> {
  const id = await pod(client, 'web');
  const init = await started(client, id, 'init');
  await client.runtime.listContainers({});
  await clock.advance(3000);
  await client.runtime.containerStatus({ containerId: init });
  const app = await started(client, id, 'app');
  await client.runtime.containerStatus({ containerId: app });
  await client.runtime.listContainers({});
}

test('a replay at full speed waits for what the recording saw end', async () => {
  const entries = await record(initThenApp);
  const { replayed, lines } = await replay(entries);
  assert.deepEqual(
    replayed.filter(({ matched }) => !matched),
    [],
  );
  assert.equal(replayed.length, 9);
  assert.deepEqual(
    lines.filter((line) => /Create|Start/.test(line)),
    [
      `0 CreateContainer default/web/init#0 image=${image}`,
      '0 StartContainer default/web/init#0',
      `2000 CreateContainer default/web/app#0 image=${image}`,
      '2000 StartContainer default/web/app#0',
    ],
  );
});

test('speed divides the pauses between calls', async () => {
  const entries = await record(initThenApp);
  for (const [speed, atMs] of [
    [1, 3000],
    [1.5, 2000],
  ]) {
    const { lines } = await replay(entries, { speed });
    assert.ok(lines.includes(`${atMs} StartContainer default/web/app#0`), lines.join('\n'));
  }
});

test('pods go on side by side where one hangs, and lists wait for all changes before them', async () => {
  const entries = await record(async (client) => {
    for (const name of ['a', 'b']) await started(client, await pod(client, name), 'app');
    await client.runtime.listContainers({});
  });
  const { lines } = await replay(entries, { points: { RunPodSandbox: '1*delay(5000)->off' } });
  assert.deepEqual(
    lines.map((line) => line.replace(/ image.*/, '')),
    [
      '0 RunPodSandbox default/b#0',
      '0 CreateContainer default/b/app#0',
      '0 StartContainer default/b/app#0',
      '5000 RunPodSandbox default/a#0',
      '5000 CreateContainer default/a/app#0',
      '5000 StartContainer default/a/app#0',
      '5000 ListContainers',
    ],
  );
});

test('what ends otherwise is told, and what depends on it is not made', async () => {
  const entries = await record(initThenApp);
  const { replayed, skipped } = await replay(entries, { points: { CreateContainer: '1*error(not-found: no image)->off' } });
  assert.deepEqual(
    replayed.filter(({ matched }) => !matched).map(({ method, subject, recorded, seen }) => [method, subject, recorded.status, seen.status, seen.message]),
    [['CreateContainer', 'default/web/init', 'OK', 'NotFound', 'no image']],
  );
  assert.deepEqual(skipped, ['StartContainer: what it is about was not made here', 'ContainerStatus: what it is about was not made here']);
});

test('fields that differ are named, with both values', async () => {
  const entries = await record(initThenApp);
  const { replayed } = await replay(entries, { change: (fake) => fake.script('init', { exitAfterMs: 2000, exitCode: 9 }) });
  const [status] = replayed.filter(({ matched }) => !matched);
  assert.deepEqual(status?.differences, [
    { path: 'status.exitCode', a: undefined, b: 9 },
    { path: 'status.reason', a: 'Completed', b: 'Error' },
  ]);
});

test('a call that failed when it was recorded is expected to fail', async () => {
  const entries = await record(
    async (client) => {
      await assert.rejects(pod(client, 'web'));
    },
    { RunPodSandbox: '1*error(unavailable)' },
  );
  const [same] = (await replay(entries, { points: { RunPodSandbox: '1*error(unavailable)' } })).replayed;
  assert.equal(same?.matched, true);
  const [other] = (await replay(entries)).replayed;
  assert.deepEqual([other?.matched, other?.recorded.status, other?.seen.status], [false, 'Unavailable', 'OK']);
});

test('a container that has ended before it was asked is no difference, unless the recording never saw it end', async () => {
  const asked = async (client: CriClient, clock: FakeClock): Promise<string> => {
    const init = await started(client, await pod(client, 'web'), 'init');
    await client.runtime.containerStatus({ containerId: init });
    await clock.advance(500);
    await client.runtime.containerStatus({ containerId: init });
    return init;
  };
  const change = (fake: FakeRuntime): void => fake.script('init', { exitAfterMs: 100 });
  const ends = await record(async (client, clock) => {
    const init = await asked(client, clock);
    await clock.advance(3000);
    await client.runtime.containerStatus({ containerId: init });
  });
  const same = await replay(ends, { speed: 1, change });
  assert.deepEqual(
    same.replayed.filter(({ matched }) => !matched),
    [],
  );
  const runs = await record(async (client, clock) => {
    await client.runtime.stopContainer({ containerId: await asked(client, clock), timeout: 1 });
  });
  const crashed = (await replay(runs, { speed: 1, change })).replayed.filter(({ matched }) => !matched);
  assert.deepEqual(
    crashed.map(({ differences }) => differences.map(({ path }) => path)),
    [['status.reason', 'status.state']],
  );
});
