import assert from 'node:assert/strict';
import { generateKeyPairSync } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { User } from '../core/authorize.ts';
import { isProxyable } from '../core/proxyable.ts';
import { Failure } from '../core/failure.ts';
import { parseRequest } from '../core/request.ts';
import type { Obj } from '../core/json.ts';
import { createApi } from './api.ts';
import { bootstrap } from './bootstrap.ts';
import { createKernel } from './kernel.ts';
import type { Answer, Kernel } from './kernel.ts';
import { refusalOf } from './kubelet.ts';
import { createPlainPaths } from './plain-paths.ts';
import { openStore } from './store.ts';
import { createTokens } from './tokens.ts';

const ADMIN: User = { name: 'admin', groups: ['system:masters'] };
const nodeUser = (name: string): User => ({ name: `system:node:${name}`, groups: ['system:nodes', 'system:authenticated'] });

interface Server extends Disposable {
  kernel: Kernel;
  /** The object or the list's items; a refusal as its code and message. */
  ask(user: User, method: string, path: string, body?: unknown, contentType?: string): Promise<Obj>;
}

/** `TYPE name` of each line of a watch, growing as lines come. */
function linesOf(answer: Extract<Answer, { kind: 'watch' }>): string[] {
  const lines: string[] = [];
  answer.start({
    write(line) {
      const { type, object } = JSON.parse(line.toString()) as { type: string; object: Obj };
      lines.push(`${type} ${object['metadata'].name}`);
      return true;
    },
    end() {},
  });
  return lines;
}

async function server(): Promise<Server> {
  const clock = createFakeClock();
  const store = openStore({ path: ':memory:', clock, fatal: (error) => assert.fail(String(error)) });
  const config = {
    serviceCidr: '10.96.0.0/16',
    clusterCidr: '10.244.0.0/16',
    advertiseAddress: '192.0.2.1',
    securePort: 6443,
    kubeletPort: 10250,
    dnsAddress: '192.0.2.1',
    dnsPort: 53,
    dnsUpstreams: [],
    clusterDomain: 'cluster.local',
  };
  const kernel = createKernel({ store, clock, rng: seededRng(1), log: silentLog, config });
  await bootstrap(kernel);
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const tokens = createTokens(kernel, privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
  const api = createApi(
    kernel,
    tokens,
    createPlainPaths(kernel, () => '', tokens),
  );
  const ask: Server['ask'] = async (user, method, path, body, contentType = 'application/json') => {
    const url = new URL(path, 'https://localhost');
    const info = parseRequest(method, url.pathname, url.searchParams);
    const content = body === undefined ? { kind: 'none' as const } : { kind: 'object' as const, value: body };
    const call = {
      info,
      method,
      query: url.searchParams,
      user,
      body: content,
      contentType,
      accept: '',
      userAgent: 'test',
      signal: new AbortController().signal,
    };
    try {
      const answer = await api.handle(call);
      if (answer.kind === 'object') return answer.object as Obj;
      if (answer.kind === 'watch') return { lines: linesOf(answer) };
      return answer.kind === 'list' ? { items: answer.entries.map((entry) => entry.object), ...answer.metadata } : {};
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return { code: error.code, message: error.message };
    }
  };
  return { kernel, ask, [Symbol.dispose]: () => store[Symbol.dispose]() };
}

const pod = (name: string, node: string): Obj => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name },
  spec: { nodeName: node, containers: [{ name: 'c', image: 'i' }] },
});
const PODS = '/api/v1/namespaces/default/pods';
const MERGE = 'application/merge-patch+json';

async function twoNodes(): Promise<Server> {
  const made = await server();
  await made.ask(ADMIN, 'POST', '/api/v1/namespaces/default/serviceaccounts', { metadata: { name: 'default' } });
  for (const name of ['n1', 'n2']) {
    await made.ask(nodeUser(name), 'POST', '/api/v1/nodes', { metadata: { name } });
    const { message } = await made.ask(ADMIN, 'POST', PODS, pod(`on-${name}`, name));
    assert.equal(message, undefined);
  }
  return made;
}

