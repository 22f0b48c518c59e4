import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Schema } from '../../proto/kube/schema-types.ts';
import schema from '../../proto/kube/schema.json' with { type: 'json' };
import { authorize, denial, rulesOf } from './authorize.ts';
import type { Attributes, View } from './authorize.ts';
import { fit, repeatedFields } from './decode.ts';
import { checkEscalation } from './escalate.ts';
import { planDeletion } from './deletion.ts';
import type { DeletionFacts } from './deletion.ts';
import { pullPolicyOf, qosClassOf } from './defaults-pod.ts';
import type { Obj } from './json.ts';
import { negotiate } from './media.ts';
import { canonicalQuantity } from './quantity.ts';
import { parseRequest } from './request.ts';
import { createTypes } from './schema.ts';
import { matchesLabels, parseFieldSelector, parseLabelSelector } from './selectors.ts';
import { toBase64 } from './strategies-core.ts';
import { durationText } from './table-cells.ts';

const types = createTypes(schema as unknown as Schema);

test('quantities have one spelling', () => {
  const cases: Record<string, string> = {
    '1024Mi': '1Gi',
    '0.5': '500m',
    '1000m': '1',
    '100m': '100m',
    '64Mi': '64Mi',
    '1.5Gi': '1536Mi',
    '1e3': '1e3',
    '12k': '12k',
    '0': '0',
    '1000': '1k',
    '1Gi': '1Gi',
  };
  for (const [text, want] of Object.entries(cases)) assert.equal(canonicalQuantity(text), want, text);
  for (const text of ['', 'x', '1x', '1.2.3', 'Mi']) assert.equal(canonicalQuantity(text), undefined, text);
});

test('label selectors', () => {
  const match = (selector: string, labels: Record<string, string>): boolean => matchesLabels(parseLabelSelector(selector), labels);
  assert.ok(match('a=b,c in (d, e),!f,g', { a: 'b', c: 'e', g: '' }));
  assert.ok(match('a!=b', {}));
  assert.ok(match('a notin (b,c)', { a: 'd' }));
  assert.ok(!match('a', {}));
  assert.ok(match('n>3', { n: '4' }));
  for (const bad of ['a in b', 'a in (b', '=b', 'a b']) assert.throws(() => parseLabelSelector(bad), { code: 400 }, bad);
});

test('field selectors', () => {
  assert.deepEqual(parseFieldSelector('metadata.name=a\\,b,spec.nodeName!=n'), [
    { path: 'metadata.name', equal: true, value: 'a,b' },
    { path: 'spec.nodeName', equal: false, value: 'n' },
  ]);
});

test('paths and methods say what is asked for', () => {
  const query = new URLSearchParams('watch=1&fieldSelector=metadata.name%3Dx');
  const ask = (method: string, path: string, given = new URLSearchParams()) => {
    const { verb, group, resource, namespace, name, subresource } = parseRequest(method, path, given);
    return [verb, group, resource, namespace, name, subresource].join('|');
  };
  assert.equal(ask('GET', '/api/v1/namespaces/default/pods/p/log'), 'get||pods|default|p|log');
  assert.equal(ask('GET', '/apis/apps/v1/deployments'), 'list|apps|deployments|||');
  assert.equal(ask('GET', '/api/v1/namespaces/a/pods', query), 'watch||pods|a|x|');
  assert.equal(ask('DELETE', '/api/v1/namespaces/a/pods'), 'deletecollection||pods|a||');
  assert.equal(ask('PUT', '/api/v1/namespaces/a/finalize'), 'update||namespaces|a|a|finalize');
  assert.equal(parseRequest('GET', '/api/v1/nodes/n/proxy/stats/summary', new URLSearchParams()).rest, '/stats/summary');
});

test('unknown and repeated fields are found, wrong types refused', () => {
  const object: Obj = { kind: 'Deployment', metadata: {}, spec: { replcas: 3, template: { spec: { containers: [{ name: 'a', imag: 'x' }] } } } };
  const { complaints } = fit(types, types.definition('Deployment')!, object, 'v1');
  assert.deepEqual(complaints, ['unknown field "spec.replcas"', 'unknown field "spec.template.spec.containers[0].imag"']);
  assert.equal(object['spec'].replcas, undefined, 'it is not stored');
  assert.deepEqual(repeatedFields('{"a":1,"b":{"c":[{"d":1},{"d":1,"d":2}]},"a":2}'), ['duplicate field "b.c[1].d"', 'duplicate field "a"']);
  assert.throws(() => fit(types, types.definition('Deployment')!, { kind: 'Deployment', spec: { replicas: 'three' } }, 'v1'), {
    message:
      'Deployment in version "v1" cannot be handled as a Deployment: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32',
  });
});

