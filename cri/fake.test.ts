import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock, type FakeClock } from '../base/fake-clock.ts';
import { hasCode } from '../base/errors.ts';
import { createCriClient, type CriClient } from './client.ts';
import { RpcError } from './errors.ts';
import { FakeRuntime } from './fake.ts';
import { CallRenderer } from './render.ts';
import { compose } from './transport.ts';

interface Setup {
  clock: FakeClock;
  fake: FakeRuntime;
  client: CriClient;
  /** One line for every call that changes something. */
  lines: string[];
}

function setUp(version: '1.6' | '2' = '2'): Setup {
  const clock = createFakeClock();
  const fake = new FakeRuntime({ clock, version });
  fake.images.add({ name: 'busybox:1', present: true });
  const lines: string[] = [];
  const recorder = new CallRenderer().recorder(
    (line) => lines.push(line),
    (method) => !/^(List|ContainerStatus|PodSandboxStatus)/.test(method),
  );
  return { clock, fake, client: createCriClient(compose(fake, recorder)), lines };
}

async function sandbox({ client }: Setup, attempt = 0): Promise<string> {
  const { podSandboxId } = await client.runtime.runPodSandbox({
    config: { metadata: { name: 'web-0', namespace: 'default', uid: 'u', attempt }, logDirectory: '/var/log/pods/default_web-0_u/', labels: { app: 'web' } },
  });
  return podSandboxId;
}

async function container({ client }: Setup, podSandboxId: string, name: string, attempt = 0): Promise<string> {
  const { containerId } = await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name, attempt }, image: { image: 'busybox:1' }, logPath: `${name}/${attempt}.log`, labels: { name } },
    sandboxConfig: { logDirectory: '/var/log/pods/default_web-0_u/' },
  });
  return containerId;
}

function refusal(status: string, description: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof RpcError, String(error));
    assert.equal(error.status, status);
    assert.match(error.description, description);
    return true;
  };
}

test('a pod from beginning to end, told in lines', async () => {
  const setup = setUp();
  const { client, clock, fake, lines } = setup;
  fake.script('init', { exitAfterMs: 500 });
  const pod = await sandbox(setup);
  const init = await container(setup, pod, 'init');
  await client.runtime.startContainer({ containerId: init });
  await clock.advance(500);
  const app = await container(setup, pod, 'app');
  await client.runtime.startContainer({ containerId: app });
  const { status } = await client.runtime.containerStatus({ containerId: init });
  assert.equal(status?.state, 'CONTAINER_EXITED');
  assert.equal(`${status?.exitCode} ${status?.reason}`, '0 Completed');
  assert.equal(BigInt(status?.finishedAt ?? 0) - BigInt(status?.startedAt ?? 0), 500_000_000n);
  assert.equal(status?.logPath, '/var/log/pods/default_web-0_u/init/0.log');
  assert.equal(status?.image?.image, 'docker.io/library/busybox:1');
  assert.match(status?.imageRef ?? '', /^docker.io\/library\/busybox@sha256:[0-9a-f]{64}$/);
  await client.runtime.stopContainer({ containerId: app, timeout: 30 });
  await client.runtime.stopPodSandbox({ podSandboxId: pod });
  await client.runtime.removePodSandbox({ podSandboxId: pod });
  assert.equal(fake.sandboxes.size + fake.containers.size, 0);
  assert.deepEqual(lines, [
    'RunPodSandbox default/web-0#0',
    'CreateContainer default/web-0/init#0 image=busybox:1',
    'StartContainer default/web-0/init#0',
    'CreateContainer default/web-0/app#0 image=busybox:1',
    'StartContainer default/web-0/app#0',
    'StopContainer default/web-0/app#0 timeout=30s',
    'StopPodSandbox default/web-0#0',
    'RemovePodSandbox default/web-0#0',
  ]);
});

test('stopping waits for the process, and kills it when the grace is over', async () => {
  const setup = setUp();
  const { client, clock, fake } = setup;
  fake.script('slow', { onStop: { afterMs: 3000, exitCode: 7 } });
  fake.script('deaf', { onStop: 'ignore' });
  const pod = await sandbox(setup);
  const ended: string[] = [];
  for (const name of ['slow', 'deaf', 'plain']) {
    const containerId = await container(setup, pod, name);
    await client.runtime.startContainer({ containerId });
    void client.runtime.stopContainer({ containerId, timeout: 10 }).then(async () => {
      const { status } = await client.runtime.containerStatus({ containerId });
      ended.push(`${name} ${status?.exitCode} ${status?.reason} at ${clock.monoMs()}`);
    });
  }
  await clock.advance(20_000);
  assert.deepEqual(ended, ['plain 143 Error at 0', 'slow 7 Error at 3000', 'deaf 137 Error at 10000']);
});

