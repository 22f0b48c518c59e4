import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { firstProcess } from '../../../node/io/running.ts';
import { redisConfig, shop, web } from '../../walkthrough/manifests.ts';
import type { AuditEvent } from './audit.ts';
import type { Lab } from './lab.ts';
import { many } from './manifests.ts';
import { podsOf, readyPods, type PodSeen } from './objects.ts';
import { lifeStep } from './life.ts';
import { seconds, type Step } from './step.ts';

interface KeyValue {
  readonly key: string;
  readonly value?: string;
  readonly version: string;
  readonly mod_revision: string;
}

const bytes = (text: string): string => Buffer.from(text).toString('base64');

async function valueOf(lab: Lab, key: string): Promise<{ row: KeyValue; value: Buffer }> {
  const { kvs } = await lab.etcd<{ kvs?: KeyValue[] }>('kv/range', { key: bytes(key) });
  const row = kvs?.[0];
  assert.ok(row, `${key} is in etcd`);
  return { row, value: Buffer.from(row.value ?? '', 'base64') };
}

/** How many lines of `strings`, which are runs of four and more printable characters, hold a word. */
function linesWith(value: Buffer, word: string): number {
  return (value.toString('latin1').match(/[\t -~]{4,}/g) ?? []).filter((line) => line.includes(word)).length;
}

const settled = async (lab: Lab, namespace: string): Promise<void> => {
  await lab.k(['-n', namespace, 'rollout', 'status', 'deploy/web', '--timeout=110s']);
  // The Deployment's last status comes right behind.
  let last = '';
  await lab.eventually('the Deployment at rest', 60_000, async () => {
    const version = await lab.k(['-n', namespace, 'get', 'deploy', 'web', '-o', 'jsonpath={.metadata.resourceVersion}']);
    const isSame = version === last;
    last = version;
    return isSame ? true : null;
  });
};

