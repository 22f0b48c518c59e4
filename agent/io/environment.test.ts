import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { FakeNode, FakeSources } from '../fake.ts';
import { createEnvironment } from './environment.ts';

const signal = new AbortController().signal;

async function fromFile(volumeName: string, volumes: Pod['spec']['volumes']) {
  const read: string[] = [];
  const readBeneath = async (root: string, path: string): Promise<Uint8Array> => {
    read.push(`${root}/${path}`);
    return Buffer.from("KEY='value'\n");
  };
  const environment = createEnvironment({ sources: new FakeSources(), node: new FakeNode(), rootDir: '/kubelet', sys: { readBeneath } });
  const container: Container = { name: 'm', env: [{ name: 'A', valueFrom: { fileKeyRef: { volumeName, path: 'env', key: 'KEY' } } }] };
  const pod: Pod = { metadata: { name: 'p', namespace: 'default', uid: 'u1' }, spec: { containers: [container], volumes } };
  return { result: await environment(pod, container, [], signal), read };
}

test('a variable from a file is read in an emptyDir of the pod and nowhere else', async () => {
  const found = await fromFile('files', [{ name: 'files', emptyDir: {} }]);
  assert.deepEqual(found.read, ['/kubelet/pods/u1/volumes/kubernetes.io~empty-dir/files/env']);
  assert.ok(found.result.ok && found.result.env.some(({ name, value }) => name === 'A' && value === 'value'));
  const up = '../../../u2/volumes/kubernetes.io~secret/s';
  for (const [name, volumes] of [
    [up, [{ name: up, emptyDir: {} }]],
    ['files', []],
    ['files', [{ name: 'files', hostPath: { path: '/' } }]],
  ] as const) {
    const { result, read } = await fromFile(name, [...volumes]);
    assert.deepEqual([result.ok, read], [false, []], name);
  }
});
