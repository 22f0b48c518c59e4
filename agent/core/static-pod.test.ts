import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { mirrorOf, mirrorVerdict, staticPod } from './static-pod.ts';

const origin = { nodeName: 'Node-1', source: 'file', seen: '2026-01-01T00:00:00Z', hash: 'abc123' } as const;
const manifest = (rest: object = {}, metadata: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'web', ...metadata },
  spec: { containers: [{ name: 'main', image: 'nginx', ports: [{ containerPort: 80 }], resources: { limits: { cpu: '1' } } }], ...rest },
});

function made(document: object): Pod {
  const result = staticPod(document, origin);
  assert.ok(result.ok, result.ok ? '' : result.message);
  return result.pod;
}

test('name, namespace, UID, node and annotations are upstream’s', () => {
  const pod = made(manifest());
  assert.deepEqual(
    [pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, pod.spec.nodeName, pod.status?.phase],
    ['web-node-1', 'default', 'abc123', 'Node-1', 'Pending'],
  );
  assert.deepEqual(pod.metadata.annotations, {
    'kubernetes.io/config.hash': 'abc123',
    'kubernetes.io/config.source': 'file',
    'kubernetes.io/config.seen': '2026-01-01T00:00:00Z',
  });
  assert.deepEqual(pod.spec.tolerations, [{ operator: 'Exists', effect: 'NoExecute' }]);
  assert.equal(made(manifest({}, { uid: 'fixed-1', namespace: 'kube-system' })).metadata.uid, 'fixed-1');
});

test('what an API server would fill in is filled in', () => {
  const { spec } = made(manifest());
  assert.deepEqual([spec.restartPolicy, spec.dnsPolicy, spec.terminationGracePeriodSeconds, spec.enableServiceLinks], ['Always', 'ClusterFirst', 30, true]);
  const [container] = spec.containers;
  assert.deepEqual([container?.imagePullPolicy, container?.terminationMessagePath, container?.ports?.[0]?.protocol], ['Always', '/dev/termination-log', 'TCP']);
  assert.deepEqual(container?.resources?.requests, { cpu: '1' });
  const pull = (image: string): string | undefined => made(manifest({ containers: [{ name: 'a', image }] })).spec.containers[0]?.imagePullPolicy;
  assert.deepEqual(['a:1', 'host:5000/a', 'a:latest', `a@sha256:${'0'.repeat(64)}`].map(pull), ['IfNotPresent', 'Always', 'Always', 'IfNotPresent']);
  assert.equal(
    made(manifest({ hostNetwork: true, containers: [{ name: 'a', image: 'a:1', ports: [{ containerPort: 80 }] }] })).spec.containers[0]?.ports?.[0]?.hostPort,
    80,
  );
});

test('what would reach outside by its name, or needs an API server, is refused with a reason', () => {
  const refused: [object | string, RegExp][] = [
    ['text', /no Pod/],
    [{ ...manifest(), kind: 'Deployment' }, /no Pod/],
    [manifest({}, { name: '' }), /name is needed/],
    [manifest({}, { name: '../x' }), /metadata\.name/],
    [manifest({}, { namespace: '../../etc' }), /metadata\.namespace/],
    [manifest({}, { uid: '../../../etc' }), /metadata\.uid/],
    [manifest({}, { uid: '..' }), /metadata\.uid/],
    [manifest({ containers: [] }), /spec\.containers/],
    [manifest({ containers: [{ name: '../a', image: 'a' }] }), /spec\.containers/],
    [
      manifest({
        containers: [
          { name: 'a', image: 'a' },
          { name: 'a', image: 'b' },
        ],
      }),
      /Duplicate value: "a"/,
    ],
    [manifest({ containers: [{ name: 'a' }] }), /image: Required/],
    [manifest({ volumes: [{ name: '../v', emptyDir: {} }] }), /spec\.volumes/],
    [manifest({ serviceAccountName: 'x' }), /may not reference serviceaccounts/],
    [manifest({ volumes: [{ name: 'v', secret: { secretName: 's' } }] }), /may not reference secrets/],
    [manifest({ volumes: [{ name: 'v', projected: { sources: [{ serviceAccountToken: { path: 't' } }] } }] }), /serviceaccounts \(via projected volumes\)/],
    [manifest({ containers: [{ name: 'a', image: 'a', envFrom: [{ configMapRef: { name: 'c' } }] }] }), /may not reference configmaps/],
  ];
  for (const [document, why] of refused) {
    const result = staticPod(document, origin);
    assert.ok(!result.ok && why.test(result.message), `${JSON.stringify(document)}: ${result.ok ? 'was taken' : result.message}`);
  }
});

test('the mirror carries the hash and belongs to the node; one of another hash or being deleted is stale', () => {
  const pod = made(manifest());
  const mirror = mirrorOf(pod, { name: 'Node-1', uid: 'node-uid' });
  assert.equal(mirror.metadata.uid, undefined);
  assert.equal(mirror.metadata.annotations?.['kubernetes.io/config.mirror'], 'abc123');
  assert.deepEqual(mirror.metadata.ownerReferences, [{ apiVersion: 'v1', kind: 'Node', name: 'Node-1', uid: 'node-uid', controller: true }]);
  assert.equal(mirrorVerdict(mirror, pod), 'right');
  assert.equal(mirrorVerdict(mirror, undefined), 'stale');
  assert.equal(mirrorVerdict({ ...mirror, metadata: { ...mirror.metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } }, pod), 'stale');
  assert.equal(mirrorVerdict(mirror, made(manifest({}, { uid: 'other' }))), 'stale');
});

test('a value of another kind than the API has is refused with its field, before anything trusts it', () => {
  const container = (rest: object): object => ({ containers: [{ name: 'main', image: 'nginx', ...rest }] });
  const cases: [object, object, RegExp][] = [
    [container({ command: [1] }), {}, /^invalid pod: spec\.containers\[0\]\.command: /],
    [container({ image: 5 }), {}, /^invalid pod: spec\.containers\[0\]\.image: /],
    [container({ volumeMounts: 5 }), {}, /^invalid pod: spec\.containers\[0\]\.volumeMounts: /],
    [container({ resources: { limits: { cpu: 'abc' } } }), {}, /^invalid pod: spec\.containers\[0\]\.resources\.limits: /],
    [container({ resources: 'all' }), {}, /^invalid pod: spec\.containers\[0\]\.resources: /],
    [{ containers: ['main'] }, {}, /^invalid pod: spec\.containers: /],
    [{ overhead: { memory: 'much' } }, {}, /^invalid pod: spec\.overhead: /],
    [{}, { annotations: 'text' }, /^invalid pod: metadata\.annotations: /],
    [{}, { uid: 7 }, /^invalid pod: metadata\.uid: /],
  ];
  for (const [spec, metadata, message] of cases) {
    const result = staticPod(manifest(spec, metadata), origin);
    assert.ok(!result.ok, message.source);
    assert.match(result.message, message);
  }
});