test('a node reads itself and its own pods only', async () => {
  using at = await twoNodes();
  const n1 = nodeUser('n1');
  const refused = 'cannot list resource "pods" in API group "" at the cluster scope: node: can only list/watch pods with spec.nodeName field selector';
  assert.match((await at.ask(n1, 'GET', '/api/v1/pods'))['message'], new RegExp(refused));
  assert.equal((await at.ask(n1, 'GET', '/api/v1/pods?fieldSelector=spec.nodeName%3Dn2'))['code'], 403);
  const mine = await at.ask(n1, 'GET', '/api/v1/pods?fieldSelector=spec.nodeName%3Dn1');
  assert.deepEqual(
    mine['items'].map((item: Obj) => item['metadata'].name),
    ['on-n1'],
  );
  assert.equal((await at.ask(n1, 'GET', `${PODS}/on-n2`))['code'], 403);
  assert.equal((await at.ask(n1, 'GET', `${PODS}/on-n1`))['kind'], 'Pod');
  assert.equal((await at.ask(n1, 'GET', `${PODS}/gone`))['code'], 404);
  assert.match((await at.ask(n1, 'GET', '/api/v1/nodes'))['message'], /node: node 'n1' cannot read all nodes, only its own Node object/);
  assert.equal((await at.ask(n1, 'GET', '/api/v1/nodes/n2'))['code'], 403);
  assert.equal((await at.ask(n1, 'GET', '/api/v1/nodes/n1'))['kind'], 'Node');
});

test('a node writes nothing of other nodes, on no path', async () => {
  using at = await twoNodes();
  const n1 = nodeUser('n1');
  const status = { status: { phase: 'Failed' } };
  assert.match((await at.ask(n1, 'PATCH', '/api/v1/nodes/n2/status', status, MERGE))['message'], /node "n1" is not allowed to modify node "n2"/);
  assert.equal((await at.ask(n1, 'PATCH', `${PODS}/on-n2/status`, status, MERGE))['code'], 403);
  assert.equal((await at.ask(n1, 'DELETE', `${PODS}/on-n2`))['code'], 403);
  assert.equal((await at.ask(n1, 'POST', `${PODS}/on-n2/eviction`, {}))['code'], 403);
  assert.equal((await at.ask(n1, 'DELETE', '/api/v1/nodes/n2'))['code'], 403);
  assert.equal((await at.ask(ADMIN, 'GET', `${PODS}/on-n2`))['status'].phase, 'Pending');
  const lease = { metadata: { name: 'n2' } };
  assert.equal((await at.ask(n1, 'POST', '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases', lease))['code'], 403);
  assert.equal((await at.ask(n1, 'PATCH', `${PODS}/on-n1/status`, status, MERGE))['status'].phase, 'Failed');
  assert.equal((await at.ask(n1, 'DELETE', `${PODS}/on-n1?gracePeriodSeconds=0`))['code'], undefined);
});

test('a node does not choose what is scheduled to it', async () => {
  using at = await twoNodes();
  const n1 = nodeUser('n1');
  const change = (patch: Obj): Promise<Obj> => at.ask(n1, 'PATCH', '/api/v1/nodes/n1', patch, MERGE);
  assert.match((await change({ spec: { taints: [] } }))['message'], /node "n1" is not allowed to modify taints/);
  const label = { metadata: { labels: { 'node-restriction.kubernetes.io/tier': 'secret' } } };
  assert.match((await change(label))['message'], /is not allowed to modify labels: node-restriction.kubernetes.io\/tier/);
  assert.equal((await change({ metadata: { labels: { 'kubernetes.io/os': 'linux', mine: 'x' } } }))['code'], undefined);
});

test('a node asks for tokens of its own pods only', async () => {
  using at = await twoNodes();
  const path = '/api/v1/namespaces/default/serviceaccounts/default/token';
  const bound = async (name: string): Promise<Obj> => {
    const { uid } = (await at.ask(ADMIN, 'GET', `${PODS}/${name}`))['metadata'];
    return { spec: { boundObjectRef: { kind: 'Pod', apiVersion: 'v1', name, uid } } };
  };
  assert.match((await at.ask(nodeUser('n1'), 'POST', path, {}))['message'], /node requested token not bound to a pod/);
  assert.match((await at.ask(nodeUser('n1'), 'POST', path, await bound('on-n2')))['message'], /bound to a pod scheduled on a different node/);
  assert.equal((await at.ask(nodeUser('n1'), 'POST', path, await bound('on-n1')))['kind'], 'TokenRequest');
});

