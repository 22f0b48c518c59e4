import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import type { ContainerFacts, PodFacts, SandboxFacts } from '../../agent/core/types.ts';
import { createPodFiles } from '../../agent/io/files.ts';
import { Gc } from '../../agent/io/gc.ts';
import { LogRotation } from '../../agent/io/logs-rotate.ts';
import { realClock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { CriClient } from '../../cri/mod.ts';
import { busybox, containerdProblem, startContainerd } from '../contract/containerd.ts';
import type { TestContainerd } from '../contract/containerd.ts';

/* Log rotation and garbage collection beside a real containerd. */
const sysPath = process.env['NODELET_SYS'] ?? new URL('../../dist/sys', import.meta.url).pathname;
const need = containerdProblem() ?? (existsSync(sysPath) ? false : `needs ${sysPath} (built by sys/build.sh)`);
if (need !== false) console.log(`rotation and collection: skipped, ${need}`);
const signal = new AbortController().signal;

describe('rotation and collection with a real containerd', { skip: need }, () => {
  let containerd: TestContainerd;
  let client: CriClient;
  let sys: Sys;
  let logs: string;
  before(async () => {
    containerd = await startContainerd();
    ({ client } = containerd);
    sys = createSysClient({ path: sysPath, log: silentLog });
    logs = `${containerd.folder}/logs`;
  });
  after(async () => {
    await sys?.[Symbol.asyncDispose]();
    await containerd?.[Symbol.asyncDispose]();
  });

  const configOf = (name: string) => ({
    metadata: { name, namespace: 'n', uid: `u-${name}`, attempt: 0 },
    hostname: name,
    logDirectory: `${logs}/n_${name}_u-${name}`,
    linux: { cgroupParent: containerd.cgroupParent },
  });
  const sandbox = async (name: string): Promise<string> => (await client.runtime.runPodSandbox({ config: configOf(name) })).podSandboxId;
  const run = async (podSandboxId: string, pod: string, attempt: number, script: string): Promise<string> => {
    mkdirSync(`${logs}/n_${pod}_u-${pod}/m`, { recursive: true });
    const config = { metadata: { name: 'm', attempt }, image: { image: busybox }, command: ['sh', '-c', script], logPath: `m/${attempt}.log` };
    const { containerId } = await client.runtime.createContainer({ podSandboxId, config, sandboxConfig: configOf(pod) });
    await client.runtime.startContainer({ containerId });
    return containerId;
  };
  const ended = async (containerId: string): Promise<void> => {
    for (let tries = 0; tries < 200; tries += 1) {
      if ((await client.runtime.containerStatus({ containerId })).status?.state === 'CONTAINER_EXITED') return;
      await delay(50);
    }
    assert.fail('the container does not end');
  };
  const rotationOf = (facts: () => readonly PodFacts[]): LogRotation =>
    new LogRotation({ cri: client, sys, clock: realClock, log: silentLog, podLogsDir: logs, maxBytes: 20_000, maxFiles: 4, periodMs: 10_000, facts });

  test('every line is in the files once and in order, whatever is rotated', async () => {
    const podSandboxId = await sandbox('counts');
    const id = await run(podSandboxId, 'counts', 0, 'i=0; while [ $i -lt 3000 ]; do echo "line $i"; i=$((i+1)); [ $((i % 60)) = 0 ] && sleep 0.05; done; true');
    const container = { id, state: 'running', logPath: '' } as ContainerFacts;
    const facts: PodFacts[] = [{ uid: 'u-counts', namespace: 'n', name: 'counts', sandboxes: [], containers: [container] }];
    const rotation = rotationOf(() => facts);
    const dir = `${logs}/n_counts_u-counts/m`;
    for (let pass = 0; pass < 3; pass += 1) {
      await delay(1050);
      await rotation.pass(signal);
    }
    const rotated = readdirSync(dir).toSorted();
    assert.ok(rotated.length >= 3 && rotated.length <= 4, rotated.join(' '));
    assert.ok(rotated.filter((name) => name.endsWith('.gz')).length >= 1, rotated.join(' '));
    await ended(id);
    const files = [
      ...readdirSync(dir)
        .filter((name) => name !== '0.log')
        .toSorted(),
      '0.log',
    ];
    const lines = files.flatMap((name) =>
      (name.endsWith('.gz') ? gunzipSync(readFileSync(`${dir}/${name}`)).toString() : readFileSync(`${dir}/${name}`, 'utf8'))
        .split('\n')
        .filter((line) => line !== ''),
    );
    const numbers = lines.map((line) => Number(/ F line (\d+)$/.exec(line)?.[1]));
    const [first = Number.NaN] = numbers;
    assert.deepEqual(
      numbers,
      Array.from({ length: 3000 - first }, (_, index) => first + index),
    );
    assert.equal(first, 0, 'four files hold it all');
    await rotation.remove(`${dir}/0.log`);
    assert.deepEqual(readdirSync(dir), []);
  });

  test('dead containers, sandboxes and images: what is used or pinned stays, on a runtime of any age', async () => {
    const podSandboxId = await sandbox('dead');
    const ids = [];
    for (const attempt of [0, 1]) {
      const id = await run(podSandboxId, 'dead', attempt, 'echo x');
      await ended(id);
      ids.push(id);
    }
    const facts = async (): Promise<PodFacts[]> => {
      const { containers } = await client.runtime.listContainers({ filter: { podSandboxId } });
      const { items } = await client.runtime.listPodSandbox({ filter: { id: podSandboxId } });
      const ms = (nanos: string): number => Number(BigInt(nanos) / 1_000_000n);
      return [
        {
          uid: 'u-dead',
          namespace: 'n',
          name: 'dead',
          sandboxes: items.map(
            (item) => ({ id: item.id, uid: 'u-dead', ready: item.state === 'SANDBOX_READY', createdAtMs: ms(item.createdAt) }) as SandboxFacts,
          ),
          containers: containers.map(
            (each) =>
              ({
                id: each.id,
                sandboxId: podSandboxId,
                name: 'm',
                state: 'exited',
                createdAtMs: ms(each.createdAt),
                imageRef: each.imageRef,
                imageId: each.imageId,
              }) as ContainerFacts,
          ),
        },
      ];
    };
    let now = await facts();
    let known = true;
    const events: string[] = [];
    const gc = new Gc({
      cri: client,
      sys: {
        fileOps: async (request) => await sys.fileOps(request),
        removeTree: async (path, options) => await sys.removeTree(path, options),
        statfs: async () => ({ totalBytes: 1e9, freeBytes: 0, availableBytes: 0, inodes: 0, inodesFree: 0, magic: 0 }),
      },
      clock: realClock,
      log: silentLog,
      pods: { allFacts: () => now, facts: () => undefined, isKnown: () => known, mayRun: () => false, synced: () => true },
      volumes: { uidsOnDisk: async () => [], teardown: async () => {}, sweep: async () => {} },
      cgroups: { podUids: async () => [], removePod: async () => {} },
      events: { event: (_, type, reason) => void events.push(`${type} ${reason}`) },
      node: () => ({ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'n1' }),
      logs: rotationOf(() => now),
      files: createPodFiles(realRng),
      podLogsDir: logs,
      containerLogsDir: `${containerd.folder}/none`,
      ready: () => true,
      images: { highThresholdPercent: 85, lowThresholdPercent: 80, minAgeMs: 0, maxAgeMs: 0 },
    });
    await gc.imagesPass(signal);
    const tags = (await client.images.listImages({})).images.flatMap((image) => image.repoTags).toSorted();
    assert.deepEqual(tags, ['docker.io/library/busybox:test', 'registry.k8s.io/pause:3.10.2']);
    assert.deepEqual(events, ['Warning FreeDiskSpaceFailed']);
    await gc.containersPass(signal);
    now = await facts();
    assert.deepEqual(
      now[0]?.containers.map((each) => each.id),
      [ids[1]],
    );
    assert.deepEqual(readdirSync(`${logs}/n_dead_u-dead/m`), ['1.log']);
    await client.runtime.stopPodSandbox({ podSandboxId });
    known = false;
    now = await facts();
    await gc.containersPass(signal);
    now = await facts();
    assert.deepEqual([now[0]?.containers, now[0]?.sandboxes], [[], []]);
    assert.equal(existsSync(`${logs}/n_dead_u-dead`), false);
    // With its last container gone, the image is nobody's; the sandbox image still stays.
    await gc.imagesPass(signal);
    assert.deepEqual(
      (await client.images.listImages({})).images.flatMap((image) => image.repoTags),
      ['registry.k8s.io/pause:3.10.2'],
    );
  });
});
