import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crc32 } from 'node:zlib';
import type { Pod, ResourceV1ResourceClaim } from '../../../proto/kube/types.ts';
import { checkpointText, newCheckpointText, readCheckpoint } from './checkpoint.ts';
import { cdiDevicesOf, claimRefusal, claimsOf, newClaimInfo, requestsOf, skips } from './claims.ts';
import type { ClaimInfo } from './claims.ts';
import { healthMessage, withClaimHealth } from './health.ts';

const crc = (text: string): number => crc32(text);
const pod = (more: Partial<Pod['spec']> = {}, status: Pod['status'] = {}): Pod => ({
  metadata: { name: 'p', namespace: 'ns', uid: 'u1' },
  spec: { containers: [{ name: 'm' }], ...more },
  status,
});
const info: ClaimInfo = {
  uid: 'c1',
  name: 'claim',
  namespace: 'ns',
  podUids: new Set(['u2', 'u1']),
  drivers: new Map([
    [
      'b.example',
      {
        skips: [],
        devices: [
          { poolName: 'p', deviceName: 'd1', shareId: null, requestNames: ['r1'], cdiDeviceIds: ['b/x=1'] },
          { poolName: 'p', deviceName: 'd2', shareId: 's', requestNames: [], cdiDeviceIds: [] },
        ],
      },
    ],
    ['a.example', { skips: ['*'], devices: [] }],
  ]),
};

test('the checkpoint is what a kubelet of upstream writes', () => {
  // As it stood in the root directory of upstream's 1.37.2 without a claim.
  const empty = String.raw`{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":null}","Checksum":4010664294}`;
  assert.equal(newCheckpointText(crc), empty);
  const later = String.raw`{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[]}","Checksum":2361995144}`;
  assert.equal(checkpointText([], crc), later);
  assert.deepEqual(readCheckpoint(empty, crc), []);
  const text = checkpointText([info], crc);
  assert.deepEqual(JSON.parse((JSON.parse(text) as { Data: string }).Data), {
    kind: 'DRACheckpoint',
    apiVersion: 'checkpoint.dra.kubelet.k8s.io/v1',
    ClaimInfoStateList: [
      {
        ClaimUID: 'c1',
        ClaimName: 'claim',
        Namespace: 'ns',
        PodUIDs: { u1: {}, u2: {} },
        DriverState: {
          'a.example': { Devices: null, skipNodeOperations: ['*'] },
          'b.example': {
            Devices: [
              { PoolName: 'p', DeviceName: 'd1', ShareID: null, RequestNames: ['r1'], CDIDeviceIDs: ['b/x=1'] },
              { PoolName: 'p', DeviceName: 'd2', ShareID: 's', RequestNames: null, CDIDeviceIDs: null },
            ],
          },
        },
      },
    ],
  });
  const [read] = readCheckpoint(text, crc) ?? [];
  assert.deepEqual(read?.drivers.get('b.example'), info.drivers.get('b.example'));
  for (const bad of ['', '{}', text.replace('claim', 'other'), 'null']) assert.equal(readCheckpoint(bad, crc), null, bad.slice(0, 20));
});

test('which claims a pod has, and which of their devices a container', () => {
  const spec = {
    resourceClaims: [
      { name: 'own', resourceClaimName: 'shared' },
      { name: 'made', resourceClaimTemplateName: 't' },
      { name: 'none', resourceClaimTemplateName: 't' },
    ],
    containers: [{ name: 'm', resources: { claims: [{ name: 'own', request: 'r1' }, { name: 'made' }], requests: { 'x.example/gpu': '1' } } }],
  };
  const early = claimsOf(pod(spec));
  assert.equal(early.ok ? '' : early.message, 'pod "ns/p": ResourceClaim not created yet');
  const extended = { resourceClaimName: 'ext', requestMappings: [{ containerName: 'm', resourceName: 'x.example/gpu', requestName: 'container-0-request-0' }] };
  const status = { resourceClaimStatuses: [{ name: 'made', resourceClaimName: 'p-made-1' }, { name: 'none' }], extendedResourceClaimStatus: extended };
  const known = pod(spec, status);
  const found = claimsOf(known);
  assert.deepEqual(found.ok && found.claims.map(({ name, isOwned }) => [name, isOwned]), [
    ['shared', false],
    ['p-made-1', true],
    [null, true],
    ['ext', false],
  ]);
  assert.deepEqual(
    [...requestsOf(known, spec.containers[0] ?? { name: '' })],
    [
      ['shared', ['r1']],
      ['p-made-1', ['']],
      ['ext', ['container-0-request-0']],
    ],
  );
  assert.deepEqual(cdiDevicesOf(info, 'r1'), ['b/x=1']);
  assert.deepEqual(cdiDevicesOf(info, 'r2'), []);
  assert.deepEqual(cdiDevicesOf(info, ''), ['b/x=1']);
});

