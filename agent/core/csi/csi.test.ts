import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CSINode, Node, PersistentVolume, PersistentVolumeClaim } from '../../../proto/kube/types.ts';
import { readData, publishedData } from './data.ts';
import { expansionOf, failedPatch, finishedPatch } from './expand.ts';
import { newCsiNode, nodePatch, nodePatchWithout, ownsCsiNode, withDriver, withMigrated, withoutDriver } from './node-object.ts';
import { accessModeOf, appliesGroup, isAttached, isFinal, modeProblem, tokensText } from './requests.ts';
import type { NodeCapabilities } from './requests.ts';
import { csiOfPersistentVolume, nameProblem } from './volume.ts';
import type { CsiVolume } from './volume.ts';

const node: Node = { metadata: { name: 'n', uid: 'u' }, spec: {} };
const info = { driver: 'd.example', nodeId: 'id', maxVolumes: 0, topology: { zone: 'z' } };
const none: NodeCapabilities = new Set();

test('a driver goes into the CSINode once, and out again; an API server writes no drivers as null', () => {
  const empty: CSINode = { ...newCsiNode(node), spec: { drivers: null as unknown as [] } };
  const one = withDriver(empty, info);
  assert.deepEqual(one?.spec.drivers, [{ name: 'd.example', nodeID: 'id', topologyKeys: ['zone'] }]);
  assert.equal(withDriver(one, info), null);
  assert.deepEqual(withDriver(one, { ...info, maxVolumes: 2 ** 40 })?.spec.drivers[0]?.allocatable, { count: 2 ** 31 - 1 });
  assert.deepEqual(withoutDriver(one, 'd.example')?.spec.drivers, []);
  assert.equal(withoutDriver(empty, 'd.example'), null);
  assert.equal(withMigrated(empty), null);
  assert.equal(ownsCsiNode(node, empty), true);
  assert.equal(ownsCsiNode({ ...node, metadata: { name: 'n', uid: 'another' } }, empty), false);
});

test('the Node names its drivers in one annotation, and other labels are not overwritten', () => {
  const key = 'csi.volume.kubernetes.io/nodeid';
  assert.deepEqual(nodePatch(node, info), { ok: true, patch: { metadata: { annotations: { [key]: '{"d.example":"id"}' }, labels: { zone: 'z' } } } });
  const there: Node = { ...node, metadata: { ...node.metadata, annotations: { [key]: '{"a":"1","d.example":"id"}' }, labels: { zone: 'z' } } };
  assert.deepEqual(nodePatch(there, info), { ok: true, patch: null });
  assert.deepEqual(nodePatchWithout(there, 'd.example'), { metadata: { annotations: { [key]: '{"a":"1"}' } } });
  assert.equal(nodePatchWithout(node, 'd.example'), null);
  const other = nodePatch({ ...node, metadata: { ...node.metadata, labels: { zone: 'y' } } }, info);
  assert.equal(other.ok ? '' : other.message, 'detected topology value collision: driver reported "zone":"z" but existing label is "zone":"y"');
});

const volume = (change: Partial<CsiVolume> = {}): CsiVolume => ({
  mode: 'Persistent',
  specName: 'pv',
  driver: 'd.example',
  handle: 'h',
  readOnly: false,
  fsType: 'ext4',
  attributes: {},
  mountOptions: [],
  accessModes: ['ReadWriteOnce'],
  isBlock: false,
  stageSecret: null,
  publishSecret: null,
  expandSecret: null,
  ...change,
});

test('names that would lead elsewhere are refused', () => {
  assert.equal(nameProblem(volume()), null);
  for (const change of [{ driver: '../x' }, { driver: 'a..b' }, { driver: '' }, { specName: '../pv' }, { specName: 'a/b' }, { handle: '' }])
    assert.notEqual(nameProblem(volume(change)), null, JSON.stringify(change));
});

test('who owns the files, who attaches, which modes', () => {
  const policy = (fsGroupPolicy: string) => ({ metadata: { name: 'd' }, spec: { fsGroupPolicy } });
  const cases: [Partial<CsiVolume>, string, number | null, NodeCapabilities, boolean][] = [
    [{}, 'ReadWriteOnceWithFSType', 1, none, true],
    [{ fsType: '' }, 'ReadWriteOnceWithFSType', 1, none, false],
    [{ accessModes: ['ReadWriteMany'] }, 'ReadWriteOnceWithFSType', 1, none, false],
    [{ accessModes: ['ReadWriteMany'], fsType: '' }, 'File', 1, none, true],
    [{}, 'None', 1, none, false],
    [{}, 'File', null, none, false],
    [{ readOnly: true }, 'File', 1, none, false],
    [{}, 'File', 1, new Set(['VOLUME_MOUNT_GROUP']), false],
    [{ mode: 'Ephemeral', accessModes: null }, 'ReadWriteOnceWithFSType', 1, none, true],
  ];
  for (const [change, name, group, capabilities, wanted] of cases)
    assert.equal(appliesGroup(volume(change), policy(name), group, capabilities), wanted, `${JSON.stringify(change)} ${name}`);
  assert.equal(isAttached(volume(), null), true);
  assert.equal(isAttached(volume({ mode: 'Ephemeral' }), null), false);
  assert.equal(isAttached(volume(), { metadata: {}, spec: { attachRequired: false } }), false);
  assert.equal(modeProblem(volume(), null), null);
  assert.equal(modeProblem(volume({ mode: 'Ephemeral' }), null), 'volume mode "Ephemeral" not supported by driver d.example (no CSIDriver object)');
  assert.equal(accessModeOf('ReadWriteOncePod', none), 'SINGLE_NODE_WRITER');
  assert.equal(accessModeOf('ReadWriteOncePod', new Set(['SINGLE_NODE_MULTI_WRITER_RPC'])), 'SINGLE_NODE_SINGLE_WRITER');
  assert.deepEqual(['OK', 'Aborted', 'Unavailable', 'Internal'].map(isFinal), [true, false, false, true]);
  const tokens = new Map([
    ['b', { token: '2', expirationTimestamp: 'x' }],
    ['', { token: '1', expirationTimestamp: 'x' }],
  ]);
  assert.equal(tokensText(tokens), '{"":{"token":"1","expirationTimestamp":"x"},"b":{"token":"2","expirationTimestamp":"x"}}');
});

