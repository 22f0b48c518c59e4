import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { Driver } from './csi/drivers.ts';
import { VolumeStats } from './volume-stats.ts';
import type { MeasuredVolume } from './volume-stats.ts';

test('volumes are measured each in its way; what hangs is left out; claims are told once', async () => {
  const claim = { namespace: 'ns', name: 'data' };
  const csi = { driver: 'd.example', handle: 'h' };
  const volumes: MeasuredVolume[] = [
    { uid: 'u1', name: 'e', how: 'walk', path: '/e', claim: null, csi: null },
    { uid: 'u3', name: 's', how: 'once', path: '/s', claim: null, csi: null },
    { uid: 'u1', name: 'hangs', how: 'fs', path: '/hangs', claim, csi: null },
    { uid: 'u1', name: 'c', how: 'csi', path: '/c', claim, csi },
    { uid: 'u2', name: 'c', how: 'csi', path: '/c2', claim, csi },
    { uid: 'u2', name: 'gone', how: 'csi', path: '/x', claim: null, csi: { driver: 'other', handle: 'h' } },
  ];
  const asked: object[] = [];
  const walked: string[] = [];
  const driver = {
    capabilities: async () => new Set(['GET_VOLUME_STATS']),
    call: async (_: string, request: object) => {
      asked.push(request);
      return { usage: [{ unit: 'BYTES', total: '10', available: '4', used: '6' }], volumeCondition: null };
    },
  } as unknown as Driver;
  const stats = new VolumeStats({
    periodMs: 60_000,
    clock: createFakeClock(),
    log: silentLog,
    sys: {
      async statfs(path) {
        if (path === '/hangs') throw new Error('no answer');
        return { totalBytes: 100, freeBytes: 60, availableBytes: 50, inodes: 10, inodesFree: 7, magic: 0 };
      },
      async diskUsage(path) {
        walked.push(path);
        return { bytes: 3, inodes: 2 };
      },
    },
    drivers: { find: (name) => (name === 'd.example' ? driver : undefined) },
    volumes: () => volumes,
  });
  assert.equal(stats.text(), '');
  await stats.measure(new AbortController().signal);
  assert.deepEqual(
    stats.of('u1').map(({ name, usedBytes, availableBytes, inodesUsed }) => [name, usedBytes, availableBytes, inodesUsed]),
    [
      ['e', 3, 50, 2],
      ['c', 6, 4, 0],
    ],
  );
  assert.deepEqual(asked, [
    { volumeId: 'h', volumePath: '/c' },
    { volumeId: 'h', volumePath: '/c2' },
  ]);
  const counted = [...stats.text().matchAll(/^kubelet_volume_metric_collection_duration_seconds_count\{metric_source="([^"]+)"\} (\d)$/gm)];
  assert.deepEqual(
    counted.map(([, source, count]) => `${source} ${count}`),
    ['du 2', 'statfs 1', 'd.example 2', 'other 1'],
  );
  await stats.measure(new AbortController().signal);
  assert.deepEqual(walked, ['/e', '/s', '/e']);
  const lines = stats
    .text()
    .split('\n')
    .filter((line) => line.includes('used_bytes{'));
  assert.deepEqual(lines, ['kubelet_volume_stats_used_bytes{namespace="ns",persistentvolumeclaim="data"} 6']);
});
