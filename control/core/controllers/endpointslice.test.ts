import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { EndpointSlice, Node, Pod, Service } from '../../../proto/kube/types.ts';
import { planEndpoints } from './endpoints.ts';
import { planSlices, type SlicesPlan } from './endpointslice.ts';
import { triggerTime } from './service-ports.ts';

const node: Node = { apiVersion: 'v1', kind: 'Node', metadata: { name: 'n1', labels: { 'topology.kubernetes.io/zone': 'z1' } }, spec: {} };

function service(spec: Partial<Service['spec']> = {}, labels?: Record<string, string>): Service {
  return {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'web', namespace: 'ns', uid: 's1', ...(labels === undefined ? {} : { labels }) },
    spec: { clusterIP: '10.96.0.7', selector: { app: 'web' }, ports: [{ port: 80 }], ...spec },
  };
}

function pod(index: number, change: { ready?: boolean; ending?: boolean; port?: number; phase?: string; hostname?: string } = {}): Pod {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `web-${index}`, namespace: 'ns', uid: `p${index}`, ...(change.ending === true ? { deletionTimestamp: '2026-01-01T00:00:00Z' } : {}) },
    spec: {
      nodeName: 'n1',
      containers: [{ name: 'c', ports: [{ name: 'http', containerPort: change.port ?? 8080 }] }],
      ...(change.hostname === undefined ? {} : { hostname: change.hostname, subdomain: 'web' }),
    },
    status: {
      phase: change.phase ?? 'Running',
      podIP: `10.244.0.${index}`,
      podIPs: [{ ip: `10.244.0.${index}` }],
      conditions: [{ type: 'Ready', status: change.ready === false ? 'False' : 'True', lastTransitionTime: '2026-01-01T00:00:00Z' }],
    },
  };
}

function plan(s: Service, pods: Pod[], slices: EndpointSlice[] = []): SlicesPlan {
  return planSlices({ service: s, pods, node: (name) => (name === 'n1' ? node : undefined), slices, trigger: '2026-01-01T00:00:00Z' });
}

/** A planned slice as the server would hold it. */
const stored = (slice: EndpointSlice | undefined, name: string): EndpointSlice => {
  assert.ok(slice);
  return { ...slice, metadata: { ...slice.metadata, name, resourceVersion: '1' } };
};

test('a Service without pods has one empty slice, and keeps it', () => {
  const first = plan(service(), []);
  assert.equal(first.create.length, 1);
  assert.deepEqual(first.create[0]?.endpoints, []);
  assert.deepEqual(plan(service(), [], [stored(first.create[0], 'web-a')]), { create: [], update: [], remove: [], incomplete: false });
});

test('an endpoint says ready, serving and terminating, its node, zone and pod', () => {
  const [slice] = plan(service({}, { team: 'a' }), [pod(1), pod(2, { ready: false }), pod(3, { ending: true }), pod(4, { phase: 'Failed' })]).create;
  assert.deepEqual(
    slice?.endpoints?.map((endpoint) => endpoint.conditions),
    [
      { ready: true, serving: true, terminating: false },
      { ready: false, serving: false, terminating: false },
      { ready: false, serving: true, terminating: true },
    ],
  );
  assert.deepEqual(slice?.endpoints?.[0], {
    addresses: ['10.244.0.1'],
    conditions: { ready: true, serving: true, terminating: false },
    nodeName: 'n1',
    zone: 'z1',
    targetRef: { kind: 'Pod', namespace: 'ns', name: 'web-1', uid: 'p1' },
  });
  assert.deepEqual(slice?.ports, [{ name: '', port: 80, protocol: 'TCP' }]);
  assert.equal(slice?.metadata.generateName, 'web-');
  assert.deepEqual(slice?.metadata.labels, {
    team: 'a',
    'kubernetes.io/service-name': 'web',
    'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
  });
  assert.equal(slice?.metadata.annotations?.['endpoints.kubernetes.io/last-change-trigger-time'], '2026-01-01T00:00:00Z');
});

