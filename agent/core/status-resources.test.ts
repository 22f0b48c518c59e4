import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, ContainerStatus, Pod, PodStatus, ResourceRequirements } from '../../proto/kube/types.ts';
import { containerResourcesStatus, podResourcesStatus } from './status-resources.ts';
import type { ContainerFacts, ContainerResourceFacts } from './types.ts';

const container: Container = { name: 'c', resources: { requests: { cpu: '100m', memory: '64Mi' }, limits: { cpu: '500m', memory: '128Mi' } } };
const facts = (resources: ContainerResourceFacts | null, state: ContainerFacts['state'] = 'running'): ContainerFacts =>
  ({ id: 'x', state, resources }) as unknown as ContainerFacts;
const runtime = (told: Partial<ContainerResourceFacts>): ContainerResourceFacts => ({
  cpuShares: null,
  cpuQuota: null,
  cpuPeriod: null,
  memoryLimitBytes: null,
  unified: {},
  ...told,
});
const told = (seen: ContainerFacts, actuated?: ResourceRequirements, old?: Partial<ContainerStatus>): ResourceRequirements =>
  containerResourcesStatus(container, seen, actuated, old as ContainerStatus | undefined);

test('what the runtime reports stands for what was asked: 100m through a weight of cgroup v2 and back are 79m', () => {
  // 102 shares are a weight of 4, which a runtime reads back as 80 shares.
  const seen = told(facts(runtime({ cpuShares: 80, cpuQuota: 50_000, cpuPeriod: 100_000, memoryLimitBytes: 128 << 20 })));
  assert.deepEqual(seen, { requests: { cpu: '79m', memory: '64Mi' }, limits: { cpu: '500m', memory: '128Mi' } });
  const exact = told(facts(runtime({ cpuShares: 102, cpuQuota: 25_000, cpuPeriod: 100_000, memoryLimitBytes: 256 << 20 })));
  assert.deepEqual(exact, { requests: { cpu: '100m', memory: '64Mi' }, limits: { cpu: '250m', memory: '256Mi' } });
});

test('below the kernel’s least, and of what does not run, the spec stands', () => {
  const tiny: Container = { name: 'c', resources: { requests: { cpu: '1m' }, limits: { cpu: '5m' } } };
  const seen = containerResourcesStatus(tiny, facts(runtime({ cpuShares: 2, cpuQuota: 1000, cpuPeriod: 100_000 })), undefined, undefined);
  assert.deepEqual(seen, tiny.resources);
  assert.deepEqual(told(facts(runtime({ cpuShares: 1024 }), 'exited')), container.resources);
});

test('a runtime that reports nothing leaves what was put into effect, and what was told of the same run', () => {
  const actuated = { requests: { cpu: '200m', memory: '32Mi' }, limits: { cpu: '1', memory: '64Mi' } };
  assert.deepEqual(told(facts(null), actuated), actuated);
  const before = { state: { running: {} }, resources: { requests: { cpu: '79m' }, limits: { memory: '1Gi' } } };
  assert.deepEqual(told(facts(null), undefined, before), { requests: { cpu: '79m', memory: '64Mi' }, limits: { cpu: '500m', memory: '1Gi' } });
});

test('of a pod that asks through its containers alone its cgroup tells; a limit that it does not have stays as it was told, also after a restart', () => {
  const spec = { containers: [container, { name: 'unlimited', resources: { requests: { cpu: '100m' } } }] };
  const promised = podResourcesStatus({ metadata: {}, spec, status: { phase: 'Pending' } }, null, {});
  const wanted = { limits: { cpu: '500m', memory: '128Mi' }, requests: { cpu: '200m', memory: '64Mi' } };
  assert.deepEqual(promised, { allocatedResources: wanted.requests, resources: wanted });
  const running: Pod = { metadata: {}, spec, status: { phase: 'Running' } };
  const values = { cpuShares: 204n, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, memoryUsageBytes: 0n };
  const has = (phase: string, limited: Partial<typeof values> | object = {}): PodStatus['resources'] =>
    podResourcesStatus(running, { ...values, ...limited }, { ...promised, phase }).resources;
  assert.deepEqual(has('Running'), wanted);
  assert.deepEqual(has('Running', { cpuQuotaUs: 70_000n, memoryBytes: 1n << 30n })?.limits, { cpu: '700m', memory: '1Gi' });
  assert.deepEqual(has('Pending'), { requests: wanted.requests }, 'told before it ran');
});