/** A level's number of seats by the names of metrics. */
function metric(text: string, name: string, label: string): Record<string, number> {
  const found: Record<string, number> = {};
  for (const line of text.split('\n')) {
    if (!line.startsWith(`${name}{`)) continue;
    const key = new RegExp(`${label}="([^"]*)"`).exec(line)?.[1];
    if (key !== undefined) found[key] = (found[key] ?? 0) + Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return found;
}

export const controlPlane: readonly Step[] = [
  {
    id: '4.1',
    what: 'the keys of M1',
    async run(lab) {
      await lab.k(['apply', '-f', '-'], web);
      await settled(lab, 'default');
      const { kvs = [] } = await lab.etcd<{ kvs?: KeyValue[] }>('kv/range', { key: bytes('/registry/'), range_end: bytes('/registry0'), keys_only: true });
      const keys = kvs
        .map(({ key }) => Buffer.from(key, 'base64').toString())
        .filter((key) => key.includes('web') && !key.includes('events'))
        .map((key) => key.replace(/\/web-[a-z0-9]+-[a-z0-9]{5}$/, '/web-<hash>-<5>').replace(/^(.*endpointslices.*)-[a-z0-9]{5}$/, '$1-<5>'))
        .map((key) => key.replace(/(replicasets\/default\/web)-[a-z0-9]+$/, '$1-<hash>'))
        .sort();
      assert.equal(keys.length, 8, keys.join('\n'));
      return { exact: { keys } };
    },
  },
  {
    id: '4.2',
    what: 'a revision is a resourceVersion',
    async run(lab) {
      const { row } = await valueOf(lab, '/registry/deployments/default/web');
      const version = await lab.k(['get', 'deploy', 'web', '-o', 'jsonpath={.metadata.resourceVersion}']);
      assert.equal(row.mod_revision, version);
      assert.ok(Number(row.version) >= 4, `more than one write: ${row.version}`);
      return { exact: { modRevision: 'resourceVersion' }, seen: { version: Number(row.version) } };
    },
  },
  {
    id: '4.3',
    what: 'protobuf in etcd, and its quota',
    async run(lab) {
      await lab.kubectl(['create', 'namespace', 'shop']);
      await lab.k(['apply', '-f', '-'], shop());
      await settled(lab, 'shop');
      const deployment = await valueOf(lab, '/registry/deployments/shop/web');
      const pod = (await podsOf(lab, 'shop', 'app=web'))[0]?.metadata.name ?? '';
      const stored = await valueOf(lab, `/registry/pods/shop/${pod}`);
      const json = await lab.k(['get', '--raw', `/api/v1/namespaces/shop/pods/${pod}`]);
      for (const { value } of [deployment, stored]) assert.equal(value.subarray(0, 4).toString('latin1'), 'k8s\0');
      assert.ok(stored.value.length < json.length * 0.7, `${stored.value.length} of ${json.length}`);
      const status = await lab.etcd<{ dbSizeQuota?: string }>('maintenance/status', {});
      assert.equal(status.dbSizeQuota, '2147483648');
      return {
        exact: { magic: 'k8s\\0', dbSizeQuota: status.dbSizeQuota },
        seen: { deploymentBytes: deployment.value.length, podBytes: stored.value.length, podJsonBytes: json.length },
      };
    },
  },
  {
    id: '4.4',
    what: 'a Secret lies in etcd as it was written, twice',
    async run(lab) {
      await lab.k(['apply', '-f', '-'], redisConfig);
      const { value } = await valueOf(lab, '/registry/secrets/shop/redis-auth');
      const lines = linesWith(value, 's3cr3t-example');
      assert.equal(lines, 2);
      return { exact: { lines } };
    },
  },
  {
    id: '4.5',
    what: 'priority levels, and those of kubelets',
    async run(lab) {
      const { items } = await lab.get<{
        items: { metadata: { name: string }; spec: { limited?: { nominalConcurrencyShares?: number } } }[];
      }>(['prioritylevelconfigurations']);
      const shares = Object.fromEntries(items.map(({ metadata, spec }) => [metadata.name, spec.limited?.nominalConcurrencyShares ?? 'exempt']));
      const metrics = await lab.k(['get', '--raw', '/metrics']);
      const seats = metric(metrics, 'apiserver_flowcontrol_nominal_limit_seats', 'priority_level');
      assert.deepEqual(shares, {
        'catch-all': 5,
        exempt: 'exempt',
        'global-default': 20,
        'leader-election': 10,
        'node-high': 40,
        system: 30,
        'workload-high': 40,
        'workload-low': 100,
      });
      assert.deepEqual(seats, {
        'catch-all': 13,
        exempt: 0,
        'global-default': 49,
        'leader-election': 25,
        'node-high': 98,
        system: 74,
        'workload-high': 98,
        'workload-low': 245,
      });
      const schemas = metric(metrics, 'apiserver_flowcontrol_dispatched_requests_total', 'flow_schema');
      const [high = 0, nodes = 0] = [schemas['system-node-high'], schemas['system-nodes']];
      assert.ok(high > 0 && nodes > 0, `system-node-high ${high}, system-nodes ${nodes}`);
      return { exact: { shares, seats, kubelets: ['node-high', 'system'] }, seen: { nodeHigh: high, system: nodes } };
    },
  },
  {
    id: '4.6',
    what: 'the scheduler holds its Lease, renewed every 2 s',
    async run(lab) {
      await electLeader(lab);
      const holder = await lab.eventually('a holder', 60_000, async () => {
        const answer = await lab.kubectl(['-n', 'kube-system', 'get', 'lease', 'kube-scheduler', '-o', 'jsonpath={.spec.holderIdentity}']);
        return answer.code === 0 && answer.out !== '' ? answer.out : null;
      });
      const sinceMs = Date.now();
      await lab.pause(31_000);
      const renewals = (await lab.audit(sinceMs)).filter(
        (event) => event.resource === 'leases' && event.name === 'kube-scheduler' && event.user === 'system:kube-scheduler' && event.verb === 'update',
      );
      const gaps = renewals.slice(1).map((event, at) => event.atMs - (renewals[at]?.atMs ?? 0));
      const middle = gaps.toSorted((a, b) => a - b)[Math.floor(gaps.length / 2)] ?? 0;
      assert.ok(middle > 1_800 && middle < 2_600, `a renewal each ${middle} ms`);
      assert.match(holder, /_[0-9a-f-]{36}$/);
      return { exact: { holder: '<host>_<uuid>' }, seen: { renewals: renewals.length, everySeconds: seconds(middle) } };
    },
  },
  lifeStep,
  {
    id: '4.8',
    what: 'the names that templates give',
    async run(lab) {
      const hashOf = async (namespace: string): Promise<string> => {
        await settled(lab, namespace);
        const { items } = await lab.get<{ items: { metadata: { name: string }; spec: { replicas: number } }[] }>(['-n', namespace, 'replicasets']);
        return items.find(({ metadata, spec }) => spec.replicas === 3 && metadata.name.startsWith('web-'))?.metadata.name ?? '';
      };
      const names: Record<string, string> = { 'M1 nginx:1.29': await hashOf('default') };
      await lab.k(['set', 'image', 'deploy/web', 'nginx=nginx:1.30']);
      names['M1 nginx:1.30'] = await hashOf('default');
      await lab.k(['rollout', 'undo', 'deploy/web']);
      assert.equal(await hashOf('default'), names['M1 nginx:1.29'], 'the old name comes back');
      names['M2 nginx:1.30-alpine'] = await hashOf('shop');
      await lab.k(['-n', 'shop', 'set', 'image', 'deploy/web', 'nginx=nginx:1.31-alpine']);
      names['M2 nginx:1.31-alpine'] = await hashOf('shop');
      for (const name of Object.values(names)) assert.match(name, /^web-[a-z0-9]{8,10}$/);
      assert.equal(new Set(Object.values(names)).size, 4);
      await lab.k(['delete', 'deploy/web', 'service/web']);
      await lab.k(['-n', 'shop', 'delete', 'deploy/web']);
      return { exact: { names } };
    },
  },
  { id: '4.9', what: 'the API server restarts while 20 pods run', run: (lab) => restarted(lab) },
];

/** The scheduler as kubeadm starts it; clusters here have one, which need not be elected. */
async function electLeader(lab: Lab): Promise<void> {
  const file = `${lab.plan.hub.dir}/init.spec`;
  const text = await readFile(file, 'utf8');
  const first = await firstProcess(lab.plan.hub.dir);
  assert.ok(first, 'the hub runs');
  const stanzas = text
    .split('\n\n')
    .map((stanza) => (/^service kube-scheduler$/m.test(stanza) ? stanza.replace('argv --leader-elect=false', 'argv --leader-elect=true') : stanza));
  await writeFile(file, stanzas.join('\n\n'), { mode: 0o600 });
  process.kill(first.pid, 'SIGHUP');
  // What has changed on its list starts as written only the next time.
  await lab.pause(1_000);
  const { pid } = await lab.hubService('kube-scheduler');
  assert.ok(pid !== null, 'the scheduler runs');
  process.kill(pid, 'SIGTERM');
}

/** What of a pod must not move by a restart of the API server. */
const stateOf = (pods: readonly PodSeen[]): string[] =>
  pods
    .map(({ metadata, status }) =>
      [metadata.uid, status.podIP, status.phase, ...(status.containerStatuses ?? []).map((one) => `${one.containerID} ${one.restartCount}`)].join(' '),
    )
    .sort();

async function restarted(lab: Lab): Promise<{ exact: Record<string, unknown>; seen: Record<string, unknown> }> {
  await lab.k(['apply', '-f', '-'], many);
  const before = await readyPods(lab, 'default', 'app=many', 20);
  // What is written about their start has been written.
  await lab.pause(5_000);
  const { pid } = await lab.hubService('kube-apiserver');
  assert.ok(pid !== null, 'the API server runs');
  const offMs = Date.now();
  process.kill(pid, 'SIGTERM');
  await lab.eventually('another API server', 120_000, async () => {
    const now = (await lab.hubService('kube-apiserver')).pid;
    return now !== null && now !== pid && (await lab.kubectl(['get', '--raw', '/readyz'])).code === 0 ? true : null;
  });
  const upMs = Date.now();
  const watches = (events: readonly AuditEvent[], node: string): AuditEvent[] =>
    events.filter((event) => event.user === `system:node:${node}` && event.verb === 'watch' && event.stage === 'ResponseStarted' && event.code === 200);
  const wanted = ['nodes', 'pods', 'services', 'runtimeclasses', 'csidrivers'];
  const events = await lab.eventually(
    'every watch is back',
    180_000,
    async () => {
      const all = await lab.audit(offMs);
      const isBack = lab.workers.every(({ name }) =>
        ['pods', 'services', 'nodes'].every((kind) => watches(all, name).some(({ resource }) => resource === kind)),
      );
      return isBack ? all : null;
    },
    2_000,
  );
  const after = await podsOf(lab, 'default', 'app=many');
  assert.deepEqual(stateOf(after), stateOf(before), 'no pod changes');
  const names = new Set(before.map(({ metadata }) => metadata.name));
  const writes = events.filter(
    (event) => names.has(event.name) && ['create', 'update', 'patch', 'delete'].includes(event.verb) && event.atMs > upMs && event.code < 400,
  );
  await lab.k(['rollout', 'restart', 'deploy/many']);
  await lab.k(['rollout', 'status', 'deploy/many', '--timeout=110s']);
  const lists = (node: string): string[] =>
    events.filter((event) => event.user === `system:node:${node}` && event.verb === 'list').map(({ resource, code }) => `${resource} ${code}`);
  const seen: Record<string, unknown> = { offSeconds: seconds(upMs - offMs), podWrites: writes.length };
  for (const { name } of lab.workers) {
    seen[`${name} watches`] = [...new Set(watches(events, name).map(({ resource }) => resource))].filter((kind) => wanted.includes(kind)).sort();
    seen[`${name} lists`] = lists(name).sort();
  }
  await lab.k(['delete', 'deploy/many', '--wait=false']);
  return { exact: { pods: 'unchanged', watches: 'back', later: 'a rollout goes through' }, seen };
}
