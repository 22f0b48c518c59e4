import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readConfiguration } from './config.ts';
import type { KubeletConfiguration } from './config.ts';
import { memoryQosOf, mostPids, podsAllocatable, reservedCgroups } from './settings.ts';

test('as many processes as the lower of both limits of the kernel allows', () => {
  assert.equal(mostPids(['4194304\n', '15871\n']), 15_871);
  assert.equal(mostPids(['', '15871\n']), 15_871);
  assert.equal(mostPids(['', '']), null);
});

const configOf = (fields: Record<string, unknown>): KubeletConfiguration =>
  readConfiguration({ apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration', ...fields }).config;
const reserved = { systemReserved: { cpu: '500m', memory: '1Gi', pid: '100' }, kubeReserved: { cpu: '250m', memory: '1Gi' } };
const machine = { cpus: 4, memoryBytes: 8 * 2 ** 30, maxPids: 32_000 };

test('all pods together get what is not reserved, where that is enforced', () => {
  assert.deepEqual(podsAllocatable(configOf(reserved), machine), { milliCpu: 3250n, memoryBytes: 6n << 30n, pids: 31_900n });
  const none = configOf({ ...reserved, enforceNodeAllocatable: ['none'] });
  assert.deepEqual(podsAllocatable(none, { ...machine, maxPids: null }), { milliCpu: 4000n, memoryBytes: 8n << 30n, pids: null });
  assert.equal(podsAllocatable(configOf({ systemReserved: { memory: '9Gi' } }), machine).memoryBytes, 0n);
});

test('reserved cgroups: all of it, or what can be held back without killing', () => {
  const where = { systemReservedCgroup: 'system.slice', kubeReservedCgroup: 'kube.slice' };
  const config = configOf({ ...reserved, ...where, enforceNodeAllocatable: ['pods', 'system-reserved', 'kube-reserved-compressible'] });
  const nothing = { cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, pidsMax: null };
  assert.deepEqual(reservedCgroups(config, 2, true), [
    {
      key: 'system-reserved',
      cgroup: 'system.slice',
      resources: { ...nothing, cpuShares: 512n, memoryBytes: 1n << 30n, pidsMax: 100n, unified: { 'memory.min': '1073741824' } },
    },
    { key: 'kube-reserved-compressible', cgroup: 'kube.slice', resources: { ...nothing, cpuShares: 256n } },
  ]);
  assert.equal(reservedCgroups(config, 1, true)[0]?.resources.unified, undefined);
  assert.deepEqual(reservedCgroups(configOf({}), 2, true), []);
});

test('MemoryQoS is on unless its gate is off', () => {
  assert.deepEqual(memoryQosOf(configOf({ ...reserved, memoryThrottlingFactor: 0.8 }), machine), {
    ...{ policy: 'None', throttlingFactor: 0.8, pageBytes: 4096, allocatableBytes: 6n << 30n },
  });
  assert.equal(memoryQosOf(configOf({ memoryReservationPolicy: 'TieredReservation' }), machine)?.policy, 'TieredReservation');
  assert.equal(memoryQosOf(configOf({ featureGates: { MemoryQoS: false } }), machine), null);
});
