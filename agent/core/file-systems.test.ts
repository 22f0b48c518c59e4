import assert from 'node:assert/strict';
import { test } from 'node:test';
import { diskCounts, countsOf, trackedMounts } from './file-systems.ts';
import { linksOf } from './net-dev.ts';

test('interfaces with what they counted, without loopback and the ends of pods’ links', () => {
  const text =
    'Inter-|   Receive\n face |bytes\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n  eth0: 10 2 3 4 0 0 0 0 50 6 7 8 0 0 0 0\nveth1234: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n';
  assert.deepEqual(linksOf(text), [
    { name: 'eth0', rxBytes: 10, rxPackets: 2, rxErrors: 3, rxDropped: 4, txBytes: 50, txPackets: 6, txErrors: 7, txDropped: 8 },
  ]);
});

test('the node’s own file systems: a disk once, a tmpfs by its place, nothing of pods and containers', () => {
  const line = (place: string, kind: string, source: string, device = '0:5'): string => `1 2 ${device} / ${place} rw - ${kind} ${source} rw`;
  const mounts = [
    line('/', 'ext4', '/dev/vda', '254:0'),
    line('/again', 'ext4', '/dev/vda', '254:0'),
    line('/run', 'tmpfs', 'tmpfs'),
    line('/proc', 'proc', 'proc'),
    line('/var/lib/kubelet/pods/u/volumes/x', 'tmpfs', 'tmpfs'),
    line('/mnt', 'nfs4', 'server:/x'),
  ];
  assert.deepEqual(trackedMounts(mounts.join('\n'), ['/var/lib/kubelet']), [
    { name: '/dev/vda', target: '/', device: '254:0' },
    { name: '/run', target: '/run', device: '0:5' },
  ]);
});

test('what the kernel counts of disks; nothing of what is none', () => {
  const disks = diskCounts(' 254       0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0\n');
  assert.equal(disks.get('254:0')?.name, 'vda');
  assert.deepEqual(Object.values(countsOf(disks, '254:0')), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  assert.deepEqual(new Set(Object.values(countsOf(disks, '0:5'))), new Set([0]));
});
