import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerStatus, Pod } from '../../proto/kube/types.ts';
import { containerStatuses } from './status-containers.ts';
import type { ContainerFacts, ContainerState } from './types.ts';

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

test('a run is counted after the one whose end was told, whatever its own number, and one that never ran is no last run', () => {
  const pod: Pod = { metadata: { name: 'p' }, spec: { containers: [{ name: 'm' }] } };
  const seen = (id: string, attempt: number, state: ContainerState, createdAtMs = 5000): ContainerFacts =>
    ({
      id,
      name: 'm',
      attempt,
      state,
      createdAtMs,
      startedAtMs: 0,
      finishedAtMs: 0,
      exitCode: 1,
      reason: '',
      message: '',
      user: null,
      resources: null,
    }) as unknown as ContainerFacts;
  const told = (old: Partial<ContainerStatus>, ...containers: ContainerFacts[]): unknown[] => {
    const facts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers };
    const before = [{ name: 'm', image: '', imageID: '', ready: false, restartCount: 3, ...old }];
    const input = { pod, old: { containerStatuses: before }, facts, probes: {}, waiting: {}, runtimeName: 'c', recursiveReadOnly: false };
    const [status] = containerStatuses(input, 'app');
    return [status?.restartCount, status?.lastState?.terminated?.containerID];
  };
  const ended = { exitCode: 1, finishedAt: '1970-01-01T00:00:04Z', containerID: 'c://a' };
  const next = seen('b', 1, 'running');
  assert.deepEqual(told({ containerID: 'c://a', state: { terminated: ended } }, next), [4, 'c://a']);
  assert.deepEqual(told({ containerID: 'c://a', state: { waiting: {} }, lastState: { terminated: ended } }, next), [4, 'c://a']);
  assert.deepEqual(told({ state: { waiting: {} }, lastState: { terminated: ended } }, next), [4, 'c://a'], 'the runtime has lost it meanwhile');
  assert.deepEqual(told({ containerID: 'c://b', state: { waiting: {} }, lastState: { terminated: ended } }, next), [3, 'c://a'], 'counted before');
  assert.deepEqual(told({ containerID: 'c://b', state: { running: {} } }, next), [3, undefined]);
  assert.deepEqual(
    told({ containerID: 'c://a', state: { terminated: ended } }, seen('b', 1, 'exited', 3000)),
    [3, undefined],
    'an older one is the newest that is left',
  );
  assert.deepEqual(
    told({ state: { waiting: {} }, lastState: { terminated: { exitCode: 137 } } }, next),
    [3, undefined],
    'a run that was lost is counted when it is missed',
  );
  assert.deepEqual(told({}, seen('c', 5, 'created'), seen('b', 4, 'created'), seen('a', 3, 'exited')), [5, 'c://a']);
});

test('a run whose end is not known is told of as ended until its end is, and counted once', () => {
  const pod: Pod = { metadata: { name: 'p' }, spec: { containers: [{ name: 'm' }] } };
  const seen = (id: string, attempt: number, state: ContainerState): ContainerFacts =>
    ({
      id,
      name: 'm',
      attempt,
      state,
      createdAtMs: 5000,
      startedAtMs: 5000,
      finishedAtMs: 0,
      exitCode: 255,
      reason: '',
      message: '',
      user: null,
      resources: null,
    }) as unknown as ContainerFacts;
  let old: ContainerStatus | undefined;
  const told = (...containers: ContainerFacts[]): unknown[] => {
    const facts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers };
    const input = {
      pod,
      old: { containerStatuses: old === undefined ? [] : [old] },
      facts,
      probes: {},
      waiting: {},
      runtimeName: 'c',
      recursiveReadOnly: false,
    };
    [old] = containerStatuses(input, 'app');
    return [Object.keys(old?.state ?? {})[0], old?.state?.terminated?.exitCode, old?.restartCount];
  };
  assert.deepEqual(told(seen('a', 0, 'running')), ['running', undefined, 0]);
  assert.deepEqual(told(seen('a', 0, 'unknown')), ['terminated', 137, 0]);
  assert.deepEqual(told(seen('a', 0, 'unknown')), ['terminated', 137, 0], 'it could not be stopped');
  const unknown = old;
  assert.deepEqual(told(seen('a', 0, 'exited')), ['terminated', 255, 0]);
  assert.deepEqual(told(seen('b', 1, 'running'), seen('a', 0, 'exited')), ['running', undefined, 1]);
  old = unknown;
  assert.deepEqual(told(seen('b', 0, 'running')), ['running', undefined, 1], 'the runtime has lost it, and its number');
});
