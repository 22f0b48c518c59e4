import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { hugePageLimits, hugePageName } from './huge-pages.ts';
import { classMemoryQos, containerMemoryQos, podMemoryQos } from './memory-qos.ts';
import type { MemoryQos } from './memory-qos.ts';
import { swapBytes } from './swap.ts';

const lists = (request: string | null, limit: string | null): NonNullable<Pod['spec']['containers'][number]['resources']> => ({
  ...(request === null ? {} : { requests: { memory: request } }),
  ...(limit === null ? {} : { limits: { memory: limit } }),
});
const podOf = (request: string | null, limit: string | null, more: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { uid: 'u' },
  spec: { containers: [{ name: 'c', resources: lists(request, limit) }], ...more },
});
const guaranteed: Pod = {
  metadata: { uid: 'g' },
  spec: { containers: [{ name: 'c', resources: { requests: { cpu: '1', memory: '1Mi' }, limits: { cpu: '1', memory: '1Mi' } } }] },
};
const qos: MemoryQos = { policy: 'None', throttlingFactor: 0.9, pageBytes: 4096, allocatableBytes: 1n << 30n };
const tiered: MemoryQos = { ...qos, policy: 'TieredReservation', throttlingFactor: null };

test('memory.high lies between request and limit, in whole pages', () => {
  const none = { 'memory.min': '0', 'memory.low': '0' };
  const of = (request: string | null, limit: string | null, with_: MemoryQos | null = qos): Record<string, string> =>
    containerMemoryQos(podOf(request, limit), lists(request, limit), with_);
  // 10 Mi and nine tenths of 90 Mi are 91 Mi.
  assert.deepEqual(of('10Mi', '100Mi'), { ...none, 'memory.high': String(91n << 20n) });
  assert.deepEqual(of('100Mi', '100Mi'), none);
  // Without a limit what the node has stands in for it.
  assert.deepEqual(of('0', null), { ...none, 'memory.high': String(Math.floor((0.9 * 2 ** 30) / 4096) * 4096) });
  assert.deepEqual(of('10Mi', '100Mi', { ...qos, throttlingFactor: null }), none);
  assert.deepEqual(of('10Mi', '100Mi', null), { 'memory.high': 'max' });
  const ofPod = podOf('10Mi', null, { resources: { limits: { memory: '50Mi' } } });
  assert.deepEqual(containerMemoryQos(ofPod, lists('10Mi', null), qos), none);
  // A pod is throttled as a whole only where it has resources as a whole.
  assert.deepEqual(podMemoryQos(podOf('10Mi', '100Mi'), qos), {});
  assert.deepEqual(podMemoryQos(podOf('10Mi', null, { resources: { requests: { memory: '10Mi' }, limits: { memory: '100Mi' } } }), qos), {
    'memory.high': String(91n << 20n),
  });
  assert.deepEqual(podMemoryQos(podOf('10Mi', null, { resources: { requests: { memory: '10Mi' } } }), qos), {});
  assert.deepEqual(podMemoryQos(guaranteed, qos), {});
});

test('what is requested is protected where the policy says so: hard for Guaranteed pods, soft for Burstable ones', () => {
  assert.deepEqual(containerMemoryQos(guaranteed, guaranteed.spec.containers[0]?.resources, tiered), { 'memory.min': '1048576' });
  assert.deepEqual(containerMemoryQos(podOf('2Mi', '4Mi'), lists('2Mi', '4Mi'), tiered), { 'memory.low': '2097152' });
  assert.deepEqual(podMemoryQos(guaranteed, tiered), { 'memory.min': '1048576' });
  assert.deepEqual(podMemoryQos(podOf('2Mi', null), tiered), { 'memory.low': '2097152' });
  assert.deepEqual(podMemoryQos(podOf(null, null), tiered), {});
  assert.deepEqual(classMemoryQos({ minBytes: 1_048_576n, lowBytes: 2_097_152n }), {
    all: { 'memory.min': '3145728', 'memory.low': '2097152' },
    burstable: { 'memory.low': '2097152' },
  });
});

test('swap is a share of the node’s by the memory request', () => {
  const context = {
    cgroupVersion: 2,
    swapControllerAvailable: true,
    memoryCapacityBytes: 1n << 30n,
    swap: { behavior: 'LimitedSwap', capacityBytes: 1n << 31n },
  } as const;
  const of = (pod: Pod, with_: Parameters<typeof swapBytes>[0] = context): bigint => swapBytes(with_, pod, pod.spec.containers[0]!);
  assert.equal(of(podOf('256Mi', null)), 512n << 20n);
  assert.equal(of(podOf('256Mi', '256Mi')), 0n);
  assert.equal(of(podOf(null, null)), 0n);
  assert.equal(of(guaranteed), 0n);
  assert.equal(of(podOf('256Mi', null, { priority: 2_000_000_000 })), 0n);
  assert.equal(of(podOf('2Gi', null)), 0n);
  assert.equal(of(podOf('256Mi', null), { ...context, cgroupVersion: 1 }), 0n);
  assert.equal(of(podOf('256Mi', null), { ...context, swap: { behavior: 'NoSwap', capacityBytes: 1n } }), 0n);
});

test('huge pages: what is not asked for is forbidden', () => {
  assert.deepEqual(['hugepages-2Mi', 'hugepages-1Gi', 'hugepages-64Ki', 'memory'].map(hugePageName), ['2MB', '1GB', '64KB', null]);
  const limits = hugePageLimits(['2MB', '1GB'], { 'hugepages-2Mi': '4Mi', 'hugepages-1Gi': '1Gi' }, { 'hugepages-2Mi': '2Mi', memory: '1' });
  assert.deepEqual(
    [...limits],
    [
      ['2MB', 2_097_152n],
      ['1GB', 1_073_741_824n],
    ],
  );
});
