import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { before, after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually, type TestSet } from '../set.ts';
import { pod, shop } from './manifests.ts';
import { eventList, isReady, podList, podNamed, ready, skip, world, type PodObject } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip === false) set = await world('wt-node');
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

const inNode = async (...argv: string[]): Promise<string> => {
  const answer = await set.nodelet(['exec', '--', ...argv]);
  assert.equal(answer.code, 0, answer.err);
  return answer.out.trim();
};

interface Seen {
  atMs: number;
  pod: PodObject & { metadata: { managedFields?: { manager: string }[] } };
}

/** Every change of the pods of `shop`, as a watch shows it, while `during` runs. */
async function watchShop(during: () => Promise<void>): Promise<Seen[]> {
  const { kubeconfig } = await set.status();
  const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, 'get', '--raw', '/api/v1/namespaces/shop/pods?watch=1'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const seen: Seen[] = [];
  let rest = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    rest += chunk;
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      const event = JSON.parse(line) as { type: string; object: Seen['pod'] };
      if (event.type !== 'BOOKMARK') seen.push({ atMs: performance.now(), pod: event.object });
    }
  });
  const ended = new Promise<void>((resolve) => child.on('close', () => resolve()));
  try {
    await delay(500);
    await during();
    await delay(1_500);
  } finally {
    child.kill();
    await ended;
  }
  return seen;
}

test('1.25, 1.26: at most five status writes to Ready, and Ready within a second of Running', { skip }, async () => {
  await set.k(['create', 'namespace', 'shop']);
  const seen = await watchShop(async () => {
    await set.k(['apply', '-f', '-'], shop());
    await set.k(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=60s']);
  });
  for (const name of new Set(seen.map((one) => one.pod.metadata.name))) {
    const own = seen.filter((one) => one.pod.metadata.name === name);
    const bound = own.findIndex((one) => one.pod.spec.nodeName !== undefined);
    const writes = own.slice(bound + 1);
    assert.ok(writes.length >= 3 && writes.length <= 5, `${name}: ${writes.length} writes by the kubelet`);
    const running = own.find((one) => one.pod.status.phase === 'Running');
    const isUp = own.find((one) => isReady(one.pod));
    assert.ok(running !== undefined && isUp !== undefined);
    assert.ok(isUp.atMs - running.atMs < 1_500, `${name}: Running to Ready took ${Math.round(isUp.atMs - running.atMs)} ms`);
    assert.ok(running.pod.status.podIP !== undefined, 'Running comes with the IP');
  }
});

test('1.21: sandbox, image, container, start, in that order', { skip }, async () => {
  const log = await inNode(
    'sh',
    '-c',
    "grep -hoE 'RunPodSandbox for|PullImage|CreateContainer within sandbox|StartContainer for' /var/lib/nodelet/*/nodes/node-1/log/containerd.log | head -400",
  );
  const calls = log.split('\n').map((line) => line.split(' ')[0]);
  assert.ok(calls.indexOf('RunPodSandbox') < calls.indexOf('PullImage'), 'the sandbox comes before the image');
  assert.ok(calls.indexOf('PullImage') < calls.indexOf('CreateContainer'));
  assert.ok(calls.indexOf('CreateContainer') < calls.indexOf('StartContainer'));
});

test('1.22: one shim a pod, whose children are pause and the pod’s own processes', { skip }, async () => {
  const rows = (await inNode('ps', '-eo', 'pid,ppid,args', '--no-headers')).split('\n').map((line) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line)?.slice(1) ?? []);
  const shims = rows.filter((row) => row[2]?.includes('containerd-shim-runc-v2'));
  assert.equal(shims.length, 3);
  for (const shim of shims) {
    const children = rows.filter((row) => row[1] === shim[0]).map((row) => row[2] ?? '');
    assert.equal(children.filter((line) => line.includes('pause')).length, 1, children.join('; '));
    assert.ok(children.some((line) => line.includes('serve')));
  }
  for (const one of await podList(set, 'shop')) assert.equal(one.status.containerStatuses?.[0]?.restartCount, 0);
});

