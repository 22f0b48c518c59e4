import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { kubectlProblem } from '../set.ts';
import { startForTest } from './control.ts';
import type { Running } from './control.ts';

/* Stock kubectl against the embedded API server: what a person types and what must come out. No node runs here. */

const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: nginx
        image: nginx:1.29
        ports: [{containerPort: 80}]
        resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 5}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`;
const deploymentAlone = web.split('---')[0]!;

const problem = await kubectlProblem();
if (problem !== null) console.log(`skipped: kubectl against the embedded API server: ${problem}`);

describe('kubectl against the embedded API server', { skip: problem ?? false }, () => {
  let control: Running;

  before(async () => {
    control = await startForTest();
  });
  after(async () => {
    await control[Symbol.asyncDispose]();
  });

  const k = async (...args: string[]): Promise<string> => {
    const { code, out, err } = await control.kubectl(args);
    assert.equal(code, 0, `kubectl ${args.join(' ')}: ${err}`);
    return out;
  };
  const refused = async (...args: string[]): Promise<string> => {
    const { code, err } = await control.kubectl(args);
    assert.notEqual(code, 0, `kubectl ${args.join(' ')} was not refused`);
    return err;
  };
  const apply = async (text: string, ...more: string[]): Promise<string> => {
    const { code, out, err } = await control.kubectl(['apply', '-f', '-', ...more], text);
    assert.equal(code, 0, err);
    return out;
  };
  const until = async (what: string, done: () => Promise<boolean>): Promise<void> => {
    for (let left = 60; left > 0; left--) {
      if (await done()) return;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.fail(`not in time: ${what}`);
  };

  test('a fresh cluster has four namespaces, and a default account in them', async () => {
    assert.deepEqual((await k('get', 'ns', '-o', 'name')).split('\n'), [
      'namespace/default',
      'namespace/kube-node-lease',
      'namespace/kube-public',
      'namespace/kube-system',
    ]);
    await until('default account', async () => (await control.kubectl(['get', 'sa', 'default'])).code === 0);
    await until('root CA', async () => (await control.kubectl(['get', 'cm', 'kube-root-ca.crt'])).code === 0);
    assert.match(await k('api-resources'), /^deployments +deploy +apps\/v1 +true +Deployment$/m);
  });

  test('apply creates, applies again without a change, and makes pods', async () => {
    assert.equal(await apply(web), 'deployment.apps/web created\nservice/web created');
    assert.equal(await apply(web), 'deployment.apps/web unchanged\nservice/web unchanged');
    await until('three pods', async () => (await k('get', 'pods', '-l', 'app=web', '-o', 'name')).split('\n').length === 3);
    const owners = await k('get', 'deploy,rs,pods', '-l', 'app=web', '-o', 'custom-columns=KIND:.kind,OWNER:.metadata.ownerReferences[0].name', '--no-headers');
    assert.match(owners, /^ReplicaSet +web$/m);
    assert.match(await k('get', 'svc', 'web'), /web +ClusterIP +10\.96\.\d+\.\d+ +<none> +80\/TCP/);
  });

  test('apply sends five requests and one write', async () => {
    await k('create', 'namespace', 'shop');
    await control.kubectl(['api-resources']);
    const { out, err } = await control.kubectl(['-n', 'shop', 'apply', '-f', '-', '-v=6'], deploymentAlone);
    const lines = `${out}\n${err}`.split('\n').flatMap((line) => {
      const old = /\] (GET|POST|PATCH|PUT) https:\/\/[^/]+(\S+) (\d+) /.exec(line);
      const fresh = /verb="(\w+)" url="https:\/\/[^/]+([^"]+)" status="(\d+)/.exec(line);
      const found = old ?? fresh;
      return found === null ? [] : [`${found[1]} ${found[2]!.replace(/[?&]hash=[^&]*|[?&]timeout=[^&]*/g, '')} ${found[3]}`];
    });
    assert.deepEqual(lines, [
      'GET /openapi/v3 200',
      'GET /openapi/v3/apis/apps/v1 200',
      'GET /apis/apps/v1/namespaces/shop/deployments/web 404',
      'GET /api/v1/namespaces/shop 200',
      'POST /apis/apps/v1/namespaces/shop/deployments?fieldManager=kubectl-client-side-apply&fieldValidation=Strict 201',
    ]);
  });

  test('defaults stand in what was stored', async () => {
    const read = async (path: string): Promise<string> => k('get', 'deploy', 'web', '-o', `jsonpath={${path}}`);
    assert.equal(await read('.spec.strategy.rollingUpdate'), '{"maxSurge":"25%","maxUnavailable":"25%"}');
    assert.equal(await read('.spec.revisionHistoryLimit} {.spec.progressDeadlineSeconds'), '10 600');
    assert.equal(
      await read('.spec.template.spec.containers[0].imagePullPolicy} {.spec.template.spec.dnsPolicy} {.spec.template.spec.terminationGracePeriodSeconds'),
      'IfNotPresent ClusterFirst 30',
    );
    assert.equal(await read('.spec.template.spec.containers[0].readinessProbe.failureThreshold'), '3');
    const tolerations = JSON.parse(await k('get', 'pods', '-l', 'app=web', '-o', 'jsonpath={.items[0].spec.tolerations}')) as object[];
    assert.deepEqual(
      tolerations,
      ['not-ready', 'unreachable'].map((name) => ({ effect: 'NoExecute', key: `node.kubernetes.io/${name}`, operator: 'Exists', tolerationSeconds: 300 })),
    );
    assert.equal(await k('get', 'pods', '-l', 'app=web', '-o', 'jsonpath={.items[0].status.qosClass}'), 'Burstable');
  });

  test('what is turned away, in upstream’s words', async () => {
    assert.equal(
      await refused('patch', 'deploy', 'web', '-p', '{"spec":{"replicas":-1}}'),
      'The Deployment "web" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0',
    );
    assert.match(
      await refused('get', 'pods', '--as=system:serviceaccount:default:default'),
      /^Error from server \(Forbidden\): pods is forbidden: User "system:serviceaccount:default:default" cannot list resource "pods" in API group "" in the namespace "default"/,
    );
    assert.match(await refused('-n', 'nope', 'create', 'configmap', 'a'), /namespaces "nope" not found/);
    const { err } = await control.kubectl(['create', '-f', '-'], '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bad"},"dta":{}}');
    assert.match(err, /strict decoding error: unknown field "dta"/);
  });

  test('a dry run moves no version', async () => {
    const version = async (): Promise<string> => k('get', 'deploy', 'web', '-o', 'jsonpath={.metadata.generation}/{.spec.replicas}');
    const was = await version();
    assert.match(await apply(web.replace('replicas: 3', 'replicas: 5'), '--dry-run=server'), /deployment.apps\/web configured \(server dry run\)/);
    assert.equal(await version(), was);
  });

  test('a stale replace conflicts, a patch does not', async () => {
    const old = await k('get', 'deploy', 'web', '-o', 'yaml');
    await k('scale', 'deploy', 'web', '--replicas=4');
    const { err } = await control.kubectl(['replace', '-f', '-'], old);
    assert.match(
      err,
      /Operation cannot be fulfilled on deployments.apps "web": the object has been modified; please apply your changes to the latest version and try again/,
    );
    await k('patch', 'deploy', 'web', '-p', '{"spec":{"replicas":3}}');
  });

  test('server-side apply names the owner, takes by force, gives up what it leaves out', async () => {
    const map = (data: string): string => `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owned"},"data":${data}}`;
    await apply(map('{"a":"1","b":"2"}'), '--server-side', '--field-manager=one');
    const { err } = await control.kubectl(['apply', '--server-side', '--field-manager=two', '-f', '-'], map('{"a":"9"}'));
    assert.match(err, /Apply failed with 1 conflict: conflict with "one": \.data\.a/);
    await apply(map('{"a":"9"}'), '--server-side', '--field-manager=two', '--force-conflicts');
    await apply(map('{}'), '--server-side', '--field-manager=one');
    assert.equal(await k('get', 'cm', 'owned', '-o', 'jsonpath={.data}'), '{"a":"9"}');
  });

  test('a finalizer holds an object, and none can be added meanwhile', async () => {
    await k('create', 'configmap', 'note');
    await k('patch', 'cm', 'note', '-p', '{"metadata":{"finalizers":["example.com/archive-first"]}}');
    assert.match(await k('delete', 'configmap', 'note', '--wait=false'), /configmap "note" deleted/);
    assert.match(
      await k('get', 'cm', 'note', '-o', 'jsonpath={.metadata.deletionTimestamp} {.metadata.finalizers}'),
      /^\d{4}.*Z \["example.com\/archive-first"\]$/,
    );
    assert.match(
      await refused('patch', 'cm', 'note', '-p', '{"metadata":{"finalizers":["example.com/b"]}}'),
      /no new finalizers can be added if the object is being deleted/,
    );
    await k('patch', 'cm', 'note', '--type=json', '-p', '[{"op":"remove","path":"/metadata/finalizers"}]');
    assert.equal(await refused('get', 'cm', 'note'), 'Error from server (NotFound): configmaps "note" not found');
  });

  test('secrets, sizes and immutability', async () => {
    await apply('{"apiVersion":"v1","kind":"Secret","metadata":{"name":"redis-auth"},"stringData":{"password":"s3cr3t-example"}}');
    assert.equal(await k('get', 'secret', 'redis-auth', '-o', 'jsonpath={.data.password}'), 'czNjcjN0LWV4YW1wbGU=');
    const big = await control.kubectl(
      ['create', '-f', '-'],
      JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'big' }, data: { a: 'a'.repeat(1_100_000) } }),
    );
    assert.match(big.err, /may not be more than 1048576 bytes/);
    await apply('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fixed"},"immutable":true,"data":{"a":"1"}}');
    assert.match(await refused('patch', 'cm', 'fixed', '-p', '{"data":{"a":"2"}}'), /field is immutable when `immutable` is set/);
  });

  test('roles are obeyed', async () => {
    await k('create', 'namespace', 'dev');
    await k('create', 'serviceaccount', 'ci-bot', '-n', 'dev');
    await k('create', 'role', 'r', '-n', 'dev', '--verb=get,list,watch', '--resource=pods,pods/log');
    await k('create', 'rolebinding', 'b', '-n', 'dev', '--role=r', '--serviceaccount=dev:ci-bot');
    assert.equal(await k('auth', 'can-i', 'list', 'pods', '-n', 'dev', '--as=system:serviceaccount:dev:ci-bot'), 'yes');
    const no = await control.kubectl(['auth', 'can-i', 'delete', 'secrets', '-n', 'dev', '--as=system:serviceaccount:dev:ci-bot']);
    assert.deepEqual([no.out, no.code], ['no', 1]);
    const token = await k('create', 'token', 'ci-bot', '-n', 'dev');
    const who = await control.kubectl([
      '--token',
      token,
      '--kubeconfig',
      '/dev/null',
      '--server',
      control.server,
      '--insecure-skip-tls-verify',
      'auth',
      'whoami',
      '-o',
      'jsonpath={.status.userInfo.username}',
    ]);
    assert.equal(who.out, 'system:serviceaccount:dev:ci-bot', who.err);
  });

  test('an old version is answered with 410 in the stream', async () => {
    const { out } = await control.kubectl(['get', '--raw', '/api/v1/namespaces/default/pods?watch=1&resourceVersion=1', '--request-timeout=5s']);
    const event = JSON.parse(out) as { type: string; object: { code: number; reason: string; message: string } };
    assert.equal(`${event.type} ${event.object.code} ${event.object.reason}`, 'ERROR 410 Expired');
    assert.match(event.object.message, /^too old resource version: 1 \(\d+\)$/);
  });

  test('explain, describe and events find what they need', async () => {
    assert.match(await k('explain', 'deployment.spec.strategy'), /FIELD: strategy <DeploymentStrategy>/);
    assert.match(await k('describe', 'deploy', 'web'), /Scaled up replica set web-/);
    assert.match(await k('get', 'events', '--field-selector', 'involvedObject.kind=ReplicaSet'), /SuccessfulCreate/);
  });

  test('deleting takes the children along, or leaves them', async () => {
    const before = await k('get', 'pods', '-l', 'app=web', '-o', 'jsonpath={.items[*].metadata.uid}');
    await k('delete', 'rs', '-l', 'app=web', '--cascade=orphan');
    await until(
      'the set is made anew and adopts',
      async () =>
        (await k('get', 'rs', '-l', 'app=web', '-o', 'jsonpath={.items[*].metadata.uid}')) !== '' &&
        (await k('get', 'pods', '-l', 'app=web', '-o', 'jsonpath={.items[*].metadata.ownerReferences[0].uid}')).split(' ').length === 3,
    );
    assert.equal(await k('get', 'pods', '-l', 'app=web', '-o', 'jsonpath={.items[*].metadata.uid}'), before);
    await k('delete', 'deploy', 'web');
    await until('pods are gone', async () => (await k('get', 'pods,rs', '-l', 'app=web', '-o', 'name')) === '');
  });
});