test('headless, not-ready addresses published, own hostnames', () => {
  const [slice] = plan(service({ clusterIP: 'None', publishNotReadyAddresses: true }), [pod(1, { ready: false, hostname: 'db-0' })]).create;
  assert.equal(slice?.metadata.labels?.['service.kubernetes.io/headless'], '');
  assert.equal(slice?.endpoints?.[0]?.conditions?.ready, true);
  assert.equal(slice?.endpoints?.[0]?.conditions?.serving, false);
  assert.equal(slice?.endpoints?.[0]?.hostname, 'db-0');
});

test('a named port that differs between pods makes a slice for each number', () => {
  const made = plan(service({ ports: [{ name: 'http', port: 80, targetPort: 'http' }] }), [pod(1), pod(2, { port: 9090 })]).create;
  assert.deepEqual(
    made.map((slice) => [slice.ports?.[0]?.port, slice.endpoints?.length]),
    [
      [8080, 1],
      [9090, 1],
    ],
  );
});

test('a change is one write of one slice, the same world none', () => {
  const slice = stored(plan(service(), [pod(1), pod(2)]).create[0], 'web-a');
  assert.deepEqual(plan(service(), [pod(1), pod(2)], [slice]), { create: [], update: [], remove: [], incomplete: false });
  const changed = plan(service(), [pod(1), pod(2, { ready: false }), pod(3)], [slice]);
  assert.equal(changed.create.length + changed.remove.length, 0);
  assert.deepEqual(
    changed.update[0]?.endpoints?.map((endpoint) => [endpoint.addresses[0], endpoint.conditions?.ready]),
    [
      ['10.244.0.1', true],
      ['10.244.0.2', false],
      ['10.244.0.3', true],
    ],
  );
  const emptied = plan(service(), [], [slice]);
  assert.deepEqual([emptied.create.length, emptied.update.length, emptied.remove.length, emptied.update[0]?.endpoints?.length], [0, 1, 0, 0]);
});

test('more than a hundred endpoints fill one slice and begin another', () => {
  const many = Array.from({ length: 130 }, (_, index) => pod(index + 1));
  assert.deepEqual(
    plan(service(), many).create.map((slice) => slice.endpoints?.length),
    [100, 30],
  );
});

test('a pod on an unknown node waits for it', () => {
  const lost: Pod = { ...pod(1), spec: { ...pod(1).spec, nodeName: 'n9' } };
  const result = plan(service(), [lost]);
  assert.equal(result.incomplete, true);
  assert.deepEqual(result.create[0]?.endpoints, []);
});

test('Endpoints: ready and not-ready addresses by port, no ending pods', () => {
  const wanted = planEndpoints(service(), [pod(2), pod(1), pod(3, { ready: false }), pod(4, { ending: true })], undefined, undefined);
  assert.deepEqual(
    wanted?.subsets?.map((subset) => [subset.addresses?.map((one) => one.ip), subset.notReadyAddresses?.map((one) => one.ip), subset.ports]),
    [[['10.244.0.1', '10.244.0.2'], ['10.244.0.3'], [{ port: 80, protocol: 'TCP' }]]],
  );
  assert.equal(planEndpoints(service(), [pod(2), pod(1), pod(3, { ready: false })], wanted, undefined), undefined);
});

test('the trigger is the earliest change that has not been told yet', () => {
  const s = { ...service(), metadata: { ...service().metadata, creationTimestamp: '2025-12-31T00:00:00Z' } };
  const first = triggerTime(s, [pod(1)], undefined);
  assert.equal(first.triggerMs, Date.UTC(2025, 11, 31));
  assert.equal(triggerTime(s, [pod(1)], first.state).triggerMs, undefined);
  assert.equal(triggerTime(s, [pod(1), pod(2)], first.state).triggerMs, Date.UTC(2026, 0, 1));
});