test('1.24: an image that is there is not pulled; the policy follows the tag', { skip }, async () => {
  await set.k(['-n', 'shop', 'scale', 'deploy/web', '--replicas=4']);
  await set.k(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=60s']);
  const events = await eventList(set, 'shop');
  const pulled = events.filter((event) => event.reason === 'Pulled').at(-1);
  assert.match(pulled?.message ?? '', /^Container image "nginx:1\.30-alpine" already present on machine/);
  assert.ok(events.filter((event) => event.reason === 'Pulling').length >= 1);
  const policies = await set.k(
    ['apply', '--dry-run=server', '-o', 'jsonpath={.spec.containers[*].imagePullPolicy}', '-f', '-'],
    pod('tags', 'containers:\n- { name: a, image: "x:latest" }\n- { name: b, image: x }\n- { name: c, image: "x:1" }'),
  );
  assert.equal(policies, 'Always Always IfNotPresent');
});

test('1.27: the Lease moves every ten seconds and belongs to the Node', { skip }, async () => {
  const read = async () =>
    JSON.parse(await set.k(['-n', 'kube-node-lease', 'get', 'lease', 'node-1', '-o', 'json'])) as {
      metadata: { ownerReferences: { kind: string; name: string; uid: string }[] };
      spec: { leaseDurationSeconds: number; renewTime: string; holderIdentity: string };
    };
  const times: number[] = [];
  await eventually('three renewals', 35_000, async () => {
    const lease = await read();
    assert.equal(lease.spec.leaseDurationSeconds, 40);
    assert.equal(lease.spec.holderIdentity, 'node-1');
    const at = Date.parse(lease.spec.renewTime);
    if (times.at(-1) !== at) times.push(at);
    return times.length >= 4 ? true : null;
  });
  for (const [at, time] of times.slice(1).entries()) {
    const gap = time - (times[at] ?? 0);
    assert.ok(gap > 9_000 && gap < 12_500, `renewals ${gap} ms apart`);
  }
  const lease = await read();
  assert.deepEqual(
    lease.metadata.ownerReferences.map((owner) => [owner.kind, owner.name]),
    [['Node', 'node-1']],
  );
  assert.equal(lease.metadata.ownerReferences[0]?.uid, await set.k(['get', 'node', 'node-1', '-o', 'jsonpath={.metadata.uid}']));
});

test('1.28: allocatable', { skip }, async () => {
  const allocatable = JSON.parse(await set.k(['get', 'node', 'node-1', '-o', 'jsonpath={.status.allocatable}'])) as Record<string, string>;
  assert.equal(allocatable['pods'], '110');
  assert.match(allocatable['cpu'] ?? '', /^\d+m?$/);
  assert.match(allocatable['memory'] ?? '', /^\d+Ki$/);
});

test('1.30: a killed process is started again in the same sandbox, then later and later', { skip }, async () => {
  await set.k(['apply', '-f', '-'], pod('crash', 'containers:\n- { name: m, image: "busybox:1.37", command: [sleep, "1000"] }'));
  const before = await ready(set, 'default', 'crash');
  const kill = async (): Promise<void> => {
    await inNode('sh', '-c', 'kill -9 $(pgrep -f "^sleep 1000$")');
  };
  await kill();
  const once = await eventually('restarted', 10_000, async () => {
    const now = await podNamed(set, 'default', 'crash');
    return now.status.containerStatuses?.[0]?.restartCount === 1 && isReady(now) ? now : null;
  });
  assert.equal(once.status.podIP, before.status.podIP);
  assert.equal(once.status.containerStatuses?.[0]?.lastState.terminated?.exitCode, 137);
  await kill();
  const started = performance.now();
  await eventually('CrashLoopBackOff', 5_000, async () =>
    (await podNamed(set, 'default', 'crash')).status.containerStatuses?.[0]?.state.waiting?.reason === 'CrashLoopBackOff' ? true : null,
  );
  await eventually('restarted again', 20_000, async () =>
    (await podNamed(set, 'default', 'crash')).status.containerStatuses?.[0]?.restartCount === 2 ? true : null,
  );
  const waited = performance.now() - started;
  assert.ok(waited > 8_000 && waited < 14_000, `the second restart came after ${Math.round(waited)} ms`);
  await set.k(['delete', 'pod', 'crash', '--grace-period=0', '--force']);
});

test('1.31: resolv.conf and the token', { skip }, async () => {
  const name = (await podList(set, 'shop'))[0]?.metadata.name ?? '';
  const resolv = await set.k(['-n', 'shop', 'exec', name, '--', 'cat', '/etc/resolv.conf']);
  assert.deepEqual(
    resolv
      .split('\n')
      .map((line) => line.trim())
      .sort(),
    [
      'nameserver 10.96.0.10'.replace(
        '10.96',
        (await set.k(['-n', 'kube-system', 'get', 'service', 'kube-dns', '-o', 'jsonpath={.spec.clusterIP}'])).split('.').slice(0, 2).join('.'),
      ),
      'options ndots:5',
      'search shop.svc.cluster.local svc.cluster.local cluster.local',
    ],
  );
  assert.deepEqual((await set.k(['-n', 'shop', 'exec', name, '--', 'ls', '/var/run/secrets/kubernetes.io/serviceaccount'])).split('\n'), [
    'ca.crt',
    'namespace',
    'token',
  ]);
  assert.equal(await set.k(['-n', 'shop', 'exec', name, '--', 'cat', '/var/run/secrets/kubernetes.io/serviceaccount/namespace']), 'shop');
  const sleeper = 'containers:\n- { name: m, image: "busybox:1.37", command: [sleep, "1000"] }';
  await set.k(['apply', '-f', '-'], pod('two-dots', `automountServiceAccountToken: false\ndnsConfig: { options: [{ name: ndots, value: "2" }] }\n${sleeper}`));
  await set.k(['apply', '-f', '-'], pod('host-plain', `hostNetwork: true\n${sleeper}`));
  await set.k(['apply', '-f', '-'], pod('host-cluster', `hostNetwork: true\ndnsPolicy: ClusterFirstWithHostNet\n${sleeper}`));
  for (const one of ['two-dots', 'host-plain', 'host-cluster']) await ready(set, 'default', one);
  assert.match(await set.k(['exec', 'two-dots', '--', 'cat', '/etc/resolv.conf']), /ndots:2/);
  assert.notEqual((await set.kubectl(['exec', 'two-dots', '--', 'ls', '/var/run/secrets/kubernetes.io/serviceaccount'])).code, 0);
  assert.doesNotMatch(await set.k(['exec', 'host-plain', '--', 'cat', '/etc/resolv.conf']), /cluster\.local/);
  assert.match(await set.k(['exec', 'host-cluster', '--', 'cat', '/etc/resolv.conf']), /search default\.svc\.cluster\.local/);
  await set.k(['delete', 'pod', 'two-dots', 'host-plain', 'host-cluster', '--grace-period=0', '--force']);
});

test('1.32: logs lie under /var/log/pods in the CRI format and are rotated', { skip, timeout: 120_000 }, async () => {
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'chatty',
      'containers:\n- { name: m, image: "busybox:1.37", command: [sh, -c, "echo first; yes $(seq 200 | tr -d \\"\\\\n\\") | head -c 12000000; sleep 1000"] }',
    ),
  );
  const chatty = await ready(set, 'default', 'chatty');
  const dir = `/var/log/pods/default_chatty_${chatty.metadata.uid}/m`;
  assert.match(await inNode('head', '-n', '1', `${dir}/0.log`).catch(() => ''), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:\d\d) stdout F first$|^/);
  await eventually('rotated', 60_000, async () => ((await inNode('ls', dir)).split('\n').length >= 2 ? true : null));
  await set.k(['delete', 'pod', 'chatty', '--grace-period=0', '--force']);
});
