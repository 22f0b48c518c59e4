import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatQuantity } from './quantity.ts';
import { everyContainerLimits, oomScoreAdj, podLimits, podRequests, qosClassOf, qosClassOfStatus } from './qos.ts';
import type { Amounts, PodResources, ResourceLists } from './qos.ts';

const both = { cpu: '100m', memory: '64Mi' };
const pod = (...containers: ResourceLists[]): PodResources => ({ spec: { containers: containers.map((resources) => ({ resources })) } });
const shown = (amounts: Amounts): Record<string, string> => Object.fromEntries([...amounts].map(([name, amount]) => [name, formatQuantity(amount)]));

test('QoS class by requests and limits', () => {
  const cases: [string, PodResources, string][] = [
    ['nothing asked', pod({}), 'BestEffort'],
    ['zeros ask nothing', pod({ requests: { cpu: '0' }, limits: { memory: '0' } }), 'BestEffort'],
    ['other resources do not count', pod({ requests: { 'ephemeral-storage': '1Gi' } }), 'BestEffort'],
    ['equal', pod({ requests: both, limits: both }), 'Guaranteed'],
    ['equal in other words', pod({ requests: { cpu: '0.1', memory: '65536Ki' }, limits: both }), 'Guaranteed'],
    ['requests only', pod({ requests: both }), 'Burstable'],
    ['one container without', pod({ requests: both, limits: both }, {}), 'Burstable'],
    ['memory only', pod({ requests: { memory: '1Mi' }, limits: { memory: '1Mi' } }), 'Burstable'],
    ['limits above requests', pod({ requests: both, limits: { cpu: '1', memory: '64Mi' } }), 'Burstable'],
    ['pod level decides', { spec: { resources: { requests: both, limits: both }, containers: [{}] } }, 'Guaranteed'],
    ['init container counts', { spec: { containers: [{ resources: { requests: both, limits: both } }], initContainers: [{}] } }, 'Burstable'],
  ];
  for (const [name, input, expected] of cases) assert.equal(qosClassOf(input), expected, name);
  assert.equal(qosClassOfStatus({ ...pod({}), status: { qosClass: 'Burstable' } }), 'Burstable');
});

test('pod totals take sidecars, the largest init step and overhead', () => {
  const input: PodResources = {
    spec: {
      containers: [{ resources: { requests: { cpu: '100m', memory: '10Mi' }, limits: { cpu: '1' } } }],
      initContainers: [{ restartPolicy: 'Always', resources: { requests: { cpu: '50m' } } }, { resources: { requests: { cpu: '200m', memory: '5Mi' } } }],
      overhead: { cpu: '10m', memory: '1Mi' },
    },
  };
  assert.deepEqual(shown(podRequests(input)), { cpu: '260m', memory: '11Mi' });
  assert.deepEqual(shown(podLimits(input)), { cpu: '1010m' });
  assert.equal(everyContainerLimits(input, 'cpu'), false);
});

test('oom_score_adj follows class and memory share', () => {
  const capacity = 1n << 30n;
  const of = (input: PodResources): number => oomScoreAdj(input, input.spec!.containers![0]!, capacity);
  assert.equal(of(pod({ requests: both, limits: both })), -997);
  assert.equal(of(pod({})), 1000);
  assert.equal(of(pod({ requests: { cpu: '1' } })), 999);
  assert.equal(of(pod({ requests: { memory: '256Mi' } })), 750);
  assert.equal(of(pod({ requests: { memory: '2Gi' } })), 3);
  assert.equal(of({ spec: { ...pod({}).spec, priorityClassName: 'system-node-critical' } }), -997);
});

test('oom_score_adj of what a pod asks for as a whole: what no container asked for is shared by all, init containers among them', () => {
  const capacity = 1000n << 20n;
  const asks = (memory: string): { resources: { requests: { memory: string } } } => ({ resources: { requests: { memory } } });
  const [main, side] = [
    { name: 'm', ...asks('100Mi') },
    { name: 's', restartPolicy: 'Always', ...asks('50Mi') },
  ];
  const init = { name: 'i', ...asks('60Mi') };
  const whole: PodResources = { spec: { resources: { requests: { memory: '450Mi' } }, containers: [main], initContainers: [side, init] } };
  // 150Mi are asked for at the peak: 300Mi are left for three.
  assert.equal(oomScoreAdj(whole, main, capacity), 800);
  assert.equal(oomScoreAdj(whole, init, capacity), 840);
  // A sidecar goes no sooner than what it serves, which has its share too.
  assert.equal(oomScoreAdj(whole, side, capacity), 800);
  assert.equal(oomScoreAdj({ spec: { ...whole.spec, resources: { limits: { memory: '450Mi' } } } }, main, capacity), 900);
});

test('what claims bring counts for the pod, where something is limited for its limit, and in parts for who is killed first', () => {
  const claims = [
    {
      resourceClaimName: 'c',
      containers: ['a', 'b'],
      mapping: [
        { name: 'cpu', quantity: '2' },
        { name: 'memory', quantity: '200Mi' },
        { name: 'hugepages-2Mi', quantity: '4Mi' },
      ],
      overhead: [{ name: 'memory', perPod: '10Mi', perContainer: '5Mi' }],
    },
  ];
  const input: PodResources = {
    spec: { containers: [{ name: 'a', resources: { requests: { memory: '80Mi' }, limits: { cpu: '1' } } }, { name: 'b' }] },
    status: { nodeAllocatableResourceClaimStatuses: claims },
  };
  assert.deepEqual(shown(podRequests(input)), { cpu: '2', memory: '300Mi', 'hugepages-2Mi': '4Mi' });
  assert.deepEqual(shown(podLimits(input)), { cpu: '3', 'hugepages-2Mi': '4Mi' });
  assert.equal(oomScoreAdj(input, input.spec!.containers![0]!, 1000n << 20n), 1000 - 190);
  assert.equal(oomScoreAdj(input, input.spec!.containers![1]!, 1000n << 20n), 1000 - 110);
});
