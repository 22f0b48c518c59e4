import assert from 'node:assert/strict';
import { before, after, test } from 'node:test';
import { eventually, type TestSet } from '../set.ts';
import { shop, web } from './manifests.ts';
import { podList, skip, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip === false) set = await world('wt-apply');
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

test('1.1 to 1.3: apply, rollout, and who wrote which Event', { skip }, async () => {
  assert.equal(await set.k(['apply', '-f', '-'], web), 'deployment.apps/web created\nservice/web created');
  const rollout = await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
  assert.equal(rollout.split('\n').at(-1), 'deployment "web" successfully rolled out');
  for (const line of rollout.split('\n').slice(0, -1))
    assert.match(
      line,
      /^Waiting for deployment "web" rollout to finish: [012] (of 3 updated replicas are available|out of 3 new replicas have been updated)\.\.\.$/,
    );

  const text = await set.k([
    'get',
    'events',
    '--sort-by=.metadata.resourceVersion',
    '--field-selector',
    'involvedObject.kind!=Node',
    '-o',
    'custom-columns=FROM:.source.component,REASON:.reason,OBJECT:.involvedObject.name,MESSAGE:.message',
  ]);
  const rows = text
    .split('\n')
    .slice(1)
    .map((line) => /^(\S+)\s+(\S+)\s+(\S+)\s+(.*)$/.exec(line)?.slice(1) ?? [])
    .filter((row) => row[1] !== 'FailedToCreateEndpoint')
    .map(([from = '', reason = '', object = '', message = '']) => ({ from, reason, object, message }));
  assert.equal(rows.length, 19, text);
  const hash = /web-([a-z0-9]+)/.exec(rows.find((row) => row.reason === 'ScalingReplicaSet')?.message ?? '')?.[1] ?? '';
  const of = (reason: string) => rows.filter((row) => row.reason === reason);
  assert.deepEqual(of('ScalingReplicaSet'), [
    { from: 'deployment-controller', reason: 'ScalingReplicaSet', object: 'web', message: `Scaled up replica set web-${hash} from 0 to 3` },
  ]);
  const pods = (await podList(set, 'default', 'app=web')).map((pod) => pod.metadata.name).sort();
  assert.deepEqual(
    of('SuccessfulCreate')
      .map((row) => `${row.from} ${row.object} ${row.message}`)
      .sort(),
    pods.map((pod) => `replicaset-controller web-${hash} Created pod: ${pod}`),
  );
  for (const pod of pods) {
    const own = rows.filter((row) => row.object === pod);
    assert.deepEqual(
      own.map((row) => row.reason),
      ['Scheduled', 'Pulling', 'Pulled', 'Created', 'Started'],
    );
    assert.equal(own[0]?.from, 'default-scheduler');
    assert.match(own[0]?.message ?? '', new RegExp(`^Successfully assigned default/${pod} to node-1$`));
    assert.ok(own.slice(1).every((row) => row.from === 'kubelet'));
    assert.equal(own[1]?.message, 'Pulling image "nginx:1.29"');
    assert.match(
      own[2]?.message ?? '',
      /^Successfully pulled image "nginx:1\.29" in \S+ \(\S+ including waiting\)\. Image size: \d+ bytes\.$|^Container image "nginx:1\.29" already present on machine/,
    );
    assert.equal(own[3]?.message, 'Container created');
    assert.equal(own[4]?.message, 'Container started');
  }
});

test('1.5: kubectl apply is five requests, one of them a write', { skip }, async () => {
  await set.k(['create', 'namespace', 'shop']);
  const answer = await set.kubectl(['apply', '-f', '-', '-v=6'], { input: shop() });
  assert.equal(answer.code, 0, answer.err);
  const requests = answer.err
    .split('\n')
    .map((line) => /(?:verb="?(\w+)"? url="?https:\/\/[^/]+(\/[^\s"]*)"? status="?(\d+)|(GET|POST|PATCH|PUT) https:\/\/[^/]+(\/\S*) (\d+))/.exec(line))
    .filter((match) => match !== null)
    .map(
      (match) =>
        `${match[1] ?? match[4]} ${(match[2] ?? match[5] ?? '').replaceAll(/(?<=[?&])(hash=[0-9A-F]+|timeout=\d+s)(&|$)/g, '').replace(/[?&]$/, '')} ${match[3] ?? match[6]}`,
    )
    .filter((line) => !/ \/(api|apis)(\?\S*)? /.test(line));
  assert.deepEqual(requests, [
    'GET /openapi/v3 200',
    'GET /openapi/v3/apis/apps/v1 200',
    'GET /apis/apps/v1/namespaces/shop/deployments/web 404',
    'GET /api/v1/namespaces/shop 200',
    'POST /apis/apps/v1/namespaces/shop/deployments?fieldManager=kubectl-client-side-apply&fieldValidation=Strict 201',
  ]);
});

test('1.6: owners and the template hash', { skip }, async () => {
  const owners = async (): Promise<string[][]> =>
    (await set.k(['get', 'deploy,rs,pods', '-o', 'custom-columns=KIND:.kind,NAME:.metadata.name,OWNER:.metadata.ownerReferences[0].name', '--no-headers']))
      .split('\n')
      .map((line) => line.split(/\s+/));
  const rows = await owners();
  assert.deepEqual(rows[0], ['Deployment', 'web', '<none>']);
  const replicaSet = rows.find((row) => row[0] === 'ReplicaSet') ?? [];
  assert.equal(replicaSet[2], 'web');
  const hash = (replicaSet[1] ?? '').slice('web-'.length);
  const pods = rows.filter((row) => row[0] === 'Pod');
  assert.equal(pods.length, 3);
  for (const row of pods) {
    assert.match(row[1] ?? '', new RegExp(`^web-${hash}-[a-z0-9]{5}$`));
    assert.equal(row[2], `web-${hash}`);
  }
  assert.deepEqual(new Set((await podList(set, 'default', 'app=web')).map((pod) => pod.metadata.labels?.['pod-template-hash'])), new Set([hash]));
  await set.k(['delete', '-f', '-'], web);
  await eventually('the pods are gone', 40_000, async () => ((await podList(set, 'default')).length === 0 ? true : null));
  await set.k(['apply', '-f', '-'], web);
  const again = await eventually('the ReplicaSet', 10_000, async () => (await owners()).find((row) => row[0] === 'ReplicaSet') ?? null);
  assert.equal(again[1], `web-${hash}`);
});

test('1.7: kinds, namespaces, and what a new namespace has', { skip }, async () => {
  const kinds = await set.k(['api-resources']);
  for (const pattern of [/^pods\s+po\s+v1\s+true\s+Pod$/m, /^deployments\s+deploy\s+apps\/v1\s+true\s+Deployment$/m, /^nodes\s+no\s+v1\s+false\s+Node$/m])
    assert.match(kinds, pattern);
  const namespaces = (await set.k(['get', 'ns', '-o', 'name'])).split('\n').map((line) => line.replace('namespace/', ''));
  assert.deepEqual(
    namespaces.filter((name) => name !== 'shop'),
    ['default', 'kube-node-lease', 'kube-public', 'kube-system'],
  );
  await set.k(['create', 'namespace', 'fresh']);
  await eventually('ServiceAccount and root CA', 5_000, async () => {
    await set.k(['-n', 'fresh', 'get', 'serviceaccount', 'default']);
    await set.k(['-n', 'fresh', 'get', 'configmap', 'kube-root-ca.crt']);
    return true;
  });
});
