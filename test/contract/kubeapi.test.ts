import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { createKubeApi } from '../../base/kubeapi/client.ts';
import { readKubeConfig } from '../../base/kubeapi/config.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { configMaps, namespaces, nodes, pods, serviceAccounts, subresource } from '../../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import { main } from '../../control/main.ts';
import type { ConfigMap, Node, Pod } from '../../proto/kube/types.ts';

/*
 * What this program relies on in an API server: run on the fake, on its own control plane, and on a real one named by
 * NODELET_TEST_KUBECONFIG.
 */
const kubeconfig = process.env['NODELET_TEST_KUBECONFIG'];
const id = realRng.suffix(6);
const namespace = `contract-${id}`;

function refused(code: number, reason: string): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(`${error.code} ${error.reason}`, `${code} ${reason}`, error.message);
    return true;
  };
}

async function until(condition: () => boolean | Promise<boolean>, what: string, ms = 30_000): Promise<void> {
  const startedMs = performance.now();
  while (!(await condition())) {
    assert.ok(performance.now() - startedMs < ms, `not within ${ms} ms: ${what}`);
    await delay(20);
  }
}

const map = (name: string, data: Record<string, string> = {}): ConfigMap => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data });

function suite(open: () => Promise<KubeApi>): void {
  let api: KubeApi;

  before(async () => {
    api = await open();
    await api.create<KubeObject>(namespaces(), { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
    try {
      await api.create<KubeObject>(serviceAccounts(namespace), { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'default', namespace } });
    } catch (error) {
      // A controller may have been faster.
      if (!(error instanceof ApiError && error.reason === 'AlreadyExists')) throw error;
    }
  });

  after(async () => {
    await api.delete(namespaces(namespace)).catch(() => {});
    await api[Symbol.asyncDispose]();
  });

  test('a new object gets uid, version and time, and its name is taken then', async () => {
    const made = await api.create<ConfigMap>(configMaps(namespace), map('made', { a: '1' }));
    assert.match(made.metadata.uid ?? '', /^[0-9a-f-]{36}$/);
    assert.match(made.metadata.creationTimestamp ?? '', /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
    assert.notEqual(made.metadata.resourceVersion ?? '', '');
    assert.deepEqual((await api.get<ConfigMap>(configMaps(namespace, 'made'))).data, { a: '1' });
    await assert.rejects(api.create(configMaps(namespace), map('made')), refused(409, 'AlreadyExists'));
    await assert.rejects(api.get(configMaps(namespace, 'absent')), refused(404, 'NotFound'));
    const generated = await api.create<ConfigMap>(configMaps(namespace), { metadata: { generateName: 'made-' } });
    assert.match(generated.metadata.name ?? '', /^made-[a-z0-9]{5}$/);
  });

  test('a write at an old version is a conflict, a write without a change is none', async () => {
    const first = await api.create<ConfigMap>(configMaps(namespace), map('race', { a: '1' }));
    const second = await api.update(configMaps(namespace, 'race'), { ...first, data: { a: '2' } });
    assert.notEqual(second.metadata.resourceVersion, first.metadata.resourceVersion);
    await assert.rejects(api.update(configMaps(namespace, 'race'), { ...first, data: { a: '3' } }), refused(409, 'Conflict'));
    const same = await api.update(configMaps(namespace, 'race'), second);
    assert.equal(same.metadata.resourceVersion, second.metadata.resourceVersion);
    await assert.rejects(
      api.patch(configMaps(namespace, 'race'), 'merge', { metadata: { resourceVersion: first.metadata.resourceVersion }, data: { a: '4' } }),
      refused(409, 'Conflict'),
    );
  });

  test('JSON, merge and strategic merge patches', async () => {
    const ref = configMaps(namespace, 'patched');
    await api.create(configMaps(namespace), map('patched', { a: '1', b: '2' }));
    assert.deepEqual((await api.patch<ConfigMap>(ref, 'merge', { data: { a: null, c: '3' } })).data, { b: '2', c: '3' });
    assert.deepEqual(
      (
        await api.patch<ConfigMap>(ref, 'json', [
          { op: 'add', path: '/data/d', value: '4' },
          { op: 'remove', path: '/data/b' },
        ])
      ).data,
      { c: '3', d: '4' },
    );
    await assert.rejects(api.patch(ref, 'json', [{ op: 'test', path: '/data/d', value: 'x' }]), refused(422, 'Invalid'));
    const finalizers = await api.patch<ConfigMap>(ref, 'strategic', { metadata: { finalizers: ['example.com/one'] } });
    assert.deepEqual(finalizers.metadata.finalizers, ['example.com/one']);
    const both = await api.patch<ConfigMap>(ref, 'strategic', { metadata: { finalizers: ['example.com/two'] } });
    assert.deepEqual(both.metadata.finalizers, ['example.com/two', 'example.com/one'], 'what the patch names comes first');
    const ordered = await api.patch<ConfigMap>(ref, 'strategic', {
      metadata: { '$setElementOrder/finalizers': ['example.com/one', 'example.com/three'], finalizers: ['example.com/three'] },
    });
    assert.deepEqual(ordered.metadata.finalizers, ['example.com/two', 'example.com/one', 'example.com/three']);
    const cleared = await api.patch<ConfigMap>(ref, 'strategic', {
      metadata: { '$deleteFromPrimitiveList/finalizers': ['example.com/one', 'example.com/two', 'example.com/three'] },
    });
    assert.deepEqual(cleared.metadata.finalizers ?? [], []);
  });

  test('finalizers hold an object until the last is gone', async () => {
    const ref = configMaps(namespace, 'held');
    await api.create(configMaps(namespace), { ...map('held'), metadata: { name: 'held', namespace, finalizers: ['example.com/hold'] } });
    await api.delete(ref);
    const held = await api.get<ConfigMap>(ref);
    assert.notEqual(held.metadata.deletionTimestamp, undefined);
    await api.patch(ref, 'merge', { metadata: { finalizers: null } });
    await assert.rejects(api.get(ref), refused(404, 'NotFound'));
  });

  test('a delete can name whom it means', async () => {
    const made = await api.create<ConfigMap>(configMaps(namespace), map('meant'));
    await assert.rejects(
      api.delete(configMaps(namespace, 'meant'), { preconditions: { uid: '00000000-0000-4000-8000-000000000000' } }),
      refused(409, 'Conflict'),
    );
    await api.delete(configMaps(namespace, 'meant'), { preconditions: { uid: made.metadata.uid ?? '' } });
    await assert.rejects(api.get(configMaps(namespace, 'meant')), refused(404, 'NotFound'));
  });

  test('spec and status have writers of their own', async () => {
    const name = `contract-${id}`;
    try {
      await api.create<Node>(nodes(), {
        apiVersion: 'v1',
        kind: 'Node',
        metadata: { name, labels: { contract: id } },
        spec: { unschedulable: true },
      });
      const viaMain = await api.patch<Node>(nodes(name), 'merge', { status: { phase: 'Running' } });
      assert.equal(viaMain.status?.phase, undefined, 'the main resource does not write status');
      const ready = {
        type: 'Ready',
        status: 'True',
        reason: 'r',
        message: 'm',
        lastHeartbeatTime: '2026-01-01T00:00:00Z',
        lastTransitionTime: '2026-01-01T00:00:00Z',
      };
      await api.patch<Node>(subresource(nodes(name), 'status'), 'strategic', { status: { conditions: [ready] } });
      const disk = { ...ready, type: 'DiskPressure', status: 'False' };
      const viaStatus = await api.patch<Node>(subresource(nodes(name), 'status'), 'strategic', {
        spec: { unschedulable: false },
        status: { conditions: [disk] },
      });
      assert.deepEqual(viaStatus.status?.conditions?.map(({ type }) => type).sort(), ['DiskPressure', 'Ready'], 'conditions are merged by type');
      assert.equal(viaStatus.spec.unschedulable, true, 'status does not write spec');
      const found = await api.list<Node>(nodes(), { labelSelector: `contract in (${id}),!absent` });
      assert.deepEqual(
        found.items.map((node) => node.metadata.name),
        [name],
      );
    } finally {
      await api.delete(nodes(name)).catch(() => {});
    }
  });

  test('a pod with a node is marked, and gone when its agent says so', async () => {
    const ref = pods(namespace, 'graceful');
    await api.create<Pod>(pods(namespace), {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'graceful', namespace },
      spec: {
        nodeName: `nowhere-${id}`,
        automountServiceAccountToken: false,
        terminationGracePeriodSeconds: 7,
        containers: [{ name: 'c', image: 'example.com/i' }],
      },
    });
    const marked = (await api.delete(ref)) as Pod;
    assert.equal(marked.metadata.deletionGracePeriodSeconds, 7);
    const shorter = (await api.delete(ref, { gracePeriodSeconds: 2 })) as Pod;
    assert.equal(shorter.metadata.deletionGracePeriodSeconds, 2);
    await api.delete(ref, { gracePeriodSeconds: 0, preconditions: { uid: marked.metadata.uid ?? '' } });
    await assert.rejects(api.get(ref), refused(404, 'NotFound'));
  });

  test('a list comes in pages', async () => {
    for (const name of ['page-1', 'page-2', 'page-3'])
      await api.create(configMaps(namespace), { ...map(name), metadata: { name, namespace, labels: { page: id } } });
    const first = await api.list<ConfigMap>(configMaps(namespace), { labelSelector: `page=${id}`, limit: 2 });
    assert.equal(first.items.length, 2);
    const second = await api.list<ConfigMap>(configMaps(namespace), { labelSelector: `page=${id}`, limit: 2, continue: first.metadata.continue ?? '' });
    assert.deepEqual(
      [...first.items, ...second.items].map((item) => `${item.kind} ${item.metadata.name}`),
      ['ConfigMap page-1', 'ConfigMap page-2', 'ConfigMap page-3'],
    );
    assert.equal(second.metadata.continue ?? '', '');
  });

  test('a copy begins whole and hears of every change that its selector means', async () => {
    const labelled = (name: string, want: string): ConfigMap => ({ ...map(name), metadata: { name, namespace, labels: { want } } });
    await api.create(configMaps(namespace), labelled('seen', id));
    await api.create(configMaps(namespace), labelled('unseen', 'no'));
    const stop = new AbortController();
    const heard: string[] = [];
    const loop = api.reflect<ConfigMap>(
      configMaps(namespace),
      { labelSelector: `want=${id}` },
      {
        replaced: (items) => void heard.push(`replaced ${items.map((item) => `${item.kind}/${item.metadata.name}`).join(',')}`),
        changed: (type, object) => void heard.push(`${type} ${object.metadata.name}`),
      },
      stop.signal,
    );
    await until(() => heard.length === 1, 'the list');
    await api.patch(configMaps(namespace, 'unseen'), 'merge', { metadata: { labels: { want: id } } });
    await api.patch(configMaps(namespace, 'seen'), 'merge', { data: { x: '1' } });
    await api.patch(configMaps(namespace, 'seen'), 'merge', { metadata: { labels: { want: 'no' } } });
    await api.delete(configMaps(namespace, 'unseen'));
    await until(() => heard.length === 5, `four changes after the list, heard ${heard.join('; ')}`);
    stop.abort();
    await loop;
    assert.deepEqual(heard, ['replaced ConfigMap/seen', 'ADDED unseen', 'MODIFIED seen', 'DELETED seen', 'DELETED unseen']);
  });
}

describe('the API server in memory', () => suite(async () => new FakeKubeApi()));

/** The control plane in this process, on a port that was free a moment ago. */
async function startControl(): Promise<KubeApi> {
  const folder = await mkdtemp(join(tmpdir(), 'kubeapi-contract-'));
  const secure = await freePort();
  const stop = new AbortController();
  const pki = join(folder, 'pki');
  const running = main({
    args: Object.entries({
      'data-dir': join(folder, 'data'),
      'pki-dir': pki,
      'bind-address': '127.0.0.1',
      'secure-port': String(secure),
      'advertise-address': '127.0.0.1',
      'service-cluster-ip-range': '10.96.0.0/16',
      'cluster-cidr': '10.244.0.0/16',
    }).flatMap(([name, value]) => [`--${name}`, value]),
    env: {},
    pid: process.pid,
    stdout: () => {},
    stderr: () => {},
    signal: stop.signal,
    isTerminal: false,
  });
  const config = join(pki, 'admin.kubeconfig');
  let code: number | undefined;
  void running.then((ended) => (code = ended));
  await until(() => existsSync(config) || code !== undefined, 'the control plane makes its keys');
  const api = createKubeApi({ config: await readKubeConfig(config), log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-contract-test' });
  await until(
    () =>
      api.raw('GET', '/readyz').then(
        ({ status }) => status === 200,
        () => code !== undefined,
      ),
    'the control plane is ready',
  );
  const close = api[Symbol.asyncDispose].bind(api);
  api[Symbol.asyncDispose] = async () => {
    await close();
    stop.abort();
    await running;
    await rm(folder, { recursive: true });
  };
  return api;
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

describe('the control plane of this program', () => suite(startControl));

const skip = kubeconfig === undefined ? 'no API server: set NODELET_TEST_KUBECONFIG to a kubeconfig with all rights' : false;
if (skip !== false) console.log(`skipped: the API server of a kubeconfig: ${skip}`);
describe('the API server of a kubeconfig', { skip }, () =>
  suite(async () =>
    createKubeApi({ config: await readKubeConfig(kubeconfig ?? ''), log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-contract-test' }),
  ),
);
