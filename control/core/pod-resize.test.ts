import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from './failure.ts';
import type { Obj } from './json.ts';
import { resizedPod } from './pod-resize.ts';

const sized = (cpu: string, memory: string): Obj => ({ limits: { cpu, memory }, requests: { cpu, memory } });
const container = (name: string, resources: Obj, more: Obj = {}): Obj => ({ name, image: 'i', imagePullPolicy: 'Always', resources, ...more });
const podOf = (containers: Obj[], more: Obj = {}, qosClass = 'Guaranteed'): Obj => ({
  metadata: { name: 'p', namespace: 'n' },
  spec: { containers, restartPolicy: 'Always', dnsPolicy: 'ClusterFirst', nodeName: 'n1', ...more },
  status: { qosClass },
});
const node: Obj = { metadata: { name: 'n1' }, status: { allocatable: { cpu: '4', memory: '4Gi' } } };

function refusalOf(next: Obj, old: Obj, on: Obj | null = node): string {
  try {
    resizedPod(next, old, on ?? undefined);
    return '';
  } catch (error) {
    assert.ok(error instanceof Failure);
    return `${error.code} ${error.message}`;
  }
}

test('sizes of containers, init containers and the pod are taken over, and nothing else', () => {
  const old = podOf([container('m', sized('1', '1Gi'))], { initContainers: [container('s', sized('1', '1Gi'), { restartPolicy: 'Always' })] });
  const next = podOf([container('m', sized('2', '1Gi'))], { initContainers: [container('s', sized('1', '2Gi'), { restartPolicy: 'Always' })] });
  next['status'] = { phase: 'Failed' };
  const pod = resizedPod(next, old, node);
  assert.deepEqual(pod['spec'].containers[0].resources, sized('2', '1Gi'));
  assert.deepEqual(pod['spec'].initContainers[0].resources, sized('1', '2Gi'));
  assert.deepEqual(pod['status'], old['status']);
});

test("what may not be is refused in upstream's words", () => {
  const one = podOf([container('m', sized('1', '1Gi'))]);
  const burstable = podOf([container('m', { requests: { cpu: '1', memory: '1Gi' } })], {}, 'Burstable');
  const two = podOf([container('a', sized('1', '1Gi')), container('b', sized('1', '1Gi'))]);
  const cases: [Obj, Obj, string][] = [
    [podOf([container('m', { requests: { cpu: '1', memory: '1Gi' } })]), one, 'resource limits cannot be removed'],
    [podOf([container('m', sized('1', '1Gi'))]), burstable, 'Pod QOS Class may not change as a result of resizing'],
    [podOf([container('m', { requests: { cpu: '1' } })]), burstable, 'spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed'],
    [
      podOf([container('b', sized('1', '1Gi')), container('a', sized('1', '1Gi'))]),
      two,
      'spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize, spec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize',
    ],
    [
      podOf([container('m', sized('1', '1Gi')), container('x', sized('1', '1Gi'))]),
      one,
      'spec.containers: Forbidden: containers may not be added or removed on resize',
    ],
    [podOf([container('m', sized('1', '1Gi'), { image: 'other' })]), one, 'spec: Forbidden: only cpu and memory resources are mutable'],
    [
      podOf([container('m', { ...sized('1', '1Gi'), requests: { cpu: '1', memory: '1Gi', 'ephemeral-storage': '1Gi' } })]),
      one,
      'only cpu and memory resources are mutable',
    ],
    [podOf([container('m', sized('1', '1Gi'))], { hostNetwork: true }), one, 'spec: Forbidden: only cpu and memory resources are mutable'],
    [
      podOf([container('m', {})]),
      podOf([container('m', {})], { resources: sized('1', '1Gi') }),
      'spec.resources: Forbidden: pod-level resources cannot be removed',
    ],
  ];
  for (const [next, old, words] of cases) assert.ok(refusalOf(next, old).includes(words), `${refusalOf(next, old)} has no ${words}`);
});

test('a size that the node never has is refused at once, one that waits for room is not', () => {
  const old = podOf([container('m', sized('1', '1Gi'))]);
  assert.equal(
    refusalOf(podOf([container('m', sized('1000', '1Gi'))]), old),
    '403 pods "p" is forbidden: node didn\'t have enough allocatable resources: cpu, requested: 1000000, allocatable: 4000',
  );
  assert.equal(refusalOf(podOf([container('m', sized('4', '4Gi'))]), old), '');
  assert.equal(refusalOf(podOf([container('m', sized('1000', '1Gi'))]), old, null), '');
});
