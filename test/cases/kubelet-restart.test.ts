import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../set.ts';
import type { Lease, Pod } from '../../proto/kube/types.ts';
import { box, Cases, conditionOf, deaf, isRunning, logMount, NAMESPACE, shell, skip, statusOf, untilTerm } from './world.ts';

/*
 * What happens around a stop and a start of the agent, on one real set: all pods are made, the agent is stopped once,
 * each case does its harm, the agent is started, each case looks.
 */
let at: Cases;
const uids = new Map<string, string>();
/** Number of changes seen of a pod when the agent was started again. */
const seenBefore = new Map<string, number>();
const ids = new Map<string, string>();
const uidOf = (name: string): string => uids.get(name) ?? '';
const since = (name: string): Pod[] =>
  at.watch
    .history(name)
    .slice(seenBefore.get(name) ?? 0)
    .map((seen) => seen.pod);

interface Case {
  readonly name: string;
  make(): Promise<void>;
  /** Made, and far enough that the agent may stop. */
  settle(): Promise<unknown>;
  harm?(): Promise<void>;
}

const init = box('i', shell('echo init >> /log/order'), { volumeMounts: [logMount] });
const main = box('m', shell('echo main >> /log/order; exec sleep 3600'), { volumeMounts: [logMount] });
const short = { terminationGracePeriodSeconds: 1 };

const sized = (cpu: string, memory: string) => ({ limits: { cpu, memory }, requests: { cpu, memory } });
const resize = (pod: string, resources: object): Promise<string> =>
  at.k('patch', 'pod', pod, '--subresource=resize', '-p', JSON.stringify({ spec: { containers: [{ name: 'm', resources }] } }));
const resizeConditions = (pod: Pod) => (pod.status?.conditions ?? []).filter((condition) => condition.type.startsWith('PodResize'));
/** What the kernel has for a container, read inside it: version 1, else version 2. */
const weight = shell('cat /sys/fs/cgroup/cpu/cpu.shares 2>/dev/null || cat /sys/fs/cgroup/cpu.weight');
const quota = shell('cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d" " -f1 /sys/fs/cgroup/cpu.max');
const weightOf = (v1: string, v2: string): string => (existsSync('/sys/fs/cgroup/cgroup.controllers') ? v2 : v1);

const stopContainers = async (pod: string): Promise<void> => {
  for (const { id } of await at.containers(pod)) {
    await at.cri.runtime.stopContainer({ containerId: id, timeout: '0' });
    await at.cri.runtime.removeContainer({ containerId: id });
  }
};

