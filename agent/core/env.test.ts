import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod, Service } from '../../proto/kube/types.ts';
import { envOf, expandAll, fromBase64 } from './env.ts';
import type { EnvInput } from './env.ts';
import { utf8Bytes } from '../../base/utf8.ts';

function input(container: Partial<Container>, more: Partial<EnvInput> = {}): EnvInput {
  const full: Container = { name: 'm', ...container };
  const pod: Pod = { metadata: { name: 'p', namespace: 'n', uid: 'u', labels: { app: 'web' } }, spec: { containers: [full], nodeName: 'node-1' } };
  return {
    pod,
    container: full,
    podIPs: ['10.0.0.1', 'fd00::1'],
    hostIPs: ['192.0.2.1'],
    configMaps: {},
    secrets: {},
    services: [],
    fileKeys: {},
    allocatable: { cpu: '4', memory: '8Gi' },
    ...more,
  };
}

function env(given: EnvInput): Record<string, string> {
  const result = envOf(given);
  assert.ok(result.ok, result.ok ? '' : result.message);
  return Object.fromEntries(result.env.map((pair) => [pair.name, pair.value]));
}

test('a variable sees those before it, and values from maps are not expanded', () => {
  const given = input(
    {
      envFrom: [{ configMapRef: { name: 'c' } }],
      env: [
        { name: 'EARLY', value: '$(LATE)' },
        { name: 'LATE', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } },
        { name: 'AFTER', value: 'n=$(LATE) a=$(A)' },
        { name: 'ESC', value: '$$(A) $(NOPE) $A' },
        { name: 'A', value: 'two' },
        { name: 'LASTA', value: '$(A)' },
      ],
    },
    { configMaps: { c: { metadata: {}, data: { A: 'one', REF: 'x-$(A)' } } } },
  );
  const values = env(given);
  assert.deepEqual(values, { A: 'two', REF: 'x-$(A)', EARLY: '$(LATE)', LATE: 'p', AFTER: 'n=p a=one', ESC: '$(A) $(NOPE) $A', LASTA: 'two' });
  const pairs = Object.entries(values).map(([name, value]) => ({ name, value }));
  assert.deepEqual(expandAll(['sh', '-c', '$(LATE)', '$$(LATE)'], pairs), ['sh', '-c', 'p', '$(LATE)']);
});

test('fields of the pod and of the node', () => {
  const field = (fieldPath: string) => ({ name: fieldPath, valueFrom: { fieldRef: { fieldPath } } });
  const values = env(
    input({
      env: ['metadata.namespace', 'metadata.uid', "metadata.labels['app']", 'spec.nodeName', 'status.podIP', 'status.podIPs', 'status.hostIP'].map(field),
    }),
  );
  assert.deepEqual(Object.values(values), ['n', 'u', 'web', 'node-1', '10.0.0.1', '10.0.0.1,fd00::1', '192.0.2.1']);
});

test('resources are divided and rounded up; a limit that is not there is what the node has', () => {
  const resource = (name: string, path: string, divisor?: string) => ({
    name,
    valueFrom: { resourceFieldRef: { resource: path, ...(divisor === undefined ? {} : { divisor }) } },
  });
  const values = env(
    input({
      resources: { limits: { memory: '64Mi' }, requests: { cpu: '250m' } },
      env: [
        resource('M', 'limits.memory'),
        resource('MI', 'limits.memory', '1Mi'),
        resource('C', 'requests.cpu'),
        resource('CM', 'requests.cpu', '1m'),
        resource('N', 'limits.cpu'),
      ],
    }),
  );
  assert.deepEqual(values, { M: '67108864', MI: '64', C: '1', CM: '250', N: '4' });
});

test('what is missing is named, unless it is optional', () => {
  const ref = (optional: boolean) =>
    input({ env: [{ name: 'A', valueFrom: { configMapKeyRef: { name: 'c', key: 'k', optional } } }] }, { configMaps: { c: { metadata: {}, data: {} } } });
  assert.deepEqual(envOf(ref(false)), { ok: false, message: "couldn't find key k in ConfigMap n/c" });
  assert.deepEqual(envOf(ref(true)), { ok: true, env: [] });
  assert.deepEqual(envOf(input({ envFrom: [{ secretRef: { name: 's' } }] }, { secrets: { s: null } })), { ok: false, message: 'secret "s" not found' });
});

test("Services add their variables behind the container's own; default/kubernetes always", () => {
  const service = (namespace: string, name: string, clusterIP: string): Service => ({
    metadata: { namespace, name },
    spec: { clusterIP, ports: [{ name: 'http', port: 80, protocol: 'TCP' }] },
  });
  const services = [
    service('n', 'my-web', '10.96.0.7'),
    service('default', 'kubernetes', '10.96.0.1'),
    service('default', 'other', '10.96.0.9'),
    service('n', 'none', 'None'),
  ];
  const values = env(
    input(
      {
        env: [
          { name: 'URL', value: 'http://$(MY_WEB_SERVICE_HOST)' },
          { name: 'MY_WEB_SERVICE_PORT', value: '1' },
        ],
      },
      { services },
    ),
  );
  assert.equal(values['URL'], 'http://10.96.0.7');
  assert.equal(values['MY_WEB_SERVICE_PORT'], '1');
  assert.equal(values['MY_WEB_PORT_80_TCP'], 'tcp://10.96.0.7:80');
  assert.equal(values['MY_WEB_SERVICE_PORT_HTTP'], '80');
  assert.equal(values['KUBERNETES_SERVICE_HOST'], '10.96.0.1');
  assert.equal(values['OTHER_SERVICE_HOST'], undefined);
});

test('secrets are base64 of UTF-8', () => {
  for (const text of ['', 'a', 's3cr3t-example', 'grüße 🎈', 'x'.repeat(100)]) assert.equal(fromBase64(Buffer.from(text).toString('base64')), text);
  assert.equal(fromBase64('?'), null);
});

test('a key that every JavaScript object has is not there unless somebody put it there', () => {
  const from = (variable: object, more: Partial<EnvInput> = {}) => envOf(input({ env: [{ name: 'A', ...variable }] }, more));
  const maps = { configMaps: { c: { metadata: {}, data: { a: '1' } } }, secrets: { s: { metadata: {}, data: { a: 'MQ==' } } } };
  const key = 'constructor';
  assert.deepEqual(from({ valueFrom: { configMapKeyRef: { name: 'c', key } } }, maps), {
    ok: false,
    message: "couldn't find key constructor in ConfigMap n/c",
  });
  assert.deepEqual(from({ valueFrom: { secretKeyRef: { name: 's', key } } }, maps), { ok: false, message: "couldn't find key constructor in Secret n/s" });
  assert.deepEqual(from({ valueFrom: { fieldRef: { fieldPath: "metadata.labels['constructor']" } } }), { ok: true, env: [{ name: 'A', value: '' }] });
});

test('the largest Secret there can be does not hold the loop', () => {
  const secret = Buffer.alloc(750_000, 'secret ').toString('base64');
  // The first runs are before the compiler has seen the code. It is this thread's processor time, because machines are shared.
  const took = [1, 2, 3].map(() => {
    const began = process.threadCpuUsage();
    assert.equal(utf8Bytes(fromBase64(secret) ?? '').length, 750_000);
    const { user, system } = process.threadCpuUsage(began);
    return (user + system) / 1_000;
  });
  assert.ok(Math.min(...took) < 250, `took ${took.map(Math.round).join(', ')} ms`);
});
