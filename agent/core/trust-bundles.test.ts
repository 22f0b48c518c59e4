import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ClusterTrustBundle, ClusterTrustBundleProjection } from '../../proto/kube/types.ts';
import { pemBlock, pemBodies } from './pem.ts';
import { trustAnchors } from './trust-bundles.ts';

function bundle(name: string, signerName: string | undefined, labels: Record<string, string>, ...bodies: string[]): ClusterTrustBundle {
  const trustBundle = bodies.map((body) => pemBlock('CERTIFICATE', body)).join('');
  return { metadata: { name, labels }, spec: { trustBundle, ...(signerName === undefined ? {} : { signerName }) } };
}

const bundles = [
  bundle('plain', undefined, { live: 'yes' }, 'AAAA'),
  bundle('s:one', 'a/s', { live: 'yes', tier: 'x' }, 'BBBB', 'CCCC'),
  bundle('s:two', 'a/s', { live: 'no' }, 'CCCC', 'DDDD'),
  bundle('t:one', 'a/t', { live: 'yes' }, 'EEEE'),
];

test('the anchors of a name, or of a signer and labels, each once', () => {
  const cases: [string, Omit<ClusterTrustBundleProjection, 'path'>, string[] | string][] = [
    ['name', { name: 'plain' }, ['AAAA']],
    ['labels', { signerName: 'a/s', labelSelector: { matchLabels: { live: 'yes' } } }, ['BBBB', 'CCCC']],
    ['all of a signer', { signerName: 'a/s', labelSelector: {} }, ['BBBB', 'CCCC', 'DDDD']],
    ['expressions', { signerName: 'a/s', labelSelector: { matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] } }, ['CCCC', 'DDDD']],
    ['no selector is none', { signerName: 'a/s' }, 'combination of signerName and labelSelector matched zero ClusterTrustBundles'],
    ['none, optional', { signerName: 'a/u', labelSelector: {}, optional: true }, []],
    ['no such name', { name: 'gone' }, 'while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "gone" not found'],
    ['no such name, optional', { name: 'gone', optional: true }, []],
    ['neither', { optional: true }, 'ClusterTrustBundle projection requires either name or signerName to be set'],
  ];
  for (const [name, ask, expected] of cases) {
    const anchors = trustAnchors({ path: 'f', ...ask }, { bundles, orderSeed: 1 });
    assert.deepEqual(anchors.ok ? pemBodies(anchors.text).toSorted() : anchors.message, expected, name);
  }
});

test('the order stays within a process and differs between them', () => {
  const ask = { path: 'f', signerName: 'a/s', labelSelector: {} };
  const orders = Array.from({ length: 40 }, (_, orderSeed) => {
    const [left, right] = [bundles, bundles.toReversed()].map((order) => trustAnchors(ask, { bundles: order, orderSeed }));
    assert.deepEqual(left, right);
    return left?.ok === true ? left.text : '';
  });
  assert.ok(new Set(orders).size > 1);
});

test('PEM is read past headers, chatter and line ends, and written in lines of 64', () => {
  const long = 'Q'.repeat(100);
  assert.equal(pemBlock('X', long), `-----BEGIN X-----\n${'Q'.repeat(64)}\n${'Q'.repeat(36)}\n-----END X-----\n`);
  assert.deepEqual(pemBodies(`before\n${pemBlock('X', long)}between\n-----BEGIN Y-----\r\nProc-Type: 4\r\n\r\nQUFB\r\n-----END Y-----\r\nafter`), [
    long,
    'QUFB',
  ]);
  assert.deepEqual(pemBodies('-----BEGIN X-----\nQU!B\n-----END X-----\n-----BEGIN X-----\nQUFB\n-----END Y-----\n'), []);
});
