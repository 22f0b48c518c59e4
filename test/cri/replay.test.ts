import { FakeHost } from '../../base/fake-host.ts';
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import type { Host } from '../../base/host.ts';
import { openTap } from '../../cri/io/tap.ts';
import { main } from '../../cri/main.ts';
import { connectRuntime, createCriClient, type CriClient } from '../../cri/mod.ts';
import { busybox, containerdProblem, startContainerd, type TestContainerd } from '../contract/containerd.ts';

/* Pods that ran on a real containerd are made again on it from their recording: the same ends, and nothing left. */
const problem = containerdProblem();
if (problem !== null) console.log(`skipped: a replay against a real containerd: ${problem}`);

const shell = (script: string): string[] => ['sh', '-c', script];

/** An init container that fails once, then the app with a mounted file, a command in it, and an end that takes its time. */
async function live(client: CriClient, name: string, { folder, cgroupParent }: TestContainerd): Promise<void> {
  const uid = `0a1b2c3d-${name}`;
  const config = {
    metadata: { name, namespace: 'default', uid, attempt: 0 },
    hostname: name,
    logDirectory: join(folder, 'logs', name),
    labels: { 'io.kubernetes.pod.name': name, 'io.kubernetes.pod.namespace': 'default', 'io.kubernetes.pod.uid': uid },
    linux: { cgroupParent: `${cgroupParent}/pod${uid}` },
  };
  const { podSandboxId } = await client.runtime.runPodSandbox({ config });
  await client.runtime.podSandboxStatus({ podSandboxId });
  const start = async (container: string, attempt: number, command: string[], mounts: { containerPath: string; hostPath: string }[] = []): Promise<string> => {
    const { containerId } = await client.runtime.createContainer({
      podSandboxId,
      config: { metadata: { name: container, attempt }, image: { image: busybox }, command, logPath: `${container}/${attempt}.log`, mounts },
      sandboxConfig: config,
    });
    await client.runtime.startContainer({ containerId });
    return containerId;
  };
  const end = async (containerId: string): Promise<void> => {
    for (;;) {
      if ((await client.runtime.containerStatus({ containerId })).status?.state === 'CONTAINER_EXITED') return;
      await delay(100);
    }
  };
  await end(await start('init', 0, shell('sleep 0.3; exit 3')));
  await end(await start('init', 1, shell('sleep 0.2; exit 0')));
  const mounts = [{ containerPath: '/etc/hosts', hostPath: `${folder}/pods/${uid}/etc-hosts` }];
  const app = await start('app', 0, shell("trap 'sleep 0.3; exit 9' TERM; while true; do sleep 0.05; done"), mounts);
  await client.runtime.execSync({ containerId: app, cmd: shell('echo out; exit 4'), timeout: 10 });
  await client.runtime.stopContainer({ containerId: app, timeout: 10 });
  await client.runtime.containerStatus({ containerId: app });
  await client.runtime.removeContainer({ containerId: app });
  await client.runtime.stopPodSandbox({ podSandboxId });
  await client.runtime.removePodSandbox({ podSandboxId });
}

function hostOf(args: string[], signal: AbortSignal): { host: Host; out: () => string; err: () => string } {
  const host = new FakeHost(args, signal);
  return { host, out: () => host.out, err: () => host.err };
}

const replayCgroups = (): string[] =>
  ['/sys/fs/cgroup', ...readdirSync('/sys/fs/cgroup').map((name) => join('/sys/fs/cgroup', name))]
    .filter((path) => existsSync(join(path, 'cgroup.procs')))
    .flatMap((path) => readdirSync(path).filter((name) => name.startsWith('nodelet-replay-')));

test('pods of a real containerd are made again on it', { skip: problem ?? false, timeout: 300_000 }, async () => {
  await using real = await startContainerd();
  const socket = join(real.folder, 'containerd.sock');
  const recording = join(real.folder, 'calls.crirec');
  const listen = join(real.folder, 'tap.sock');
  const tap = await openTap({ listen, upstream: socket, record: { path: recording, maxBytes: 1 << 30, append: false }, recorder: 'a test', clock: realClock });
  const client = createCriClient(connectRuntime(listen));
  await client.runtime.version({});
  await Promise.all(['one', 'two'].map((name) => live(client, name, real)));
  await client[Symbol.asyncDispose]();
  await tap.stop();

  const whole = hostOf(['replay', recording, '--upstream', socket, '--speed', 'max', '--namespace', 'again'], new AbortController().signal);
  const code = await main(whole.host);
  console.log(whole.out());
  assert.equal(code, 0, whole.out());
  assert.match(whole.out(), /^\d+ calls made, 0 differ$/m);

  const stop = new AbortController();
  const stopped = hostOf(['replay', recording, '--upstream', socket, '--speed', 'max', '--json'], stop.signal);
  const ending = main(stopped.host);
  while (!stopped.out().includes('StartContainer')) await delay(10);
  stop.abort();
  assert.equal(await ending, 1);
  assert.doesNotMatch(stopped.err(), /left over/);

  assert.deepEqual((await real.client.runtime.listPodSandbox({})).items, []);
  assert.deepEqual((await real.client.runtime.listContainers({})).containers, []);
  assert.deepEqual(replayCgroups(), []);
  for (const { err } of [whole, stopped]) assert.equal(existsSync(/files in (\S+)/.exec(err())?.[1] ?? '/tmp/nodelet-replay-none'), false);
});
