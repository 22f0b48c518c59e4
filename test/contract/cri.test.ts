import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { serveFake } from '../../cri/fake-serve.ts';
import { FakeRuntime, type ContainerScript } from '../../cri/fake.ts';
import { serveRuntime } from '../../cri/io/serve-grpc.ts';
import { openTap } from '../../cri/io/tap.ts';
import { connectRuntime, createCriClient, RpcError, type CriClient } from '../../cri/mod.ts';
import { PlaybackRuntime } from '../../cri/playback-runtime.ts';
import { readPlayback } from '../../cri/serve.ts';
import type { ContainerConfig, ContainerStatus } from '../../proto/cri/types.ts';
import { busybox, containerdProblem, startContainerd } from './containerd.ts';

/*
 * What the agent relies on in a runtime: run on the fake, and on a real containerd (/usr/bin/containerd, or the one
 * that NODELET_TEST_CONTAINERD names).
 */
type Life = 'forever' | 'deaf' | 'exits-0' | 'exits-3' | 'absent-program';

const shell = (script: string): string[] => ['sh', '-c', script];

const commands: Readonly<Record<Life, string[]>> = {
  forever: shell("trap 'exit 143' TERM; while true; do sleep 0.05; done"),
  deaf: shell("trap '' TERM; while true; do sleep 0.05; done"),
  'exits-0': shell('sleep 0.2; exit 0'),
  'exits-3': shell('sleep 0.2; exit 3'),
  'absent-program': ['/no/such/program'],
};

const scripts: Readonly<Record<Life, ContainerScript>> = {
  forever: {},
  deaf: { onStop: 'ignore' },
  'exits-0': { exitAfterMs: 200 },
  'exits-3': { exitAfterMs: 200, exitCode: 3 },
  'absent-program': {
    startError:
      'failed to create containerd task: failed to create shim task: OCI runtime create failed: exec: "/no/such/program": stat /no/such/program: no such file or directory',
  },
};

interface Runtime extends AsyncDisposable {
  client: CriClient;
  major: number;
  cgroupParent: string;
  logs: string;
}