test('a shorter stop overtakes a longer one, and a caller may give up waiting', async () => {
  const setup = setUp();
  const { client, clock, fake } = setup;
  fake.script('deaf', { onStop: 'ignore' });
  const pod = await sandbox(setup);
  const containerId = await container(setup, pod, 'deaf');
  await client.runtime.startContainer({ containerId });
  const controller = new AbortController();
  const given = assert.rejects(client.runtime.stopContainer({ containerId, timeout: 600 }, { signal: controller.signal }), (error) =>
    hasCode(error, 'aborted'),
  );
  await clock.settle();
  controller.abort();
  await given;
  const long = client.runtime.stopContainer({ containerId, timeout: 600 });
  await client.runtime.stopContainer({ containerId, timeout: 0 });
  await long;
  assert.equal(fake.container('deaf')?.status.state, 'exited');
  assert.equal(clock.armed, 0);
});

test('what containerd refuses', async () => {
  const setup = setUp();
  const { client, fake } = setup;
  fake.script('broken', { startError: 'failed to create containerd task: exec: "x": not found' });
  const pod = await sandbox(setup);
  await assert.rejects(sandbox(setup), refusal('FailedPrecondition', /failed to reserve sandbox name "web-0_default_u_0": name .* is reserved for/));
  await assert.rejects(client.runtime.createContainer({ podSandboxId: 'none', config: {} }), refusal('NotFound', /failed to find sandbox/));
  await assert.rejects(
    client.runtime.createContainer({ podSandboxId: pod, config: { metadata: { name: 'a' }, image: { image: 'absent' } } }),
    refusal('NotFound', /failed to resolve image/),
  );
  const app = await container(setup, pod, 'app');
  await assert.rejects(container(setup, pod, 'app'), refusal('FailedPrecondition', /failed to reserve container name "app_web-0_default_u_0"/));
  await assert.rejects(client.runtime.execSync({ containerId: app, cmd: ['true'] }), refusal('Unknown', /CONTAINER_CREATED/));
  await client.runtime.startContainer({ containerId: app });
  await assert.rejects(client.runtime.startContainer({ containerId: app }), refusal('Unknown', /container is in CONTAINER_RUNNING state/));
  const broken = await container(setup, pod, 'broken');
  await assert.rejects(client.runtime.startContainer({ containerId: broken }), refusal('Unknown', /exec: "x"/));
  const { status } = await client.runtime.containerStatus({ containerId: broken });
  assert.equal(`${status?.state} ${status?.exitCode} ${status?.reason} ${status?.startedAt}`, 'CONTAINER_EXITED 128 StartError 0');
  await assert.rejects(client.runtime.containerStatus({ containerId: 'none' }), refusal('NotFound', /not found/));
  await assert.rejects(client.runtime.podSandboxStatus({ podSandboxId: 'none' }), refusal('NotFound', /not found/));
  for (const call of [
    client.runtime.stopContainer({ containerId: 'none' }),
    client.runtime.removeContainer({ containerId: 'none' }),
    client.runtime.stopPodSandbox({ podSandboxId: 'none' }),
    client.runtime.removePodSandbox({ podSandboxId: 'none' }),
  ])
    await call;
  await client.runtime.stopPodSandbox({ podSandboxId: pod });
  await assert.rejects(container(setup, pod, 'late'), refusal('Unknown', /is not running/));
  const answer = await client.runtime.podSandboxStatus({ podSandboxId: pod });
  assert.equal(`${answer.status?.state} "${answer.status?.network?.ip}"`, 'SANDBOX_NOTREADY ""');
  assert.equal((await client.runtime.containerStatus({ containerId: app })).status?.exitCode, 137);
});

test('listings filter by state, sandbox and labels', async () => {
  const setup = setUp();
  const { client } = setup;
  const pod = await sandbox(setup);
  const a = await container(setup, pod, 'a');
  const b = await container(setup, pod, 'b');
  await client.runtime.startContainer({ containerId: a });
  const names = async (filter: object): Promise<string[]> =>
    (await client.runtime.listContainers({ filter })).containers.map(({ metadata }) => metadata?.name ?? '');
  assert.deepEqual(await names({}), ['a', 'b']);
  assert.deepEqual(await names({ state: { state: 'CONTAINER_RUNNING' } }), ['a']);
  assert.deepEqual(await names({ labelSelector: { name: 'b' } }), ['b']);
  assert.deepEqual(await names({ id: b.slice(0, 12) }), ['b']);
  assert.deepEqual(await names({ podSandboxId: 'e' }), []);
  assert.deepEqual(
    (await client.runtime.listPodSandbox({ filter: { labelSelector: { app: 'web' }, state: { state: 'SANDBOX_READY' } } })).items.map(({ id }) => id),
    [pod],
  );
  assert.deepEqual((await client.runtime.listPodSandbox({ filter: { state: { state: 'SANDBOX_NOTREADY' } } })).items, []);
});