const cases: readonly Case[] = [
  {
    name: 'kb01',
    make: () =>
      at.create('kb01', { ...short, initContainers: [box('i', shell('sleep 3; echo init >> /log/order'), { volumeMounts: [logMount] })], containers: [main] }),
    settle: () => at.ready('kb01'),
    async harm() {
      const sandbox = (await at.sandboxes('kb01'))[0];
      await at.cri.runtime.stopPodSandbox({ podSandboxId: sandbox?.id ?? '' });
    },
  },
  {
    name: 'kb02',
    make: () => at.create('kb02', { ...short, initContainers: [init], containers: [main] }),
    async settle() {
      await at.ready('kb02');
      await at.cri.runtime.removeContainer({ containerId: (await at.containers('kb02', 'i'))[0]?.id ?? '' });
    },
  },
  {
    name: 'kb12',
    make: () =>
      at.create(
        'kb12',
        { terminationGracePeriodSeconds: 30, containers: [box('a', ['sleep', '3600']), box('b', ['sleep', '3600'])] },
        { finalizers: ['example.com/keep'] },
      ),
    settle: () => at.ready('kb12'),
    async harm() {
      await at.remove('kb12');
      await stopContainers('kb12');
    },
  },
  {
    name: 'kb13',
    async make() {
      await at.configMap('kb13', { key: 'value' });
      await at.create('kb13', {
        terminationGracePeriodSeconds: 30,
        containers: [
          box('m', deaf, {
            volumeMounts: [
              { name: 'e', mountPath: '/e' },
              { name: 'c', mountPath: '/c' },
            ],
          }),
        ],
        volumes: [
          { name: 'e', emptyDir: {} },
          { name: 'c', configMap: { name: 'kb13' } },
        ],
      });
    },
    settle: () => at.ready('kb13'),
    async harm() {
      await at.remove('kb13', '--grace-period=0', '--force');
      await at.watch.gone('kb13', 20_000);
    },
  },
  {
    name: 'kb19-ok',
    make: () =>
      at.create('kb19-ok', {
        ...short,
        containers: [
          box('m', ['sleep', '3600'], {
            startupProbe: { exec: { command: ['true'] }, initialDelaySeconds: 5, timeoutSeconds: 10 },
            readinessProbe: { exec: { command: ['sleep', '1'] }, timeoutSeconds: 20, periodSeconds: 5 },
          }),
        ],
      }),
    settle: () => at.ready('kb19-ok'),
  },
  {
    name: 'kb19-ko',
    make: () =>
      at.create('kb19-ko', { ...short, containers: [box('m', ['sleep', '3600'], { readinessProbe: { exec: { command: ['false'] }, periodSeconds: 5 } })] }),
    settle: () => at.watch.pod('kb19-ko', 'running', 60_000, (pod) => isRunning(pod)),
  },
  {
    name: 'kb26',
    make: () =>
      at.create('kb26', {
        ...short,
        containers: [box('m', ['sleep', '3600'], { volumeMounts: [{ name: 't', mountPath: '/tok' }] })],
        volumes: [{ name: 't', projected: { sources: [{ serviceAccountToken: { path: 't', expirationSeconds: 600 } }] } }],
      }),
    settle: () => at.ready('kb26'),
  },
  {
    name: 'kb31',
    make: () =>
      at.create('kb31', {
        containers: [box('m', untilTerm('exit 5', 'dd if=/dev/zero of=/d/f bs=1M count=20'), { volumeMounts: [{ name: 'd', mountPath: '/d' }] })],
        volumes: [{ name: 'd', emptyDir: { sizeLimit: '5Mi' } }],
      }),
    settle: () => at.watch.pod('kb31', 'evicted', 150_000, (pod) => pod.status?.reason === 'Evicted'),
  },
  {
    name: 'kb36',
    make: () => at.create('kb36', { ...short, containers: [box('m', ['sleep', '3600'], { resources: sized('200m', '64Mi') })] }),
    async settle() {
      await at.ready('kb36');
      // As much as the node has, beside a pod that has some of it: the API server lets it pass, the agent must not.
      const cpu = await at.set.k(['get', 'node', 'node-1', '-o', 'jsonpath={.status.allocatable.cpu}']);
      await resize('kb36', sized(cpu, '64Mi'));
      await at.watch.pod('kb36', 'deferred', 30_000, (pod) => conditionOf(pod, 'PodResizePending')?.reason === 'Deferred');
    },
    async harm() {
      await at.cri.runtime.stopContainer({ containerId: (await at.containers('kb36'))[0]?.id ?? '', timeout: '0' });
    },
  },
  {
    name: 'kb36-kin',
    make: () => at.create('kb36-kin', { ...short, containers: [box('m', ['sleep', '3600'], { resources: { requests: { cpu: '200m' } } })] }),
    async settle() {
      await at.ready('kb36-kin');
      assert.equal(await at.k('exec', 'kb36-kin', '--', ...weight), weightOf('204', '20'));
      await resize('kb36-kin', { requests: { cpu: '300m' } });
      await at.watch.pod('kb36-kin', 'resized', 30_000, (pod) => pod.status?.observedGeneration === 2 && resizeConditions(pod).length === 0);
    },
  },
  {
    name: 'kb43',
    make: () => at.create('kb43', { ...short, containers: [box('m', ['sleep', '3600'])] }),
    async settle() {
      await at.ready('kb43');
      const ephemeralContainers = [box('d', ['sleep', '1000']), box('fails', shell('exit 1'))];
      await at.k('patch', 'pod', 'kb43', '--subresource=ephemeralcontainers', '-p', JSON.stringify({ spec: { ephemeralContainers } }));
      await at.watch.pod(
        'kb43',
        'with its ephemeral container',
        60_000,
        (pod) => isRunning(pod, 'd') && statusOf(pod, 'fails')?.state?.terminated?.exitCode === 1,
      );
      const [container] = await at.containers('kb43', 'd');
      await at.cri.runtime.stopContainer({ containerId: container?.id ?? '', timeout: '0' });
      await at.watch.pod('kb43', 'with it ended', 30_000, (pod) => statusOf(pod, 'd')?.state?.terminated !== undefined);
      await at.cri.runtime.removeContainer({ containerId: container?.id ?? '' });
    },
  },
  {
    name: 'refused',
    make: () => at.create('refused', { ...short, nodeName: 'node-1', containers: [box('m', ['sleep', '3600'], { resources: { requests: { cpu: '1k' } } })] }),
    settle: () => at.watch.pod('refused', 'refused', 60_000, (pod) => pod.status?.reason === 'OutOfcpu'),
  },
  {
    name: 'refused-init',
    make: () => at.create('refused-init', { ...short, nodeName: 'node-1', nodeSelector: { no: 'such' }, initContainers: [init], containers: [main] }),
    settle: () => at.watch.pod('refused-init', 'refused', 60_000, (pod) => pod.status?.reason === 'NodeAffinity'),
  },
];