function suite(open: () => Promise<Runtime>): void {
  let runtime: Runtime;
  let client: CriClient;
  let made = 0;

  before(async () => {
    runtime = await open();
    client = runtime.client;
  });
  after(() => runtime?.[Symbol.asyncDispose]());

  const podConfig = (name: string) => ({
    metadata: { name, namespace: 'contract', uid: `uid-${name}`, attempt: 0 },
    hostname: name,
    logDirectory: `${runtime.logs}/${name}`,
    labels: { 'io.kubernetes.pod.name': name, suite: 'contract' },
    annotations: { note: 'kept' },
    linux: { cgroupParent: runtime.cgroupParent },
  });

  async function pod(): Promise<{ id: string; name: string }> {
    const name = `pod-${++made}`;
    const { podSandboxId } = await client.runtime.runPodSandbox({ config: podConfig(name) });
    return { id: podSandboxId, name };
  }

  async function create(where: { id: string; name: string }, life: Life, extra: ContainerConfig = {}): Promise<string> {
    const config: ContainerConfig = {
      metadata: { name: life, attempt: 0 },
      image: { image: busybox },
      command: commands[life],
      logPath: `${life}/0.log`,
      labels: { life },
      ...extra,
    };
    return (await client.runtime.createContainer({ podSandboxId: where.id, config, sandboxConfig: podConfig(where.name) })).containerId;
  }

  async function start(where: { id: string; name: string }, life: Life): Promise<string> {
    const containerId = await create(where, life);
    await client.runtime.startContainer({ containerId });
    return containerId;
  }

  async function statusOf(containerId: string): Promise<ContainerStatus> {
    const { status } = await client.runtime.containerStatus({ containerId });
    assert.ok(status !== null);
    return status;
  }

  async function ended(containerId: string): Promise<ContainerStatus> {
    for (let tries = 0; tries < 200; tries++) {
      const status = await statusOf(containerId);
      if (status.state === 'CONTAINER_EXITED') return status;
      await delay(25);
    }
    return assert.fail('the container does not end');
  }

  function refused(status: string): (error: unknown) => boolean {
    return (error) => {
      assert.ok(error instanceof RpcError, String(error));
      assert.equal(error.status, status, error.description);
      return true;
    };
  }

  test('a sandbox is ready with an address, then not ready without one, then not there', async () => {
    const { id, name } = await pod();
    assert.match(id, /^[0-9a-f]{64}$/);
    const { status } = await client.runtime.podSandboxStatus({ podSandboxId: id });
    assert.equal(status?.state, 'SANDBOX_READY');
    assert.match(status?.network?.ip ?? '', /^10\.\d+\.\d+\.\d+$/);
    assert.match(status?.createdAt ?? '', /^\d{19}$/);
    assert.deepEqual(status?.metadata, { name, namespace: 'contract', uid: `uid-${name}`, attempt: 0 });
    assert.deepEqual(status?.annotations, { note: 'kept' });
    assert.equal(status?.linux?.namespaces?.options?.network ?? 'POD', 'POD');
    await client.runtime.stopPodSandbox({ podSandboxId: id });
    const stopped = await client.runtime.podSandboxStatus({ podSandboxId: id });
    assert.equal(`${stopped.status?.state} "${stopped.status?.network?.ip}"`, 'SANDBOX_NOTREADY ""');
    await client.runtime.stopPodSandbox({ podSandboxId: id });
    await client.runtime.removePodSandbox({ podSandboxId: id });
    await assert.rejects(client.runtime.podSandboxStatus({ podSandboxId: id }), refused('NotFound'));
    await client.runtime.removePodSandbox({ podSandboxId: id });
  });

  test('a sandbox on the host network has no address', async () => {
    const config = podConfig(`pod-${++made}`);
    const onHost = { ...config, linux: { ...config.linux, securityContext: { namespaceOptions: { network: 'NODE' as const } } } };
    await assert.rejects(client.runtime.runPodSandbox({ config: onHost }), refused('Unknown'), 'a hostname needs a namespace of its own');
    const { podSandboxId } = await client.runtime.runPodSandbox({ config: { ...onHost, hostname: '' } });
    const { status } = await client.runtime.podSandboxStatus({ podSandboxId });
    assert.equal(`"${status?.network?.ip}" ${status?.linux?.namespaces?.options?.network}`, '"" NODE');
    await client.runtime.removePodSandbox({ podSandboxId });
  });

  test('a name is one sandbox, and one container of it', async () => {
    const { id, name } = await pod();
    const taken = runtime.major < 2 ? 'Unknown' : 'FailedPrecondition';
    await assert.rejects(client.runtime.runPodSandbox({ config: podConfig(name) }), refused(taken));
    await create({ id, name }, 'forever');
    await assert.rejects(create({ id, name }, 'forever'), refused(taken));
    await client.runtime.removePodSandbox({ podSandboxId: id });
    const again = await client.runtime.runPodSandbox({ config: podConfig(name) });
    await client.runtime.removePodSandbox({ podSandboxId: again.podSandboxId });
  });

  test('a container is created, runs, and ends with its code', async () => {
    const where = await pod();
    for (const [life, code, reason] of [
      ['exits-0', 0, 'Completed'],
      ['exits-3', 3, 'Error'],
    ] as const) {
      const id = await create(where, life);
      const fresh = await statusOf(id);
      assert.equal(`${fresh.state} ${fresh.startedAt} ${fresh.finishedAt} ${fresh.exitCode}`, 'CONTAINER_CREATED 0 0 0');
      assert.match(fresh.createdAt, /^\d{19}$/);
      await client.runtime.startContainer({ containerId: id });
      const running = await statusOf(id);
      assert.equal(`${running.state} ${running.finishedAt}`, 'CONTAINER_RUNNING 0');
      await assert.rejects(client.runtime.startContainer({ containerId: id }), refused('Unknown'));
      const done = await ended(id);
      assert.equal(`${done.exitCode} ${done.reason}`, `${code} ${reason}`);
      assert.ok(BigInt(done.createdAt) <= BigInt(done.startedAt) && BigInt(done.startedAt) < BigInt(done.finishedAt));
      assert.equal(done.logPath, `${runtime.logs}/${where.name}/${life}/0.log`);
      assert.equal(done.image?.image, busybox);
      assert.deepEqual(done.labels, { life });
      if (runtime.major >= 2) assert.match(done.imageId, /^sha256:/);
    }
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
  });

  test('stopping asks first and kills when the grace is over', async () => {
    const where = await pod();
    const polite = await start(where, 'forever');
    const deaf = await start(where, 'deaf');
    await delay(200);
    await client.runtime.stopContainer({ containerId: polite, timeout: 10 });
    assert.equal((await statusOf(polite)).exitCode, 143);
    const startedMs = performance.now();
    await client.runtime.stopContainer({ containerId: deaf, timeout: 1 });
    assert.ok(performance.now() - startedMs > 900);
    assert.equal((await statusOf(deaf)).exitCode, 137);
    await client.runtime.stopContainer({ containerId: deaf, timeout: 1 });
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
  });

  test('stopping a sandbox kills what runs in it', async () => {
    const where = await pod();
    const id = await start(where, 'forever');
    await client.runtime.stopPodSandbox({ podSandboxId: where.id });
    const status = await statusOf(id);
    assert.equal(`${status.state} ${status.exitCode}`, 'CONTAINER_EXITED 137');
    await assert.rejects(create(where, 'deaf'), refused(runtime.major < 2 ? 'NotFound' : 'Unknown'));
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
    await assert.rejects(client.runtime.containerStatus({ containerId: id }), refused('NotFound'));
  });

  test('a program that is not there is a start error', async () => {
    const where = await pod();
    const id = await create(where, 'absent-program');
    await assert.rejects(client.runtime.startContainer({ containerId: id }), (error) => {
      assert.ok(error instanceof RpcError);
      assert.match(error.description, /no such file or directory/);
      return true;
    });
    const status = await statusOf(id);
    assert.equal(`${status.state} ${status.exitCode} ${status.reason} ${status.startedAt}`, 'CONTAINER_EXITED 128 StartError 0');
    assert.match(status.message, /no such file or directory/);
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
  });

  test('an image that is not there, a sandbox that is not there', async () => {
    const where = await pod();
    await assert.rejects(create(where, 'forever', { image: { image: 'example.com/absent:1' } }), refused('NotFound'));
    await assert.rejects(create({ id: 'f'.repeat(64), name: where.name }, 'forever'), refused('NotFound'));
    await assert.rejects(client.runtime.startContainer({ containerId: 'f'.repeat(64) }), refused('NotFound'));
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
  });

  test('a running container can be removed', async () => {
    const where = await pod();
    const id = await start(where, 'forever');
    await client.runtime.removeContainer({ containerId: id });
    await assert.rejects(client.runtime.containerStatus({ containerId: id }), refused('NotFound'));
    await client.runtime.removeContainer({ containerId: id });
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
  });

  test('commands run in running containers only, and not past their timeout', async () => {
    const where = await pod();
    const id = await create(where, 'forever');
    await assert.rejects(client.runtime.execSync({ containerId: id, cmd: ['true'] }), refused('Unknown'));
    await client.runtime.startContainer({ containerId: id });
    const answer = await client.runtime.execSync({ containerId: id, cmd: ['sh', '-c', 'echo out; echo err >&2; exit 5'], timeout: 10 });
    assert.equal(`${answer.exitCode} ${answer.stdout.toString()} ${answer.stderr.toString()}`, '5 out\n err\n');
    await assert.rejects(client.runtime.execSync({ containerId: id, cmd: ['sleep', '30'], timeout: 1 }), refused('DeadlineExceeded'));
    await client.runtime.removePodSandbox({ podSandboxId: where.id });
  });

  test('listings filter by state, sandbox and labels', async () => {
    const one = await pod();
    const two = await pod();
    const running = await start(one, 'forever');
    await create(two, 'deaf');
    const ids = async (filter: object): Promise<string[]> => (await client.runtime.listContainers({ filter })).containers.map(({ id }) => id);
    assert.deepEqual(await ids({ podSandboxId: one.id }), [running]);
    assert.deepEqual(await ids({ state: { state: 'CONTAINER_RUNNING' }, labelSelector: { life: 'forever' } }), [running]);
    assert.deepEqual(await ids({ podSandboxId: two.id, state: { state: 'CONTAINER_RUNNING' } }), []);
    assert.deepEqual(await ids({ id: running }), [running]);
    await client.runtime.stopPodSandbox({ podSandboxId: two.id });
    const sandboxes = async (state: string): Promise<string[]> =>
      (await client.runtime.listPodSandbox({ filter: { state: { state: state as 'SANDBOX_READY' }, labelSelector: { suite: 'contract' } } })).items.map(
        ({ id }) => id,
      );
    assert.deepEqual(await sandboxes('SANDBOX_READY'), [one.id]);
    assert.deepEqual(await sandboxes('SANDBOX_NOTREADY'), [two.id]);
    for (const { id } of [one, two]) await client.runtime.removePodSandbox({ podSandboxId: id });
  });

  test('an image is found by its names, and is not an error when absent', async () => {
    const { image } = await client.images.imageStatus({ image: { image: busybox } });
    assert.match(image?.id ?? '', /^sha256:[0-9a-f]{64}$/);
    assert.deepEqual(image?.repoTags, [busybox]);
    assert.equal((await client.images.imageStatus({ image: { image: image?.id ?? '' } })).image?.id, image?.id);
    assert.equal((await client.images.imageStatus({ image: { image: 'example.com/absent:1' } })).image, null);
    await client.images.removeImage({ image: { image: 'example.com/absent:1' } });
    assert.ok((await client.images.listImages({})).images.some(({ id }) => id === image?.id));
  });

  test('the runtime says who it is and that it is ready', async () => {
    const { runtimeName, runtimeApiVersion } = await client.runtime.version({});
    assert.equal(`${runtimeName} ${runtimeApiVersion}`, 'containerd v1');
    const { status } = await client.runtime.status({});
    assert.deepEqual(status?.conditions.map(({ type, status: value }) => `${type} ${value}`).slice(0, 2), ['RuntimeReady true', 'NetworkReady true']);
    if (runtime.major < 2) await assert.rejects(client.runtime.runtimeConfig({}), refused('Unimplemented'));
    else assert.match((await client.runtime.runtimeConfig({})).linux?.cgroupDriver ?? '', /^(CGROUPFS|SYSTEMD)$/);
  });
}

