import assert from 'node:assert/strict';
import { test } from 'node:test';
import { builtinTypes } from './builtin.ts';
import { COREDNS_IMAGE, coreDnsObjects } from './coredns.ts';
import { kubeadmObjects, parseToken, tokenText } from './kubeadm.ts';
import { imagesOf, objectOf, readManifest } from './manifest.ts';
import { planSet } from './plan.ts';

const set = planSet({ name: 's', index: 0, stateHome: '/x', nodeCount: 1, controlPlane: 'real', join: 'token' });
const facts = { token: { id: 'abcdef', secret: '0123456789abcdef' }, caBase64: 'Q0E=', version: 'v1.37.2', cgroupVersion: 1 } as const;

test('what every cluster has is what the API server takes', () => {
  const all = [...kubeadmObjects(set, facts), ...coreDnsObjects(set)];
  const { objects, problems } = readManifest(all, builtinTypes, 'ours');
  assert.deepEqual(problems, []);
  assert.equal(objects.length, all.length);
  assert.equal(new Set(all.map((one) => `${objectOf(one).kind} ${objectOf(one).namespace} ${objectOf(one).name}`)).size, all.length, 'no object twice');
  assert.deepEqual(imagesOf(objects), [COREDNS_IMAGE]);
});

test('a node finds the cluster by what everybody may read', () => {
  const info = kubeadmObjects(set, facts).find((one) => objectOf(one).name === 'cluster-info') as { data: { kubeconfig: string } } | undefined;
  const config = JSON.parse(info?.data.kubeconfig ?? '') as { clusters: { cluster: { server: string } }[] };
  assert.equal(config.clusters[0]?.cluster.server, 'https://10.89.0.1:6443');
});

test('tokens are read as they are written', () => {
  assert.deepEqual(parseToken(`${tokenText(facts.token)}\n`), facts.token);
  for (const text of ['', 'abcdef', 'ABCDEF.0123456789abcdef', 'abcdef.0123456789abcde']) assert.equal(parseToken(text), null, text);
});