const failures = new Map<string, unknown>();
const attempt = async (name: string, work: (() => Promise<unknown>) | undefined): Promise<void> => {
  try {
    await work?.();
  } catch (error) {
    if (!failures.has(name)) failures.set(name, error);
  }
};
const each = (work: (one: Case) => (() => Promise<unknown>) | undefined): Promise<void[]> => Promise.all(cases.map((one) => attempt(one.name, work(one))));
const fine = (...names: string[]): void => {
  for (const name of names) if (failures.has(name)) throw failures.get(name);
};

before(
  async () => {
    if (skip !== false) return;
    at = await Cases.open('kc-restart');
    await each((one) => () => one.make());
    await each((one) => () => one.settle());
    for (const { name } of cases) {
      uids.set(name, at.watch.last(name)?.metadata?.uid ?? '');
      ids.set(name, statusOf(at.watch.last(name))?.containerID ?? '');
    }
    await at.stopAgent();
    await each((one) => one.harm?.bind(one));
    for (const { name } of cases) seenBefore.set(name, at.watch.history(name).length);
    await at.init('start agent');
    await attempt('kb13', () => at.create('kb13', { ...short, containers: [box('m', ['sleep', '3600'])] }));
  },
  { timeout: 300_000 },
);
after(() => at?.[Symbol.asyncDispose]());

/** The new agent has worked for a while: its first deeds are seen, and ten seconds more. */
async function worked(): Promise<void> {
  await at.watch.pod('kb01', 'ready again', 90_000, (one) => statusOf(one)?.restartCount === 1 && statusOf(one)?.ready);
  const fromMs = performance.now();
  await at.watch.until('ten seconds', 20_000, () => performance.now() - fromMs > 10_000);
}