function fakeRuntime(version: '1.6' | '2'): FakeRuntime {
  const runtime = new FakeRuntime({ clock: realClock, version });
  runtime.images.add({ name: busybox, present: true });
  for (const [life, script] of Object.entries(scripts)) runtime.script(life, script);
  runtime.onExec = (_, [command]) => (command === 'sleep' ? { takesMs: 30_000 } : { exitCode: 5, stdout: 'out\n', stderr: 'err\n' });
  return runtime;
}

function fake(version: '1.6' | '2'): Promise<Runtime> {
  const client = createCriClient(fakeRuntime(version));
  return Promise.resolve({
    client,
    major: version === '2' ? 2 : 1,
    cgroupParent: '/contract',
    logs: '/logs',
    [Symbol.asyncDispose]: () => client[Symbol.asyncDispose](),
  });
}

describe('the runtime in memory, as containerd 1.6', () => suite(() => fake('1.6')));
describe('the runtime in memory, as containerd 2', () => suite(() => fake('2')));

/*
 * The same once more over gRPC behind a tap, and then what that recorded, served: lives, exit codes and refusals come
 * from the file.
 */
for (const version of ['1.6', '2'] as const) {
  const folder = mkdtempSync(join(tmpdir(), 'cri-contract-'));
  after(() => rmSync(folder, { recursive: true }));
  const recording = join(folder, 'calls.crirec');
  const at = { major: version === '2' ? 2 : 1, cgroupParent: '/contract', logs: '/logs' };

  describe(`the runtime in memory, as containerd ${version}, recorded`, () =>
    suite(async () => {
      const upstream = join(folder, 'fake.sock');
      const server = await serveFake(fakeRuntime(version), upstream);
      const listen = join(folder, 'tap.sock');
      const tap = await openTap({
        listen,
        upstream,
        record: { path: recording, maxBytes: 1 << 30, append: false },
        recorder: 'the contract suite',
        clock: realClock,
      });
      const client = createCriClient(connectRuntime(listen));
      return {
        ...at,
        client,
        [Symbol.asyncDispose]: async () => {
          await client[Symbol.asyncDispose]();
          await tap.stop();
          await server[Symbol.asyncDispose]();
        },
      };
    }));

  describe(`that recording, served as a runtime (${version})`, () =>
    suite(async () => {
      const playback = await readPlayback(recording, new AbortController().signal, (bytes) => assert.fail(`${bytes} bytes are cut off`));
      const options = {
        clock: realClock,
        speed: 1,
        strict: false,
        begin: 'start',
        anyImage: false,
        idEnd: 'e'.repeat(52),
        imageFolder: (path: string) => path,
      } as const;
      const runtime = new PlaybackRuntime(playback, options);
      const listen = join(folder, 'served.sock');
      const server = await serveRuntime(runtime, listen);
      const client = createCriClient(connectRuntime(listen));
      return {
        ...at,
        client,
        [Symbol.asyncDispose]: async () => {
          await client[Symbol.asyncDispose]();
          await server[Symbol.asyncDispose]();
          await runtime[Symbol.asyncDispose]();
        },
      };
    }));
}