test('images are pulled in their time, fail as scripted, and are found by any of their names', async () => {
  const { client, clock, fake } = setUp();
  fake.images.add({ name: 'registry.example/app:1', pullMs: 2000, user: '1000', pullFailures: [new RpcError('Unavailable', 'PullImage', 'registry is away')] });
  const pull = { image: { image: 'registry.example/app:1' } };
  assert.equal((await client.images.imageStatus(pull)).image, null);
  const first = assert.rejects(client.images.pullImage(pull), refusal('Unavailable', /registry is away/));
  await clock.advance(2000);
  await first;
  const second = client.images.pullImage(pull);
  await clock.advance(2000);
  const { imageRef } = await second;
  const { image } = await client.images.imageStatus({ image: { image: imageRef } });
  assert.deepEqual([image?.repoTags, image?.uid?.value, image?.username], [['registry.example/app:1'], '1000', '']);
  assert.equal((await client.images.listImages({})).images.length, 2);
  await client.images.removeImage({ image: { image: image?.repoDigests[0] ?? '' } });
  assert.equal((await client.images.imageStatus(pull)).image, null);
  await assert.rejects(client.images.pullImage({ image: { image: 'nowhere' } }), refusal('NotFound', /docker.io\/library\/nowhere:latest: not found/));
});

test('commands in containers answer as scripted, and not past their timeout', async () => {
  const setup = setUp();
  const { client, clock, fake } = setup;
  const containerId = await container(setup, await sandbox(setup), 'app');
  await client.runtime.startContainer({ containerId });
  fake.onExec = (_, [command]) => (command === 'slow' ? { takesMs: 5000 } : { exitCode: 3, stdout: 'out' });
  const answer = await client.runtime.execSync({ containerId, cmd: ['quick'], timeout: 1 });
  assert.equal(`${answer.exitCode} ${answer.stdout.toString()}`, '3 out');
  const slow = assert.rejects(client.runtime.execSync({ containerId, cmd: ['slow'], timeout: 1 }), refusal('DeadlineExceeded', /timeout 1s exceeded/));
  await clock.advance(1000);
  await slow;
});

test('a call that takes longer than it was given is DeadlineExceeded', async () => {
  const setup = setUp();
  const { client, clock, fake } = setup;
  fake.script('deaf', { onStop: 'ignore' });
  const containerId = await container(setup, await sandbox(setup), 'deaf');
  await client.runtime.startContainer({ containerId });
  const call = assert.rejects(client.runtime.stopContainer({ containerId, timeout: 60 }, { timeoutMs: 2000 }), (error) => hasCode(error, 'deadline'));
  await clock.advance(2000);
  await call;
  assert.equal(fake.container('deaf')?.status.state, 'running', 'the runtime forgets the stop, not the container');
});

test('events tell of every change, with containerd 2 only', async () => {
  const setup = setUp();
  const { client, clock, fake } = setup;
  const stop = new AbortController();
  const heard: string[] = [];
  const listening = (async () => {
    for await (const event of client.runtime.getContainerEvents({}, { signal: stop.signal }))
      heard.push(`${event.containerEventType} ${event.containersStatuses.map(({ state }) => state).join()}`);
  })();
  await clock.settle();
  fake.script('app', { exitAfterMs: 100, exitCode: 1 });
  const containerId = await container(setup, await sandbox(setup), 'app');
  await client.runtime.startContainer({ containerId });
  await clock.advance(100);
  stop.abort();
  await assert.rejects(listening, (error) => hasCode(error, 'aborted'));
  assert.deepEqual(heard, [
    'CONTAINER_CREATED_EVENT ',
    'CONTAINER_STARTED_EVENT ',
    'CONTAINER_CREATED_EVENT CONTAINER_CREATED',
    'CONTAINER_STARTED_EVENT CONTAINER_RUNNING',
    'CONTAINER_STOPPED_EVENT CONTAINER_EXITED',
  ]);
  const old = setUp('1.6').client;
  await assert.rejects(
    async () => {
      for await (const _ of old.runtime.getContainerEvents()) assert.fail('no event');
    },
    (error) => hasCode(error, 'unsupported'),
  );
  await assert.rejects(old.runtime.runtimeConfig({}), (error) => hasCode(error, 'unsupported'));
});

test('a runtime that is away leaves its containers alive', async () => {
  const setup = setUp();
  const { client, fake } = setup;
  const containerId = await container(setup, await sandbox(setup), 'app');
  await client.runtime.startContainer({ containerId });
  fake.goAway();
  await assert.rejects(client.runtime.version({}), (error) => hasCode(error, 'unavailable'));
  fake.back();
  assert.equal((await client.runtime.containerStatus({ containerId })).status?.state, 'CONTAINER_RUNNING');
});
