import assert from 'node:assert/strict';
import { test } from 'node:test';
import { unfinished } from './residents.ts';

test('a Deployment is finished when its controller has seen it and all its pods are Ready', () => {
  const of = (name: string, replicas: number | undefined, status: object | undefined) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace: 'kube-system', generation: 2 },
    spec: replicas === undefined ? {} : { replicas },
    ...(status === undefined ? {} : { status }),
  });
  assert.deepEqual(
    unfinished([
      of('ready', 2, { observedGeneration: 2, readyReplicas: 2 }),
      of('none', 0, { observedGeneration: 2 }),
      of('half', 2, { observedGeneration: 2, readyReplicas: 1 }),
      of('one-by-default', undefined, { observedGeneration: 2 }),
      of('changed', 1, { observedGeneration: 1, readyReplicas: 1 }),
      of('unseen', 1, undefined),
    ]),
    ['kube-system/half', 'kube-system/one-by-default', 'kube-system/changed', 'kube-system/unseen'],
  );
});
