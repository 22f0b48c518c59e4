import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PodStatus } from '../../proto/kube/types.ts';
import { podStatusPatch } from './status-patch.ts';

const held: PodStatus = {
  phase: 'Pending',
  qosClass: 'Burstable',
  conditions: [
    { type: 'PodScheduled', status: 'True', lastTransitionTime: 't0', lastProbeTime: null as never },
    { type: 'Ready', status: 'False', reason: 'ContainersNotReady', message: 'm', lastTransitionTime: 't0' },
    { type: 'example.com/gate', status: 'True', lastTransitionTime: 't0' },
  ],
};

test('what is there already costs nothing, however it is written', () => {
  assert.equal(
    podStatusPatch('u', held, {
      qosClass: 'Burstable',
      phase: 'Pending',
      podIPs: [],
      conditions: [{ lastTransitionTime: 't0', type: 'Ready', reason: 'ContainersNotReady', message: 'm', status: 'False' }],
    }),
    null,
  );
});

test('only changed fields and changed own conditions are named', () => {
  const wish: PodStatus = {
    ...held,
    phase: 'Running',
    conditions: [
      { type: 'PodScheduled', status: 'True', lastTransitionTime: 't9', observedGeneration: 1 },
      { type: 'Ready', status: 'True', lastTransitionTime: 't1' },
      { type: 'Initialized', status: 'True', lastTransitionTime: 't1' },
      { type: 'example.com/gate', status: 'False', lastTransitionTime: 't1' },
    ],
  };
  assert.deepEqual(podStatusPatch('u', held, wish), {
    metadata: { uid: 'u' },
    status: {
      phase: 'Running',
      conditions: [
        { type: 'PodScheduled', observedGeneration: 1 },
        { type: 'Ready', status: 'True', lastTransitionTime: 't1', reason: null, message: null },
        { type: 'Initialized', status: 'True', lastTransitionTime: 't1' },
      ],
    },
  });
});

test('an own condition that ended is taken away by name, foreign ones never', () => {
  const before: PodStatus = {
    phase: 'Running',
    conditions: [
      { type: 'PodResizePending', status: 'True' },
      { type: 'example.com/note', status: 'True' },
    ],
  };
  assert.deepEqual(podStatusPatch('u', before, { phase: 'Running' })?.status, { conditions: [{ type: 'PodResizePending', $patch: 'delete' }] });
});

test('of resources that are merged by key what is gone is named', () => {
  const before: PodStatus = { phase: 'Running', resources: { limits: { cpu: '1', memory: '1Gi' }, requests: { cpu: '1' } }, allocatedResources: { cpu: '1' } };
  const wish: PodStatus = { phase: 'Running', resources: { requests: { cpu: '2' } }, allocatedResources: { cpu: '2' } };
  assert.deepEqual(podStatusPatch('u', before, wish)?.status, {
    resources: { requests: { cpu: '2' }, limits: null },
    allocatedResources: { cpu: '2' },
  });
});

test('addresses are replaced as a whole; words that ended go; times that are set stay', () => {
  const before: PodStatus = { phase: 'Pending', reason: 'x', message: 'y', podIP: '10.0.0.1', podIPs: [{ ip: '10.0.0.1' }], startTime: 't0' };
  assert.deepEqual(podStatusPatch('u', before, { phase: 'Pending', podIP: '10.0.0.2', podIPs: [{ ip: '10.0.0.2' }] })?.status, {
    message: null,
    reason: null,
    podIP: '10.0.0.2',
    podIPs: [{ ip: '10.0.0.2' }, { $patch: 'replace' }],
  });
});

test('a terminal phase is never left nor exchanged', () => {
  const failed: PodStatus = { phase: 'Failed', reason: 'Evicted', message: 'm' };
  assert.equal(podStatusPatch('u', failed, { phase: 'Succeeded' }), null);
  assert.equal(podStatusPatch('u', failed, { phase: 'Running' }), null);
});
