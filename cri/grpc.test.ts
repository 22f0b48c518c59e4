import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../base/clock.ts';
import { hasCode } from '../base/errors.ts';
import { createCriClient, type CriClient } from './client.ts';
import { RpcError } from './errors.ts';
import { serveFake, type ServedRuntime } from './fake-serve.ts';
import { FakeRuntime } from './fake.ts';
import { connectRuntime, dialTarget } from './grpc.ts';

let folder: string;
let fake: FakeRuntime;
let server: ServedRuntime;
let client: CriClient;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cri-'));
  fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: 'busybox', present: true });
  server = await serveFake(fake, join(folder, 'runtime.sock'));
  client = createCriClient(connectRuntime(`unix://${folder}/runtime.sock`));
});

after(async () => {
  await client[Symbol.asyncDispose]();
  server.forceShutdown();
  await rm(folder, { recursive: true });
});

test('messages cross the wire as the generated types say', async () => {
  const request = {
    config: {
      metadata: { name: 'p', namespace: 'n', uid: 'u', attempt: 3 },
      labels: { a: 'b' },
      linux: { sysctls: { x: '1' }, securityContext: { namespaceOptions: { pid: 'CONTAINER' as const } } },
    },
  };
  const { podSandboxId } = await client.runtime.runPodSandbox(request);
  const { status } = await client.runtime.podSandboxStatus({ podSandboxId, verbose: true });
  assert.match(status?.createdAt ?? '', /^\d{19}$/);
  assert.equal(status?.state, 'SANDBOX_READY');
  assert.deepEqual(status?.metadata, { name: 'p', uid: 'u', namespace: 'n', attempt: 3 });
  assert.deepEqual(status?.linux?.namespaces?.options, { network: 'POD', pid: 'CONTAINER', ipc: 'POD', targetId: '', usernsOptions: null });
  assert.deepEqual(status?.annotations, {});
  const { containerId } = await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name: 'c' }, image: { image: 'busybox' }, linux: { resources: { cpuQuota: 50_000, memoryLimitInBytes: '1099511627776' } } },
  });
  await client.runtime.startContainer({ containerId });
  const answer = await client.runtime.containerStatus({ containerId });
  assert.equal(answer.status?.resources?.linux?.memoryLimitInBytes, '1099511627776');
  assert.equal(answer.status?.resources?.linux?.cpuQuota, '50000');
  fake.onExec = () => ({ stdout: 'x'.repeat(6_000_000) });
  const { stdout } = await client.runtime.execSync({ containerId, cmd: ['yes'] });
  assert.ok(Buffer.isBuffer(stdout) && stdout.length === 6_000_000, 'more than the 4 MiB that gRPC allows by default');
});

test("the runtime's own answer is the failure, with its code", async () => {
  await assert.rejects(client.runtime.containerStatus({ containerId: 'none' }), (error) => {
    assert.ok(error instanceof RpcError);
    assert.equal(`${error.code} ${error.grpcCode} ${error.status}`, 'not-found 5 NotFound');
    assert.equal(error.goMessage, 'rpc error: code = NotFound desc = an error occurred when try to find container "none": not found');
    return true;
  });
  await assert.rejects(client.runtime.checkpointContainer({}), (error) => hasCode(error, 'unsupported'));
});

test('a call ends at its deadline, or when its caller gives up', async () => {
  fake.images.add({ name: 'slow', pullMs: 5000 });
  await assert.rejects(client.images.pullImage({ image: { image: 'slow' } }, { timeoutMs: 30 }), (error) => hasCode(error, 'deadline'));
  const controller = new AbortController();
  const call = client.images.pullImage({ image: { image: 'slow' } }, { signal: controller.signal });
  await delay(20);
  controller.abort();
  await assert.rejects(call, (error) => hasCode(error, 'aborted'));
});

test('a runtime that cancels by itself went away: only the caller stops a call', async () => {
  const own = fake.call.bind(fake);
  fake.call = () => Promise.reject(new RpcError('Canceled', 'Status', 'context canceled'));
  const failure = await client.runtime.status({}).catch((error: unknown) => error);
  fake.call = own;
  assert.ok(failure instanceof RpcError);
  assert.equal(failure.code, 'unavailable');
  assert.equal(failure.goMessage, 'rpc error: code = Canceled desc = context canceled');
});

test('events come as they happen until the listener leaves', async () => {
  const heard: string[] = [];
  const stop = new AbortController();
  const listening = (async () => {
    for await (const { containerEventType } of client.runtime.getContainerEvents({}, { signal: stop.signal })) {
      heard.push(containerEventType);
      if (heard.length === 2) break;
    }
  })();
  await delay(50);
  await client.runtime.runPodSandbox({ config: { metadata: { name: 'q', namespace: 'n', uid: 'v' } } });
  await listening;
  assert.deepEqual(heard, ['CONTAINER_CREATED_EVENT', 'CONTAINER_STARTED_EVENT']);
});

test('a runtime that went away is unavailable, and found again within its three seconds', async () => {
  server.forceShutdown();
  await assert.rejects(client.runtime.version({}), (error) => hasCode(error, 'unavailable'));
  await assert.rejects(client.runtime.version({}), (error) => hasCode(error, 'unavailable'));
  server = await serveFake(fake, join(folder, 'runtime.sock'));
  const startedMs = performance.now();
  for (;;) {
    try {
      await client.runtime.version({});
      break;
    } catch (error) {
      assert.ok(hasCode(error, 'unavailable') && performance.now() - startedMs < 3500, String(error));
      await delay(20);
    }
  }
});

test('only unix sockets are dialled', () => {
  assert.equal(dialTarget('unix:///run/a.sock'), 'unix:/run/a.sock');
  assert.equal(dialTarget('unix:/run/a.sock'), 'unix:/run/a.sock');
  assert.equal(dialTarget('/run/a.sock'), 'unix:/run/a.sock');
  assert.throws(
    () => dialTarget('tcp://127.0.0.1:1'),
    (error) => hasCode(error, 'invalid'),
  );
});