const deletion = (object: Obj, request: DeletionFacts['request'] = {}, defaultGraceSeconds: number | undefined = 30): ReturnType<typeof planDeletion> =>
  planDeletion('Pod', { object, request, nowMs: 0, defaultGraceSeconds, time: (ms) => `t${ms / 1000}` });

test('pods with a node get their grace, others go at once', () => {
  assert.equal(deletion({ metadata: {}, spec: {} }).do, 'remove');
  assert.deepEqual(deletion({ metadata: {}, spec: { nodeName: 'n', terminationGracePeriodSeconds: 45 } }), {
    do: 'mark',
    object: { metadata: { deletionTimestamp: 't45', deletionGracePeriodSeconds: 45 }, spec: { nodeName: 'n', terminationGracePeriodSeconds: 45 } },
  });
  const marked = { metadata: { deletionTimestamp: '1970-01-01T00:00:30Z', deletionGracePeriodSeconds: 30 }, spec: { nodeName: 'n' } };
  assert.equal(deletion(marked).do, 'nothing');
  assert.equal(deletion(marked, { gracePeriodSeconds: 40 }).do, 'nothing', 'the time is never made longer');
  assert.equal(deletion(marked, { gracePeriodSeconds: 0 }).do, 'remove');
  assert.equal(deletion({ metadata: {}, spec: { nodeName: 'n' }, status: { phase: 'Succeeded' } }).do, 'remove');
});

test('propagation policies become finalizers', () => {
  const mark = (policy: string): Obj =>
    (deletion({ metadata: { finalizers: ['a/b'] } }, { propagationPolicy: policy }, undefined) as { object: Obj }).object['metadata'];
  assert.deepEqual(mark('Foreground')['finalizers'], ['a/b', 'foregroundDeletion']);
  assert.deepEqual(mark('Orphan')['finalizers'], ['a/b', 'orphan']);
  assert.equal(deletion({ metadata: {} }, { propagationPolicy: 'Background' }, undefined).do, 'remove');
  assert.throws(() => deletion({ metadata: { name: 'x', uid: 'u' } }, { preconditions: { uid: 'v' } }, undefined), { code: 409 });
});

test('who may do what, and the sentence for who may not', () => {
  const objects: Record<string, Obj[]> = {
    clusterroles: [{ metadata: { name: 'reader' }, rules: [{ apiGroups: [''], resources: ['pods', 'pods/log'], verbs: ['get', 'list'] }] }],
    rolebindings: [
      {
        metadata: { name: 'b', namespace: 'dev' },
        roleRef: { kind: 'ClusterRole', name: 'reader' },
        subjects: [{ kind: 'ServiceAccount', name: 'ci', namespace: 'dev' }],
      },
    ],
    pods: [{ metadata: { name: 'p', namespace: 'dev' }, spec: { nodeName: 'n1', volumes: [{ name: 'v', secret: { secretName: 's' } }] } }],
  };
  const view: View = {
    get: (_, resource, __, name) => objects[resource]?.find((item) => item['metadata'].name === name),
    list: (_, resource) => objects[resource] ?? [],
  };
  const ask = (name: string, groups: string[], verb: string, resource: string, namespace: string, object = ''): Attributes => ({
    user: { name, groups },
    verb,
    isResource: true,
    group: '',
    resource,
    subresource: '',
    namespace,
    name: object,
    path: '',
  });
  const ci = 'system:serviceaccount:dev:ci';
  assert.ok(authorize(view, ask(ci, [], 'list', 'pods', 'dev')).allowed);
  assert.ok(!authorize(view, ask(ci, [], 'delete', 'secrets', 'dev')).allowed);
  assert.ok(authorize(view, ask('x', ['system:masters'], 'delete', 'secrets', 'dev')).allowed);
  assert.ok(authorize(view, ask('system:node:n1', ['system:nodes'], 'get', 'secrets', 'dev', 's')).allowed);
  const refused = ask('system:node:n1', ['system:nodes'], 'get', 'secrets', 'dev', 't');
  assert.equal(authorize(view, refused).reason, "node: no relationship found between node 'n1' and this object");
  assert.equal(denial(ask('bob', [], 'list', 'nodes', ''), ''), 'User "bob" cannot list resource "nodes" in API group "" at the cluster scope');
});