test('what lies beside a volume says all that taking it back needs', () => {
  const text = publishedData(volume(), 'n', 'csi-1');
  assert.equal(
    text,
    '{"attachmentID":"csi-1","driverName":"d.example","nodeName":"n","specVolID":"pv","volumeHandle":"h","volumeLifecycleMode":"Persistent"}\n',
  );
  assert.deepEqual(readData(text), { driver: 'd.example', handle: 'h', specName: 'pv', mode: 'Persistent' });
  for (const bad of ['', '{', '[]', '{"driverName":"d"}', 'null']) assert.equal(readData(bad), null, bad);
});

test('when a volume grows on this node', () => {
  const pv = (storage: string): PersistentVolume => ({ metadata: { name: 'pv' }, spec: { capacity: { storage }, csi: { driver: 'd', volumeHandle: 'h' } } });
  const pvc = (status: PersistentVolumeClaim['status'], accessModes = ['ReadWriteOnce']): PersistentVolumeClaim => ({
    metadata: {},
    spec: { accessModes },
    status,
  });
  const kind = (...args: Parameters<typeof expansionOf>): string => expansionOf(...args).kind;
  const pending = { capacity: { storage: '1Gi' }, allocatedResources: { storage: '2Gi' }, allocatedResourceStatuses: { storage: 'NodeResizePending' } };
  assert.equal(kind(pv('1Gi'), pvc({ capacity: { storage: '1Gi' } }), false, null), 'none');
  assert.equal(kind(pv('2Gi'), pvc({ capacity: { storage: '1Gi' } }), false, null), 'expand');
  assert.equal(kind(pv('2Gi'), pvc({ capacity: { storage: '1Gi' } }), true, null), 'refused');
  assert.equal(kind(pv('2Gi'), pvc(pending), false, null), 'expand');
  assert.equal(kind(pv('2Gi'), pvc({ ...pending, allocatedResourceStatuses: { storage: 'ControllerResizeInProgress' } }), false, null), 'none');
  assert.equal(kind(pv('2Gi'), pvc({ ...pending, allocatedResourceStatuses: { storage: 'NodeResizeInfeasible' } }), false, null), 'none');
  const done = { capacity: { storage: '2Gi' }, allocatedResources: { storage: '2Gi' } };
  assert.equal(kind(pv('2Gi'), pvc(done, ['ReadWriteMany']), false, 1n << 30n), 'expand');
  assert.equal(kind(pv('2Gi'), pvc(done, ['ReadWriteMany']), false, 2n << 30n), 'none');
  assert.equal(kind(pv('2Gi'), pvc(done), false, 1n << 30n), 'none');
  assert.deepEqual(
    finishedPatch(
      pvc({
        ...pending,
        conditions: [
          { type: 'Resizing', status: 'True' },
          { type: 'Other', status: 'True' },
        ],
      }),
      '2Gi',
    ).status,
    {
      capacity: { storage: '2Gi' },
      allocatedResourceStatuses: null,
      conditions: [{ $patch: 'delete', type: 'Resizing' }],
    },
  );
  assert.deepEqual(failedPatch(pvc(pending), 'no', true, 't').status['allocatedResourceStatuses'], { storage: 'NodeResizeInfeasible' });
});

test('a PersistentVolume as its driver hears of it', () => {
  const secret = { name: 's', namespace: 'ns' };
  const pv: PersistentVolume = {
    metadata: { name: 'pv' },
    spec: { volumeMode: 'Block', mountOptions: ['noatime'], csi: { driver: 'd', volumeHandle: 'h', nodeStageSecretRef: secret } },
  };
  const found = csiOfPersistentVolume(pv, true);
  assert.deepEqual([found?.isBlock, found?.readOnly, found?.stageSecret, found?.publishSecret, found?.mountOptions], [true, true, secret, null, ['noatime']]);
  assert.equal(csiOfPersistentVolume({ metadata: {}, spec: { hostPath: { path: '/' } } }, false), null);
});
