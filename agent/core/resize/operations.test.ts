import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod, ResourceRequirements } from '../../../proto/kube/types.ts';
import { priorityBucket, resizeOperations } from './operations.ts';

const pod = (resources: ResourceRequirements, priority?: number): Pod => ({
  metadata: { name: 'p' },
  spec: { priority, containers: [{ name: 'm', resources }] },
});

test('each amount that changes is counted by what becomes of it', () => {
  const old = pod({ requests: { cpu: '100m', memory: '64Mi' }, limits: { memory: '128Mi' } });
  assert.deepEqual(resizeOperations(old, old), []);
  const words = resizeOperations(old, pod({ requests: { cpu: '0.2', memory: '32Mi' }, limits: { cpu: '1' } })).map((each) => Object.values(each).join(' '));
  assert.deepEqual(words.toSorted(), ['cpu limits add', 'cpu requests increase', 'memory limits remove', 'memory requests decrease']);
});

test('classes of priority', () => {
  const of = (priority?: number): string => priorityBucket(pod({}, priority));
  assert.deepEqual(
    [of(), of(0), of(1), of(100_000), of(2_000_001_000), of(-999), of(-1_000), priorityBucket(undefined)],
    [...['normal', 'normal', 'medium', 'high', 'system-critical', 'low', 'very-low', 'unknown']],
  );
});