test('why a pod may not use a claim, and which drivers are not called', () => {
  const claim = (change: Partial<ResourceV1ResourceClaim['status']> | null, owner = 'u1'): ResourceV1ResourceClaim => ({
    metadata: { name: 'c', uid: 'x', ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'p', uid: owner, controller: true }] },
    spec: {},
    status: { reservedFor: [{ resource: 'pods', name: 'p', uid: 'u1' }], allocation: {}, ...change },
  });
  assert.equal(claimRefusal(pod(), claim({}), true), null);
  assert.equal(claimRefusal(pod(), claim({}, 'u9'), true), 'ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)');
  assert.equal(claimRefusal(pod(), claim({ reservedFor: [] }), false), 'pod p (u1) is not allowed to use ResourceClaim c (x)');
  assert.equal(claimRefusal(pod(), claim({ allocation: undefined }), false), 'ResourceClaim c: not allocated');
  const grouped = { ...pod(), spec: { ...pod().spec, schedulingGroup: { podGroupName: 'g' } } };
  const group = { apiVersion: 'scheduling.k8s.io/v1beta1', kind: 'PodGroup', name: 'g', uid: 'u9', controller: true };
  const reservedFor = [{ apiGroup: 'scheduling.k8s.io', resource: 'podgroups', name: 'g', uid: 'u9' }];
  const ofGroup: ResourceV1ResourceClaim = { metadata: { name: 'c', uid: 'x', ownerReferences: [group] }, spec: {}, status: { reservedFor, allocation: {} } };
  assert.equal(claimRefusal(grouped, ofGroup, true, true), null);
  assert.match(claimRefusal(grouped, ofGroup, true) ?? '', /Pod is not owner/);
  assert.match(claimRefusal(grouped, ofGroup, false) ?? '', /not allowed to use/);
  assert.match(claimRefusal(pod(), ofGroup, false, true) ?? '', /not allowed to use/);
  const others = { ...ofGroup, metadata: { ...ofGroup.metadata, ownerReferences: [{ ...group, name: 'h' }] } };
  assert.equal(claimRefusal(grouped, others, true, true), 'ResourceClaim ns/c was not created for Pod ns/p (neither Pod nor PodGroup g is the owner)');
  const result = (driver: string, skipNodeOperations: string[]) => ({ driver, pool: 'p', device: 'd', request: 'r', skipNodeOperations });
  const results = [result('a', ['*']), result('a', ['NodePrepareResources']), result('b', ['*']), result('c', []), result('c', ['*'])];
  const { drivers } = newClaimInfo(claim({ allocation: { devices: { results } } }));
  assert.deepEqual(
    [...drivers].map(([name, state]) => [name, skips(state, 'NodePrepareResources'), skips(state, 'NodeUnprepareResources')]),
    [
      ['a', true, false],
      ['b', true, true],
      ['c', false, false],
    ],
  );
});

test('the health of claimed devices is told by claim and request', () => {
  const spec = {
    resourceClaims: [{ name: 'own', resourceClaimName: 'claim' }],
    containers: [{ name: 'm', resources: { claims: [{ name: 'own', request: 'r1/sub' }] } }],
  };
  const base = { name: 'm', image: '', imageID: '', ready: true, restartCount: 0, allocatedResourcesStatus: [{ name: 'x.example/gpu', resources: [] }] };
  const status = withClaimHealth(
    pod(spec),
    { containerStatuses: [base] },
    () => info,
    (_, __, device) => (device === 'd1' ? { health: 'Unhealthy', message: 'hot', untilMs: 0 } : null),
  );
  assert.deepEqual(status.containerStatuses?.[0]?.allocatedResourcesStatus, [
    { name: 'x.example/gpu', resources: [] },
    {
      name: 'claim:own/r1/sub',
      resources: [
        { resourceID: 'b/x=1', health: 'Unhealthy', message: 'hot' },
        { resourceID: 'b.example/p/d2', health: 'Unknown' },
      ],
    },
  ]);
  assert.equal(healthMessage('a'.repeat(2000)).length, 1024);
});