describe('the agent stops and starts', { skip, concurrency: true, timeout: 180_000 }, () => {
  test('KB-01: in a new sandbox the init container runs again before the app container', async () => {
    fine('kb01');
    const pod = await at.watch.pod('kb01', 'ready again', 90_000, (one) => statusOf(one)?.restartCount === 1 && statusOf(one)?.ready);
    await at.watch.until('the second main', 20_000, () => at.log('kb01', 'order').length === 4);
    assert.deepEqual(at.log('kb01', 'order'), ['init', 'main', 'init', 'main']);
    assert.equal(statusOf(pod, 'i')?.restartCount, 1);
    assert.equal(conditionOf(pod, 'Initialized')?.status, 'True');
    assert.equal((await at.sandboxes('kb01')).filter((one) => one.ready).length, 1);
  });

  test('KB-02: a finished init container that was removed does not run again and keeps its status', async () => {
    fine('kb02');
    await worked();
    const pod = at.watch.last('kb02');
    assert.deepEqual(at.log('kb02', 'order'), ['init', 'main']);
    assert.deepEqual(
      [statusOf(pod, 'i')?.state?.terminated?.exitCode, statusOf(pod, 'i')?.state?.terminated?.reason, statusOf(pod, 'i')?.restartCount],
      [0, 'Completed', 0],
    );
    for (const one of since('kb02')) assert.equal(one.status?.phase, 'Running');
  });

  test('KB-12: what had run and vanished while the agent was away has failed', async () => {
    fine('kb12');
    const pod = await at.watch.pod('kb12', 'Failed', 60_000, (one) => one.status?.phase === 'Failed');
    for (const name of ['a', 'b']) {
      const end = statusOf(pod, name)?.state?.terminated ?? statusOf(pod, name)?.lastState?.terminated;
      assert.deepEqual([end?.exitCode, end?.reason], [137, 'ContainerStatusUnknown']);
    }
    await at.k('patch', 'pod', 'kb12', '--type=merge', '-p', '{"metadata":{"finalizers":null}}');
    await at.watch.gone('kb12', 30_000);
  });

  test('KB-13: what was removed while the agent was away ends, leaves nothing, and its name is free', async () => {
    fine('kb13');
    const fresh = await at.watch.pod('kb13', 'running anew', 90_000, (pod) => pod.metadata?.uid !== uidOf('kb13') && isRunning(pod));
    assert.notEqual(fresh.metadata?.uid, uidOf('kb13'));
    // What has ended may stay for a while: upstream collects dead sandboxes once a minute.
    await eventually('the old sandbox has ended', 60_000, async () =>
      (await at.sandboxes('kb13')).some((one) => one.ready && one.uid === uidOf('kb13')) ? null : true,
    );
    assert.equal((await at.containers('kb13')).filter((one) => one.running).length, 1);
    const folder = `/var/lib/kubelet/pods/${uidOf('kb13')}`;
    await eventually('the old folder is gone', 60_000, async () => ((await at.set.nodelet(['exec', '--', 'ls', '-d', folder])).code === 0 ? null : true));
    assert.deepEqual(at.mounts(folder), []);
  });

  test('KB-19: a ready pod stays ready, an unready one unready', async () => {
    fine('kb19-ok', 'kb19-ko');
    await worked();
    for (const one of since('kb19-ok')) assert.deepEqual([statusOf(one)?.ready, statusOf(one)?.started, statusOf(one)?.restartCount], [true, true, 0]);
    for (const one of since('kb19-ko')) assert.equal(statusOf(one)?.ready, false);
    for (const name of ['kb19-ok', 'kb19-ko']) assert.equal(statusOf(at.watch.last(name))?.containerID, ids.get(name));
    assert.equal(conditionOf(at.watch.last('kb19-ok') as Pod, 'Ready')?.status, 'True');
  });

  test('KB-26: after the start there is one mount of the token, not two', async () => {
    fine('kb26');
    await worked();
    const path = `/var/lib/kubelet/pods/${uidOf('kb26')}/volumes/kubernetes.io~projected/t`;
    assert.deepEqual(at.mounts(path), [path]);
    assert.match(await at.k('exec', 'kb26', '--', 'cat', '/tok/t'), /^ey/);
  });

  test('KB-31: an evicted pod is not started again', async () => {
    fine('kb31');
    await worked();
    assert.equal(at.calls('kb31').filter((call) => call.method === 'CreateContainer').length, 1);
    for (const one of since('kb31')) assert.deepEqual([one.status?.phase, one.status?.reason], ['Failed', 'Evicted']);
  });

  test('KB-36: a resize that was put off is not applied by restarts, of the container or of the agent', async () => {
    fine('kb36', 'kb36-kin');
    const pod = await at.watch.pod('kb36', 'ready again', 90_000, (one) => statusOf(one)?.restartCount === 1 && statusOf(one)?.ready);
    assert.equal(await at.k('exec', 'kb36', '--', ...quota), '20000');
    assert.equal(conditionOf(pod, 'PodResizePending')?.reason, 'Deferred');
    assert.deepEqual([statusOf(pod)?.allocatedResources, statusOf(pod)?.resources], [{ cpu: '200m', memory: '64Mi' }, sized('200m', '64Mi')]);
    // Kin: a request alone was resized before the agent stopped, and stays so.
    const kin = at.watch.last('kb36-kin');
    assert.equal(await at.k('exec', 'kb36-kin', '--', ...weight), weightOf('307', '30'));
    assert.deepEqual([statusOf(kin)?.restartCount, statusOf(kin)?.allocatedResources], [0, { cpu: '300m' }]);
    assert.deepEqual(resizeConditions(kin as Pod), []);
  });

  test('KB-43: an ephemeral container that ended and was removed is not made again', async () => {
    fine('kb43');
    await worked();
    const pod = at.watch.last('kb43');
    assert.equal(at.calls('kb43').filter((call) => call.method === 'CreateContainer' && call.container === 'd').length, 1);
    assert.equal(at.calls('kb43').filter((call) => call.method === 'CreateContainer' && call.container === 'fails').length, 1);
    assert.ok(statusOf(pod, 'd')?.state?.terminated !== undefined);
    assert.deepEqual([statusOf(pod, 'd')?.restartCount, statusOf(pod, 'fails')?.state?.terminated?.exitCode], [0, 1]);
    for (const one of since('kb43')) assert.ok(statusOf(one, 'd')?.state?.terminated !== undefined && conditionOf(one, 'Ready')?.status === 'True');
    assert.equal(statusOf(pod)?.containerID, ids.get('kb43'));
  });

  test('a pod that was refused stays so; what it never started is told as lost, as upstream tells it', async () => {
    fine('refused', 'refused-init');
    const unknown = { exitCode: 137, message: 'The container could not be located when the pod was terminated', reason: 'ContainerStatusUnknown' };
    for (const name of ['refused', 'refused-init']) {
      const first = at.watch.history(name).find(({ pod }) => pod.status?.phase === 'Failed')?.pod;
      assert.deepEqual([first?.status?.containerStatuses, first?.status?.conditions?.some(({ type }) => type === 'Ready') ?? false], [undefined, false]);
    }
    const told = (pod: Pod, type: string): string => `${type} ${conditionOf(pod, type)?.status} ${conditionOf(pod, type)?.reason ?? ''}`.trim();
    const types = ['PodReadyToStartContainers', 'Initialized', 'Ready', 'ContainersReady', 'PodScheduled'];
    const plain = await at.watch.pod('refused', 'told anew', 60_000, (pod) => statusOf(pod)?.state?.terminated !== undefined);
    assert.deepEqual([plain.status?.phase, plain.status?.reason, plain.status?.allocatedResources], ['Failed', 'OutOfcpu', { cpu: '1k' }]);
    assert.deepEqual([statusOf(plain)?.state?.terminated, statusOf(plain)?.restartCount, statusOf(plain)?.imageID], [unknown, 0, '']);
    const failed = ['Ready False PodFailed', 'ContainersReady False PodFailed', 'PodScheduled True'];
    assert.deepEqual(
      types.map((type) => told(plain, type)),
      ['PodReadyToStartContainers False PodSandboxNotReady', 'Initialized True', ...failed],
    );
    const behind = await at.watch.pod('refused-init', 'told anew', 60_000, (pod) => statusOf(pod, 'i')?.state?.terminated !== undefined);
    assert.deepEqual([statusOf(behind, 'i')?.state?.terminated, statusOf(behind)?.state], [unknown, { waiting: { reason: 'PodInitializing' } }]);
    assert.deepEqual(
      types.map((type) => told(behind, type)),
      ['PodReadyToStartContainers False PodSandboxNotReady', 'Initialized False ContainersNotInitialized', ...failed],
    );
  });
});

