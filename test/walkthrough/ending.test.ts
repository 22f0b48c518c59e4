import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { before, after, test } from 'node:test';
import { eventually, type TestSet } from '../set.ts';
import { pod, web } from './manifests.ts';
import { podNamed, ready, skip, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip === false) set = await world('wt-ending');
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

test('1.61: logs in all their forms', { skip, timeout: 120_000 }, async () => {
  await set.k(['apply', '-f', '-'], web);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  await set.k(['logs', 'deploy/web']);
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'talks',
      'containers:\n- { name: m, image: "busybox:1.37", command: [sh, -c, "i=0; while :; do i=$((i+1)); echo line $i; [ -e /tmp/end ] && exit 1; sleep 0.2; done"] }',
      'default',
      '{ app: talks }',
    ),
  );
  await ready(set, 'default', 'talks');
  await eventually('lines', 10_000, async () => ((await set.k(['logs', 'talks', '-c', 'm'])).split('\n').length > 5 ? true : null));
  assert.equal((await set.k(['logs', 'talks', '--tail=2'])).split('\n').length, 2);
  assert.match(await set.k(['logs', '-l', 'app=talks', '--since=10m']), /line \d+/);
  assert.match(await set.k(['logs', 'talks', '--timestamps', '--tail=1']), /^\d{4}-\d\d-\d\dT\S+ line \d+$/);
  const { kubeconfig } = await set.status();
  const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, 'logs', 'talks', '-f', '--tail=1'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
  await eventually('followed lines', 10_000, async () => (text.split('\n').length > 6 ? true : null));
  await set.k(['exec', 'talks', '--', 'touch', '/tmp/end']);
  assert.equal(await ended, 0, 'following ends with the container');
  await eventually('the last run’s log', 20_000, async () => {
    const answer = await set.kubectl(['logs', 'talks', '--previous']);
    return answer.code === 0 && /line 1\n/.test(answer.out) ? true : null;
  });
  await set.k(['delete', 'pod', 'talks', '--grace-period=0', '--force']);
});

test('1.62: an ephemeral container beside a container, a changed copy, a shell on the node', { skip, timeout: 180_000 }, async () => {
  await set.k(['apply', '-f', '-'], web);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  const [name = ''] = (await set.k(['get', 'pods', '-l', 'app=web', '-o', 'name'])).split('\n').map((line) => line.replace('pod/', ''));
  const first = await set.k(['exec', name, '-c', 'nginx', '--', 'cat', '/proc/1/cmdline']);
  // The target's process 1 is the one it sees.
  await set.k(['debug', name, '--image=busybox:1.37', '--target=nginx', '-c', 'shell', '--attach=false', '--', 'sh', '-c', 'cat /proc/1/cmdline; exit 3']);
  interface Ephemeral {
    name: string;
    restartCount: number;
    state: { terminated?: { exitCode: number } };
  }
  const ephemeral = async (): Promise<Ephemeral | undefined> =>
    ((await podNamed(set, 'default', name)).status as { ephemeralContainerStatuses?: Ephemeral[] }).ephemeralContainerStatuses?.[0];
  await eventually('it has ended', 60_000, async () => ((await ephemeral())?.state.terminated !== undefined ? true : null));
  assert.equal(await set.k(['logs', name, '-c', 'shell']), first);
  assert.equal(await set.k(['get', 'pod', name, '-o', 'jsonpath={.spec.ephemeralContainers[0].targetContainerName}']), 'nginx');

  // A pod of nobody's: a copy keeps its labels, and a ReplicaSet would take one too many away.
  await set.k(['apply', '-f', '-'], pod('alone', 'containers:\n- { name: nginx, image: "nginx:1.29" }'));
  await ready(set, 'default', 'alone');
  await set.k(['debug', 'alone', '--copy-to=copy', '--set-image=nginx=nginx:1.31-alpine']);
  await ready(set, 'default', 'copy');
  const images = ['copy', 'alone'].map((each) => set.k(['get', 'pod', each, '-o', 'jsonpath={.spec.containers[0].image}']));
  assert.deepEqual(await Promise.all(images), ['nginx:1.31-alpine', 'nginx:1.29']);
  for (const each of ['copy', 'alone']) await set.k(['delete', 'pod', each, '--grace-period=0', '--force']);

  const { nodes } = await set.status();
  const told = await set.k(['debug', 'node/node-1', '--image=busybox:1.37', '--attach=false', '--', 'sh', '-c', 'ls /host/var/lib/kubelet; ip -o addr']);
  const shell = /(node-debugger-node-1-\w+)/.exec(told)?.[1] ?? '';
  await eventually('it has looked around', 60_000, async () => ((await podNamed(set, 'default', shell)).status.phase === 'Succeeded' ? true : null));
  const seen = await set.k(['logs', shell]);
  assert.match(seen, /^pods$/m, 'the root of the node');
  assert.ok(seen.includes(` ${nodes[0]?.ip ?? 'none'}/`), 'and its network');
  await set.k(['delete', 'pod', shell, '--grace-period=0', '--force']);

  // Minutes of other work later it is what it was: never started again.
  const end = await ephemeral();
  assert.deepEqual([end?.name, end?.restartCount, end?.state.terminated?.exitCode], ['shell', 0, 3]);
});

