import assert from 'node:assert/strict';
import { before, after, test } from 'node:test';
import { eventually, type TestSet } from '../set.ts';
import { pod, redisConfig } from './manifests.ts';
import { eventList, podNamed, ready, skip, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip !== false) return;
  set = await world('wt-config');
  await set.k(['create', 'namespace', 'shop']);
  await set.k(['apply', '-f', '-'], redisConfig);
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

const sleeper = 'image: "busybox:1.37"\n  command: [sleep, "3600"]';

test('1.48, 1.49: configuration as files and environment, Secrets on tmpfs', { skip, timeout: 240_000 }, async () => {
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'redis',
      `containers:
- name: m
  ${sleeper}
  env:
  - { name: REDIS_PASSWORD, valueFrom: { secretKeyRef: { name: redis-auth, key: password } } }
  - { name: CONF, valueFrom: { configMapKeyRef: { name: redis-config, key: redis.conf } } }
  volumeMounts:
  - { name: config, mountPath: /etc/redis }
  - { name: config, mountPath: /one/redis.conf, subPath: redis.conf }
  - { name: auth, mountPath: /auth }
volumes:
- { name: config, configMap: { name: redis-config } }
- { name: auth, secret: { secretName: redis-auth } }`,
      'shop',
    ),
  );
  const created = await ready(set, 'shop', 'redis');
  const run = async (...command: string[]): Promise<string> => set.k(['-n', 'shop', 'exec', 'redis', '--', ...command]);
  assert.equal(await run('cat', '/etc/redis/redis.conf'), 'maxmemory 64mb\nmaxmemory-policy allkeys-lru');
  assert.equal(await run('sh', '-c', 'echo $REDIS_PASSWORD'), 's3cr3t-example');
  assert.equal(await run('cat', '/auth/password'), 's3cr3t-example');
  assert.equal(await set.k(['-n', 'shop', 'get', 'secret', 'redis-auth', '-o', 'jsonpath={.data.password}']), 'czNjcjN0LWV4YW1wbGU=');
  const volumes = `/var/lib/kubelet/pods/${created.metadata.uid}/volumes`;
  const filesystem = await set.nodelet(['exec', '--', 'stat', '-f', '-c', '%T', `${volumes}/kubernetes.io~secret/auth`]);
  assert.equal(filesystem.out.trim(), 'tmpfs');

  await set.k(['-n', 'shop', 'patch', 'configmap', 'redis-config', '-p', '{"data":{"redis.conf":"maxmemory 128mb\\n"}}']);
  await eventually('the file changes in place', 150_000, async () => ((await run('cat', '/etc/redis/redis.conf')) === 'maxmemory 128mb' ? true : null));
  assert.match(await run('sh', '-c', 'echo "$CONF"'), /64mb/);
  assert.match(await run('cat', '/one/redis.conf'), /64mb/);
  await set.k(['-n', 'shop', 'delete', 'pod', 'redis', '--grace-period=1']);
  await eventually('the files go with the pod', 10_000, async () => ((await set.nodelet(['exec', '--', 'ls', volumes])).code === 0 ? null : true));
});

test('1.51: what is missing is said, and the pod starts by itself once it is there', { skip, timeout: 240_000 }, async () => {
  const env = (kind: 'configMapKeyRef' | 'secretKeyRef', name: string, key: string, extra = ''): string =>
    `containers:\n- name: m\n  ${sleeper}\n  env:\n  - { name: V, valueFrom: { ${kind}: { name: ${name}, key: ${key}${extra} } } }`;
  await set.k(['apply', '-f', '-'], pod('env-object', env('configMapKeyRef', 'later', 'k'), 'shop'));
  await set.k(['apply', '-f', '-'], pod('env-key', env('secretKeyRef', 'redis-auth', 'nokey'), 'shop'));
  await set.k(['apply', '-f', '-'], pod('env-optional', env('configMapKeyRef', 'never', 'k', ', optional: true'), 'shop'));
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'volume',
      `containers:\n- name: m\n  ${sleeper}\n  volumeMounts: [{ name: v, mountPath: /v }]\nvolumes: [{ name: v, configMap: { name: later-volume } }]`,
      'shop',
    ),
  );
  const waiting = async (name: string): Promise<{ reason: string; message?: string }> =>
    eventually(`${name} waits`, 20_000, async () => {
      const state = (await podNamed(set, 'shop', name)).status.containerStatuses?.[0]?.state.waiting;
      return state?.reason === 'CreateContainerConfigError' ? state : null;
    });
  assert.match((await waiting('env-object')).message ?? '', /configmap "later" not found/);
  assert.match((await waiting('env-key')).message ?? '', /couldn't find key nokey in Secret shop\/redis-auth/);
  await ready(set, 'shop', 'env-optional');
  await eventually('FailedMount', 20_000, async () =>
    (await eventList(set, 'shop')).some(
      (event) => event.reason === 'FailedMount' && /MountVolume\.SetUp failed for volume "v" : configmap "later-volume" not found/.test(event.message),
    )
      ? true
      : null,
  );
  assert.equal((await podNamed(set, 'shop', 'volume')).status.containerStatuses?.[0]?.state.waiting?.reason, 'ContainerCreating');
  await set.k(['-n', 'shop', 'create', 'configmap', 'later', '--from-literal=k=v']);
  await set.k(['-n', 'shop', 'create', 'configmap', 'later-volume', '--from-literal=k=v']);
  await ready(set, 'shop', 'env-object', 90_000);
  await ready(set, 'shop', 'volume', 150_000);
});

test('1.52: the downward API', { skip }, async () => {
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'down',
      `containers:
- name: m
  ${sleeper}
  resources: { limits: { memory: 64Mi } }
  env:
  - { name: POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
  - { name: NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
  - { name: POD_IP, valueFrom: { fieldRef: { fieldPath: status.podIP } } }
  - { name: HOST_IP, valueFrom: { fieldRef: { fieldPath: status.hostIP } } }
  - { name: APP, valueFrom: { fieldRef: { fieldPath: "metadata.labels['app']" } } }
  - { name: MEM_LIMIT, valueFrom: { resourceFieldRef: { resource: limits.memory } } }
  volumeMounts: [{ name: info, mountPath: /info }]
volumes:
- name: info
  downwardAPI:
    items:
    - { path: labels, fieldRef: { fieldPath: metadata.labels } }
    - { path: app, fieldRef: { fieldPath: "metadata.labels['app']" } }`,
      'shop',
      '{ app: down, tier: x }',
    ),
  );
  const one = await ready(set, 'shop', 'down');
  const env = (await set.k(['-n', 'shop', 'exec', 'down', '--', 'env'])).split('\n');
  const node = (await set.status()).nodes[0]?.ip ?? '';
  for (const line of ['POD_NAME=down', 'NODE_NAME=node-1', `POD_IP=${one.status.podIP}`, `HOST_IP=${node}`, 'APP=down', `MEM_LIMIT=${64 * 2 ** 20}`])
    assert.ok(env.includes(line), line);
  assert.equal(await set.k(['-n', 'shop', 'exec', 'down', '--', 'cat', '/info/labels']), 'app="down"\ntier="x"');
  assert.equal(await set.k(['-n', 'shop', 'exec', 'down', '--', 'cat', '/info/app']), 'down');
  const refused = await set.kubectl(['apply', '-f', '-'], {
    input: pod('bad', `containers:\n- name: m\n  ${sleeper}\n  env:\n  - { name: V, valueFrom: { fieldRef: { fieldPath: metadata.labels } } }`, 'shop'),
  });
  assert.notEqual(refused.code, 0, 'the whole label map is no environment variable');
});
