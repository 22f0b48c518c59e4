import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StorageBackendHealth, VolumeCapability } from '../../../proto/plugins/csi.ts';
import { sameStorageHealth, storageConditions, volumeConditions, withVolumeHealth } from './health.ts';

test('what drivers say of volumes, in the words of a pod', () => {
  const healthStatuses = [
    { status: 'DATA_LOSS', reason: 'Disk', message: 'half of it' },
    { status: 'UNKNOWN_VOLUME_HEALTH_TYPE', reason: 'New', message: '' },
    { status: 'DEGRADED', reason: 'Path', message: '' },
  ] as const;
  assert.deepEqual(volumeConditions({ volumeId: 'v', healthStatuses: [...healthStatuses] }), {
    ok: true,
    conditions: [
      { status: 'DataLoss', reason: 'Disk', message: 'half of it' },
      { status: 'Degraded', reason: 'Path' },
    ],
  });
  assert.deepEqual(volumeConditions(null), { ok: true, conditions: [] });
});

test('what the API server would refuse with the whole status is not taken from a driver', () => {
  const entry = (reason: string, message = '') => ({ status: 'DEGRADED', reason, message }) as const;
  const told = (...healthStatuses: ReturnType<typeof entry>[]) => volumeConditions({ volumeId: 'v', healthStatuses });
  for (const reason of ['', 'disk is gone', 'Disk-1', 'x'.repeat(257)]) assert.equal(told(entry('Path'), entry(reason)).ok, false, reason);
  assert.deepEqual(told(entry('disk is gone')), { ok: false, message: 'NodeGetVolumeHealth condition 0 has invalid reason: "disk is gone"' });
  assert.deepEqual(told(...Array.from({ length: 17 }, (_, index) => entry(`R${index}`))), {
    ok: false,
    message: 'NodeGetVolumeHealth returned 17 conditions, maximum is 16',
  });
  // One reason twice is one condition: the list is a map.
  assert.deepEqual(told(entry('Path', 'a'), entry('Path', 'b')), { ok: true, conditions: [{ status: 'Degraded', reason: 'Path', message: 'b' }] });
  const long = told(entry('Path', `${'x'.repeat(1023)}éé`));
  assert.equal(long.ok && long.conditions[0]?.message, 'x'.repeat(1023));
  const storage = storageConditions([{ status: 'STORAGE_DEGRADED', reason: 'no net', message: '', volumeCapability: null }]);
  assert.deepEqual(storage, { ok: false, message: 'NodeGetStorageHealth condition 0 has invalid reason: "no net"' });
});

test('a volume is told anew when what is wrong has changed, not when it is told in other words', () => {
  const bad = { status: 'Degraded', reason: 'Path' };
  const first = withVolumeHealth([{ name: 'other' }], 'v', [bad], 't1');
  assert.deepEqual(first, [{ name: 'other' }, { name: 'v', healthConditions: [bad], lastTransitionTime: 't1' }]);
  assert.equal(withVolumeHealth(first ?? [], 'v', [{ ...bad, message: 'still' }], 't2'), null);
  assert.deepEqual(withVolumeHealth(first ?? [], 'v', [], 't3'), [{ name: 'other' }, { name: 'v', lastTransitionTime: 't3' }]);
  assert.equal(withVolumeHealth([], 'v', [], 't'), null, 'all is well from the start');
});

test('what drivers say of their storage', () => {
  const capability = (change: Partial<VolumeCapability>): VolumeCapability => ({ block: null, mount: null, accessMode: null, ...change });
  const entry = (change: Partial<StorageBackendHealth>): StorageBackendHealth => ({
    status: 'STORAGE_UNREACHABLE',
    reason: 'Net',
    message: '',
    volumeCapability: null,
    ...change,
  });
  const shared = capability({ block: {}, accessMode: { mode: 'MULTI_NODE_MULTI_WRITER' } });
  const told = storageConditions([
    entry({}),
    entry({ status: 'STORAGE_DEGRADED', volumeCapability: shared }),
    entry({ status: 'UNKNOWN_STORAGE_HEALTH_ERROR_TYPE' }),
  ]);
  assert.deepEqual(told.ok && told.conditions, [
    { status: 'StorageUnreachable', reason: 'Net' },
    { status: 'StorageDegraded', reason: 'Net', accessMode: 'ReadWriteMany', volumeMode: 'Block' },
  ]);
  const refused = (...entries: StorageBackendHealth[]): string => {
    const answer = storageConditions(entries);
    return answer.ok ? '' : answer.message;
  };
  assert.equal(refused(...Array.from({ length: 17 }, () => entry({}))), 'NodeGetStorageHealth returned 17 conditions, maximum is 16');
  assert.equal(refused(entry({ volumeCapability: capability({}) })), 'NodeGetStorageHealth condition 0 has invalid volume capability: access type is required');
  const one = { status: 'StorageDegraded', reason: 'Net' };
  assert.ok(sameStorageHealth([one, one], [{ ...one, message: 'other words' }]));
  assert.ok(!sameStorageHealth([one], [{ ...one, accessMode: 'ReadWriteOnce' }]));
});