test('1.63: a resize to more CPU reaches the cgroup without a restart', { skip, timeout: 120_000 }, async () => {
  const sizes = (cpu: string) => ({ requests: { cpu, memory: '64Mi' }, limits: { cpu, memory: '64Mi' } });
  const container = `containers:\n- { name: m, image: "busybox:1.37", command: [sleep, "1000"], resources: ${JSON.stringify(sizes('200m'))} }`;
  await set.k(['apply', '-f', '-'], pod('grow', container));
  await ready(set, 'default', 'grow');
  // Version 1, else version 2.
  const files = 'cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d" " -f1 /sys/fs/cgroup/cpu.max';
  const quota = (): Promise<string> => set.k(['exec', 'grow', '--', 'sh', '-c', files]);
  assert.equal(await quota(), '20000');
  const patch = JSON.stringify({ spec: { containers: [{ name: 'm', resources: sizes('800m') }] } });
  await set.k(['patch', 'pod', 'grow', '--subresource', 'resize', '--patch', patch]);
  await eventually('the quota of 800m', 20_000, async () => ((await quota()) === '80000' ? true : null));
  const told = await eventually('800m in the status, and no resize under way', 20_000, async () => {
    const { status } = await podNamed(set, 'default', 'grow');
    const own = status.containerStatuses?.[0];
    return own?.resources?.limits?.['cpu'] === '800m' && status.conditions?.some(({ type }) => type.startsWith('PodResize')) !== true ? own : null;
  });
  assert.deepEqual([told.restartCount, told.allocatedResources], [0, { cpu: '800m', memory: '64Mi' }]);
  const refused = await set.kubectl(['patch', 'pod', 'grow', '--subresource', 'resize', '--patch', patch.replaceAll('800m', '1000')]);
  assert.match(refused.err, /node didn't have enough allocatable resources: cpu, requested: 1000000/);
  await set.k(['delete', 'pod', 'grow', '--grace-period=0', '--force']);
});

test('1.64: init containers one after the other, a sidecar in its turn and stopped last', { skip, timeout: 120_000 }, async () => {
  const say = (name: string, command: string): string =>
    `- name: ${name}\n  image: "busybox:1.37"\n  volumeMounts: [{ name: log, mountPath: /log }]\n  command: [sh, -c, ${JSON.stringify(command)}]\n`;
  const stays = (name: string): string => `echo ${name} up >> /log/order; trap "echo ${name} down >> /log/order; exit 0" TERM; while :; do sleep 0.1; done`;
  await set.nodelet(['exec', '--', 'rm', '-rf', '/tmp/nodelet-wt-order']);
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'order',
      `initContainers:\n${say('one', 'echo one >> /log/order')}${say('side', stays('side')).replace('- name: side\n', '- name: side\n  restartPolicy: Always\n')}${say('two', 'sleep 1; echo two >> /log/order')}containers:\n${say('main', stays('main'))}volumes: [{ name: log, hostPath: { path: /tmp/nodelet-wt-order, type: DirectoryOrCreate } }]`,
    ),
  );
  await ready(set, 'default', 'order', 40_000);
  await set.k(['delete', 'pod', 'order']);
  const order = (await set.nodelet(['exec', '--', 'cat', '/tmp/nodelet-wt-order/order'])).out.trim().split('\n');
  await set.nodelet(['exec', '--', 'rm', '-rf', '/tmp/nodelet-wt-order']);
  assert.deepEqual(order, ['one', 'side up', 'two', 'main up', 'main down', 'side down']);
});

test('1.65: preStop, TERM, and the endpoint that ends with the first moment', { skip, timeout: 120_000 }, async () => {
  await set.nodelet(['exec', '--', 'rm', '-rf', '/tmp/nodelet-wt-end']);
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'ends',
      `terminationGracePeriodSeconds: 45
containers:
- name: m
  image: "busybox:1.37"
  ports: [{ containerPort: 80 }]
  command: [sh, -c, 'trap "date +%s > /log/term; exit 0" TERM; while :; do sleep 0.1; done']
  lifecycle: { preStop: { exec: { command: [sh, -c, "date +%s > /log/hook; sleep 5"] } } }
  volumeMounts: [{ name: log, mountPath: /log }]
volumes: [{ name: log, hostPath: { path: /tmp/nodelet-wt-end, type: DirectoryOrCreate } }]`,
      'default',
      '{ app: ends }',
    ),
  );
  await set.k(
    ['apply', '-f', '-'],
    'apiVersion: v1\nkind: Service\nmetadata: { name: ends, namespace: default }\nspec: { selector: { app: ends }, ports: [{ port: 80 }] }\n',
  );
  await ready(set, 'default', 'ends');
  await set.k(['delete', 'pod', 'ends', '--wait=false']);
  const conditions = await eventually('the endpoint is terminating', 3_000, async () => {
    const slices = JSON.parse(await set.k(['get', 'endpointslices', '-l', 'kubernetes.io/service-name=ends', '-o', 'json'])) as {
      items: { endpoints: { conditions: { ready: boolean; terminating?: boolean; serving?: boolean } }[] }[];
    };
    const found = slices.items[0]?.endpoints[0]?.conditions;
    return found?.terminating === true ? found : null;
  });
  assert.equal(conditions.ready, false);
  assert.equal(conditions.serving, true);
  assert.ok((await podNamed(set, 'default', 'ends')).metadata.deletionTimestamp !== undefined);
  await eventually('gone', 20_000, async () => ((await set.kubectl(['get', 'pod', 'ends'])).code === 0 ? null : true));
  const [hook = 0, term = 0] = (await set.nodelet(['exec', '--', 'sh', '-c', 'cat /tmp/nodelet-wt-end/hook /tmp/nodelet-wt-end/term'])).out
    .trim()
    .split('\n')
    .map(Number);
  await set.nodelet(['exec', '--', 'rm', '-rf', '/tmp/nodelet-wt-end']);
  assert.ok(term - hook >= 5 && term - hook <= 7, `TERM came ${term - hook} s after the hook began`);
});
