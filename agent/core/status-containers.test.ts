import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { containerStatuses } from './status-containers.ts';
import type { ContainerFacts } from './types.ts';

test('an image volume is told with the image behind it, where the gate is on and the runtime has mounted it', () => {
  const volumeMounts = [
    { name: 'i', mountPath: '/i' },
    { name: 'e', mountPath: '/e' },
  ];
  const pod: Pod = {
    metadata: { name: 'p' },
    spec: {
      containers: [{ name: 'm', volumeMounts }],
      volumes: [
        { name: 'i', image: { reference: 'r/x:1' } },
        { name: 'e', emptyDir: {} },
      ],
    },
  };
  const container = {
    id: 'c',
    name: 'm',
    attempt: 0,
    state: 'running',
    user: null,
    resources: null,
    annotations: {},
    imageMounts: [
      { containerPath: '/i', image: 'sha256:abc' },
      { containerPath: '/e', image: 'sha256:other' },
    ],
  } as unknown as ContainerFacts;
  const told = (imageDigests: boolean, old: Pod['status'] = {}, mounted = true): unknown => {
    const seen = mounted ? container : { ...container, imageMounts: [] };
    const facts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [seen] };
    const input = { pod, old, facts, probes: {}, waiting: {}, runtimeName: 'containerd', recursiveReadOnly: false, imageDigests };
    return containerStatuses(input, 'app')[0]?.volumeMounts;
  };
  const plain = [
    { name: 'i', mountPath: '/i' },
    { name: 'e', mountPath: '/e' },
  ];
  const withDigest = [{ name: 'i', mountPath: '/i', volumeStatus: { image: { imageRef: 'sha256:abc' } } }, plain[1]];
  assert.deepEqual(told(true), withDigest);
  assert.deepEqual(told(false), plain);
  assert.deepEqual(told(true, {}, false), plain);
  const old = { containerStatuses: [{ name: 'm', image: '', imageID: '', ready: true, restartCount: 0, containerID: 'containerd://c', volumeMounts: plain }] };
  assert.deepEqual(told(true, old), withDigest);
});

test('the signal that ends a container is told where the gate is on and the runtime says it', () => {
  const pod: Pod = { metadata: { name: 'p' }, spec: { containers: [{ name: 'm' }] } };
  const told = (stopSignals: boolean, stopSignal?: string): unknown => {
    const seen = {
      id: 'c',
      name: 'm',
      attempt: 0,
      state: 'running',
      user: null,
      resources: null,
      annotations: {},
      ...(stopSignal !== undefined && { stopSignal }),
    };
    const facts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [seen as unknown as ContainerFacts] };
    return containerStatuses({ pod, old: {}, facts, probes: {}, waiting: {}, runtimeName: 'containerd', recursiveReadOnly: false, stopSignals }, 'app')[0]
      ?.stopSignal;
  };
  assert.deepEqual([told(true, 'SIGUSR1'), told(false, 'SIGUSR1'), told(true)], ['SIGUSR1', undefined, undefined]);
});