const problem = containerdProblem();
if (problem !== null) console.log(`skipped: a real containerd: ${problem}`);
describe('a real containerd', { skip: problem ?? false }, () =>
  suite(async () => {
    const real = await startContainerd();
    console.log(`containerd ${real.version}`);
    return {
      client: real.client,
      major: Number(real.version.split('.')[0]),
      cgroupParent: real.cgroupParent,
      logs: `${real.folder}/logs`,
      [Symbol.asyncDispose]: () => real[Symbol.asyncDispose](),
    };
  }),
);
describe('a real containerd behind the tap', { skip: problem ?? false }, () =>
  suite(async () => {
    const real = await startContainerd();
    const listen = `${real.folder}/tap.sock`;
    const record = { path: `${real.folder}/calls.crirec`, maxBytes: 1 << 30, append: false };
    const tap = await openTap({ listen, upstream: `${real.folder}/containerd.sock`, record, recorder: 'the contract suite', clock: realClock });
    const client = createCriClient(connectRuntime(listen));
    return {
      client,
      major: Number(real.version.split('.')[0]),
      cgroupParent: real.cgroupParent,
      logs: `${real.folder}/logs`,
      [Symbol.asyncDispose]: async () => {
        await client[Symbol.asyncDispose]();
        const totals = await tap.stop();
        await real[Symbol.asyncDispose]();
        assert.equal(totals?.blindConnections, 0);
        assert.ok((totals?.calls ?? 0) > 100, `${totals?.calls} calls were decoded`);
      },
    };
  }),
);