test('killed with -9 in the middle of starting and ending pods: all arrive, none twice', { skip, timeout: 180_000 }, async () => {
  const names = ['a', 'b', 'c', 'd', 'e', 'f'].map((letter) => `kill-${letter}`);
  const spec = { ...short, initContainers: [box('i', shell('sleep 1; echo init >> /log/order'), { volumeMounts: [logMount] })], containers: [main] };
  for (const name of names) await at.create(name, spec);
  const kill = async (): Promise<void> => {
    const pid = await at.programPid('agent');
    assert.ok(pid !== null);
    process.kill(pid, 'SIGKILL');
    await eventually('the agent is started again', 30_000, async () => {
      const now = await at.programPid('agent');
      return now !== null && now !== pid ? now : null;
    });
  };
  await kill();
  for (const name of names) await at.ready(name, 90_000);
  for (const name of names) {
    assert.deepEqual(at.log(name, 'order'), ['init', 'main'], name);
    assert.equal((await at.containers(name, 'm')).filter((one) => one.running).length, 1, name);
  }
  for (const name of names) await at.remove(name);
  await kill();
  for (const name of names) await at.watch.gone(name, 90_000);
  for (const name of names) {
    await eventually(`nothing runs of ${name}`, 30_000, async () =>
      [...(await at.containers(name)).map((one) => one.running), ...(await at.sandboxes(name)).map((one) => one.ready)].includes(true) ? null : true,
    );
  }
});

test('KB-35: without its Node the Lease is not written; a new Node of that name becomes its owner', { skip, timeout: 180_000 }, async () => {
  const lease = async (): Promise<Lease | null> => {
    const answer = await at.set.kubectl(['-n', 'kube-node-lease', 'get', 'lease', 'node-1', '-o', 'json']);
    return answer.code === 0 ? (JSON.parse(answer.out) as Lease) : null;
  };
  await at.set.k(['delete', 'pods', '-n', NAMESPACE, '--all', '--force', '--grace-period=0', '--wait=false']);
  await at.set.k(['delete', 'node', 'node-1']);
  await at.set.kubectl(['-n', 'kube-node-lease', 'delete', 'lease', 'node-1', '--ignore-not-found']);
  const deletedMs = performance.now();
  // Two renewals' time: whatever stands there then belongs to nobody.
  await eventually('25 s without a Lease', 40_000, async () => {
    const found = await lease();
    assert.equal(found, null, `a Lease without its Node: ${JSON.stringify(found)}`);
    return performance.now() - deletedMs > 25_000 ? true : null;
  });
  await at.set.k(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'Node', metadata: { name: 'node-1' } }));
  const uid = await at.set.k(['get', 'node', 'node-1', '-o', 'jsonpath={.metadata.uid}']);
  const owned = await eventually('a Lease', 40_000, lease);
  assert.deepEqual(
    owned.metadata?.ownerReferences?.map((owner) => [owner.kind, owner.name, owner.uid]),
    [['Node', 'node-1', uid]],
  );
});