test('small tables', () => {
  assert.deepEqual(
    ['nginx', 'nginx:latest', 'nginx:1', 'host:5000/nginx', 'a@sha256:0'].map((image) => pullPolicyOf(image)),
    ['Always', 'Always', 'IfNotPresent', 'Always', 'IfNotPresent'],
  );
  const qos = (resources: Obj): string => qosClassOf({ spec: { containers: [{ resources }] } });
  assert.equal(qos({}), 'BestEffort');
  assert.equal(qos({ limits: { memory: '1Gi' } }), 'Burstable');
  assert.equal(qos({ limits: { cpu: '1', memory: '1Gi' }, requests: { cpu: '1', memory: '1Gi' } }), 'Guaranteed');
  assert.equal(toBase64('s3cr3t-example'), 'czNjcjN0LWV4YW1wbGU=');
  assert.equal(toBase64('äö€😀'), Buffer.from('äö€😀').toString('base64'));
  assert.deepEqual(
    [0, 119_000, 130_000, 3_600_000, 26_000_000, 200_000_000].map((ms) => durationText(ms)),
    ['0s', '119s', '2m10s', '60m', '7h13m', '2d7h'],
  );
  assert.equal(negotiate('application/vnd.kubernetes.protobuf', false), undefined);
  assert.equal(negotiate('application/vnd.kubernetes.protobuf,application/json', false)?.form.as, 'object');
  assert.equal(negotiate('application/json;as=Table;v=v1;g=meta.k8s.io,application/json', false)?.form.as, 'table');
});

test('nobody grants what he does not have', () => {
  const rbac = 'rbac.authorization.k8s.io';
  const admin: Obj = {
    metadata: { name: 'some' },
    rules: [
      { apiGroups: [''], resources: ['pods'], verbs: ['get', 'list'] },
      { apiGroups: [rbac], resources: ['*'], verbs: ['create', 'update'] },
    ],
  };
  const objects: Record<string, Obj[]> = {
    clusterroles: [admin],
    clusterrolebindings: [{ metadata: { name: 'b' }, roleRef: { kind: 'ClusterRole', name: 'some' }, subjects: [{ kind: 'User', name: 'bob' }] }],
  };
  const view: View = {
    get: (_, resource, __, name) => objects[resource]?.find((item) => item['metadata'].name === name),
    list: (_, resource) => objects[resource] ?? [],
  };
  const info = { group: rbac, version: 'v1', resource: 'roles', singular: 'role', kind: 'Role', namespaced: true, verbs: [], definition: 'Role' };
  const bob = { name: 'bob', groups: ['system:authenticated'] };
  const role = (verbs: string[]): Obj => ({ metadata: { name: 'r', namespace: 'dev' }, rules: [{ apiGroups: [''], resources: ['pods'], verbs }] });
  checkEscalation(info, role(['get']), undefined, bob, view);
  assert.throws(() => checkEscalation(info, role(['get', 'delete']), undefined, bob, view), {
    message:
      'roles.rbac.authorization.k8s.io "r" is forbidden: user "bob" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["pods"], Verbs:["get" "delete"]}',
  });
  checkEscalation(info, role(['delete']), undefined, { ...bob, groups: ['system:masters'] }, view);
});

test('aggregated roles may select each other', () => {
  const role = (name: string, selects: string, rules: Record<string, unknown>[] = []): Record<string, unknown> => ({
    metadata: { name, labels: { in: name } },
    aggregationRule: { clusterRoleSelectors: [{ matchLabels: { in: selects } }] },
    rules,
  });
  const plain = { metadata: { name: 'c', labels: { in: 'a' } }, rules: [{ verbs: ['get'] }] };
  const a = role('a', 'b');
  const b = role('b', 'a');
  const view: View = { get: () => undefined, list: () => [a, b, plain] };
  assert.deepEqual(rulesOf(view, a), [{ verbs: ['get'] }]);
});
