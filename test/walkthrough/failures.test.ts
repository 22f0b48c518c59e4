import assert from 'node:assert/strict';
import { before, after, test } from 'node:test';
import { eventually, type TestSet } from '../set.ts';
import { pod, web } from './manifests.ts';
import { eventList, podNamed, skip, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip === false) set = await world('wt-failures');
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

const waiting = async (name: string): Promise<string | undefined> =>
  (await podNamed(set, 'default', name)).status.containerStatuses?.[0]?.state.waiting?.reason;

test('1.58: failures have a name', { skip, timeout: 120_000 }, async () => {
  const container = (command: string, extra = ''): string =>
    `containers:\n- name: m\n  image: "busybox:1.37"\n  command: [sh, -c, ${JSON.stringify(command)}]\n${extra}`;
  await set.k(['apply', '-f', '-'], pod('tag', 'containers:\n- { name: m, image: "nginx:no-such-tag" }'));
  await set.k(['apply', '-f', '-'], pod('exits', container('echo run $RANDOM; exit 3')));
  await set.k(['apply', '-f', '-'], pod('hungry', container('x=a; while :; do x=$x$x; done', '  resources: { limits: { memory: 24Mi } }')));
  await set.k(['apply', '-f', '-'], pod('unready', container('sleep 3600', '  readinessProbe: { exec: { command: ["false"] }, periodSeconds: 1 }')));
  const reasons = new Set<string>();
  await eventually('ErrImagePull and ImagePullBackOff', 40_000, async () => {
    reasons.add((await waiting('tag')) ?? '');
    return reasons.has('ErrImagePull') && reasons.has('ImagePullBackOff') ? true : null;
  });
  await eventually('CrashLoopBackOff', 40_000, async () => ((await waiting('exits')) === 'CrashLoopBackOff' ? true : null));
  assert.match(await set.k(['logs', 'exits', '--previous']), /^run \d+$/);
  const killed = await eventually('OOMKilled', 40_000, async () => {
    const state = (await podNamed(set, 'default', 'hungry')).status.containerStatuses?.[0];
    return [state?.state.terminated, state?.lastState.terminated].find((end) => end?.reason === 'OOMKilled') ?? null;
  });
  assert.equal(killed.exitCode, 137);
  const unready = await eventually(
    'Unhealthy',
    20_000,
    async () => (await eventList(set, 'default')).find((event) => event.reason === 'Unhealthy' && event.involvedObject.name === 'unready') ?? null,
  );
  assert.match(unready.message, /^Readiness probe failed/);
  assert.deepEqual((await set.k(['get', 'pod', 'unready', '--no-headers'])).split(/\s+/).slice(1, 3), ['0/1', 'Running']);
});

test('1.59: a pod that fits nowhere says why', { skip }, async () => {
  await set.k(['apply', '-f', '-'], pod('huge', 'containers:\n- { name: m, image: "busybox:1.37", resources: { requests: { cpu: "1000" } } }'));
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'claims',
      'containers:\n- { name: m, image: "busybox:1.37", volumeMounts: [{ name: d, mountPath: /d }] }\nvolumes: [{ name: d, persistentVolumeClaim: { claimName: data } }]',
    ),
  );
  await set.k(
    ['apply', '-f', '-'],
    'apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: { name: data, namespace: default }\nspec: { accessModes: [ReadWriteOnce], resources: { requests: { storage: 1Gi } } }\n',
  );
  const failed = async (name: string, pattern: RegExp): Promise<void> => {
    const event = await eventually(
      `FailedScheduling of ${name}`,
      20_000,
      async () =>
        (await eventList(set, 'default')).find((one) => one.reason === 'FailedScheduling' && one.involvedObject.name === name && pattern.test(one.message)) ??
        null,
    );
    assert.match(event.message, pattern);
    const condition = (await podNamed(set, 'default', name)).status.conditions?.find((one) => one.type === 'PodScheduled');
    assert.deepEqual([condition?.status, condition?.reason], ['False', 'Unschedulable']);
  };
  await failed('huge', /^0\/1 nodes are available: 1 Insufficient cpu\./);
  await failed('claims', /pod has unbound immediate PersistentVolumeClaims/);
  await set.k(['taint', 'node', 'node-1', 'key=value:NoSchedule']);
  await set.k(['apply', '-f', '-'], pod('tainted', 'containers:\n- { name: m, image: "busybox:1.37" }'));
  await failed('tainted', /^0\/1 nodes are available: 1 node\(s\) had untolerated taint(?:\(s\)| \{key: value\})/);
  await set.k(['taint', 'node', 'node-1', 'key-']);
});

test('1.60: describe and events show conditions and Events', { skip }, async () => {
  await set.k(['apply', '-f', '-'], web);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  const name = (await set.k(['get', 'pods', '-l', 'app=web', '-o', 'name'])).split('\n')[0]?.replace('pod/', '') ?? '';
  const described = await set.k(['describe', 'pod', name]);
  for (const pattern of [/^Status:\s+Running$/m, /^\s+Ready\s+True/m, /Scheduled.*default-scheduler.*Successfully assigned/, /Started.*kubelet/])
    assert.match(described, pattern);
  const deployment = await set.k(['describe', 'deploy', 'web']);
  for (const pattern of [/Available\s+True\s+MinimumReplicasAvailable/, /ScalingReplicaSet/, /3 desired \| 3 updated \| 3 total \| 3 available/])
    assert.match(deployment, pattern);
  assert.match(await set.k(['events', '--for', `pod/${name}`]), /Container started|Started/);
});