test('what a read shows is on disk, and a watch from there misses and repeats nothing', async () => {
  using at = await server();
  const { store } = at.kernel;
  const configMap = (name: string): Obj => ({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: 'default' } });
  const path = '/api/v1/namespaces/default/configmaps';
  const put = (name: string): unknown => store.put('/configmaps', 'default', name, configMap(name));
  put('first');
  // Comes after the commit that the reads wait for, and before their own turn.
  void store.committed().then(() => put('second'));
  const [list, fresh, single] = await Promise.all([
    at.ask(ADMIN, 'GET', path),
    at.ask(ADMIN, 'GET', `${path}?watch=1`),
    at.ask(ADMIN, 'GET', `${path}/second`),
  ]);
  assert.deepEqual(
    list['items'].map((item: Obj) => item['metadata'].name),
    ['first'],
  );
  const later = await at.ask(ADMIN, 'GET', `${path}?watch=1&resourceVersion=${list['resourceVersion']}`);
  await store.committed();
  assert.deepEqual(later['lines'], ['ADDED second']);
  assert.deepEqual(fresh['lines'], ['ADDED first', 'ADDED second']);
  assert.ok(single['code'] === 404 || Number(single['metadata'].resourceVersion) <= store.revision);
});

test('options that are no numbers are refused, and nothing is deleted', async () => {
  using at = await twoNodes();
  const refusals: [string, string, unknown?][] = [
    ['DELETE', `${PODS}/on-n1?gracePeriodSeconds=abc`],
    ['DELETE', `${PODS}/on-n1`, { gracePeriodSeconds: 'abc' }],
    ['DELETE', `${PODS}/on-n1`, { gracePeriodSeconds: 1.5 }],
    ['GET', `${PODS}?limit=x`],
    ['GET', `${PODS}?watch=1&timeoutSeconds=x`],
  ];
  for (const [method, path, body] of refusals) assert.equal((await at.ask(ADMIN, method, path, body))['code'], 400, `${method} ${path}`);
  assert.equal((await at.ask(ADMIN, 'GET', `${PODS}/on-n1`))['metadata'].deletionTimestamp, undefined);
});

test('what a client may not ask for through the proxy of pods and services', () => {
  for (const address of ['127.0.0.1', '0.0.0.0', '169.254.169.254', '::1', 'fe80::1', '::ffff:127.0.0.1', 'localhost', ''])
    assert.ok(!isProxyable(address), address);
  for (const address of ['10.244.1.2', '2001:db8::1']) assert.ok(isProxyable(address), address);
});

test('names of ports and types of host paths are checked', async () => {
  using at = await twoNodes();
  const service = (targetPort: unknown): Obj => ({ metadata: { generateName: 's' }, spec: { ports: [{ port: 80, targetPort }] } });
  const ask = (targetPort: unknown): Promise<Obj> => at.ask(ADMIN, 'POST', '/api/v1/namespaces/default/services', service(targetPort));
  assert.match((await ask('BAD_name_very_long_x'))['message'], /must be no more than 15 characters.*must contain only alpha-numeric/);
  assert.equal((await ask('http'))['kind'], 'Service');
  const volumes = [{ name: 'v', hostPath: { path: '/x', type: 'No' } }];
  const { message } = await at.ask(ADMIN, 'POST', PODS, { metadata: { name: 'p' }, spec: { containers: [{ name: 'c', image: 'i' }], volumes } });
  assert.match(message, /spec\.volumes\[0\]\.hostPath\.type: Unsupported value: "No": supported values: "", "BlockDevice"/);
});

test('what a kubelet says of a log it does not have is told as an answer of the API', async () => {
  const said = (statusCode: number, text: string): Promise<Failure | undefined> =>
    refusalOf(Object.assign(Readable.from([Buffer.from(text)]), { statusCode, setEncoding() {} }) as unknown as IncomingMessage);
  const why = 'previous terminated container "p" in pod "p" not found';
  const refused = (await said(400, `${why}\n`))?.toStatus();
  assert.deepEqual([refused?.['reason'], refused?.['message'], refused?.['code']], ['BadRequest', why, 400]);
  assert.equal((await said(500, 'broken'))?.reason, 'InternalError');
  assert.equal(await said(200, 'a line'), undefined);
});

test('an applied status is owned by nobody but whoever writes the status', async () => {
  using at = await twoNodes();
  const config = (): Obj => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'ssa' },
    spec: { containers: [{ name: 'c', image: 'i' }] },
    status: { phase: 'Running' },
  });
  for (const round of ['created', 'changed']) {
    const made = await at.ask(ADMIN, 'PATCH', `${PODS}/ssa?fieldManager=me&force=true`, config(), 'application/apply-patch+yaml');
    assert.equal(made['status'].phase, 'Pending', round);
    assert.ok(!JSON.stringify(made['metadata'].managedFields).includes('f:status'), round);
  }
});
