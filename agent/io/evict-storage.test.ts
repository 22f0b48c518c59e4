import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { StorageEviction } from './evict-storage.ts';

const signal = new AbortController().signal;
const podOf = (uid: string, given: Partial<Pod> = {}): Pod => ({
  metadata: { name: uid, namespace: 'n', uid },
  spec: { containers: [{ name: 'm' }], volumes: [{ name: 'd', emptyDir: { sizeLimit: '10Mi' } }] },
  ...given,
});

test('who exceeds its limit is told and evicted with a second to stop; a hung disk evicts nobody', async () => {
  const clock = createFakeClock();
  const bytes: Record<string, number> = { big: 30 << 20, small: 1 << 20, system: 30 << 20, done: 30 << 20, gone: 30 << 20 };
  const walked: string[] = [];
  const events: string[] = [];
  const evicted: unknown[] = [];
  const pods = [
    podOf('big'),
    podOf('small'),
    podOf('hung'),
    podOf('system'),
    podOf('done', { status: { phase: 'Failed' } }),
    podOf('gone'),
    podOf('free', { spec: { containers: [{ name: 'm' }], volumes: [{ name: 'd', emptyDir: {} }] } }),
  ];
  pods[3]!.spec.priority = 2_000_001_000;
  const eviction = new StorageEviction({
    cri: { runtime: { listContainerStats: async () => ({ stats: [] }) } },
    sys: {
      async diskUsage(path) {
        const uid = path.split('/')[3] ?? '';
        walked.push(uid);
        if (uid === 'hung') throw new OpError('deadline', 'du', 'killed');
        return { bytes: bytes[uid] ?? 0, inodes: 1 };
      },
    },
    clock,
    log: silentLog,
    events: { event: (target, type, reason, message) => void events.push(`${target.name} ${type} ${reason} ${message}`) },
    pods: { list: () => pods, mayRun: (uid) => uid !== 'gone', evict: async (uid, options) => void evicted.push([uid, options]) },
    rootDir: '/r',
    podLogsDir: '/logs',
  });
  const stop = new AbortController();
  const running = eviction.run(AbortSignal.any([signal, stop.signal]));
  await clock.advance(30_000);
  const message = 'Usage of EmptyDir volume "d" exceeds the limit "10Mi". ';
  assert.deepEqual(walked, ['big', 'small', 'hung', 'system']);
  assert.deepEqual(events, [`big Warning Evicted ${message}`]);
  assert.deepEqual(evicted, [['big', { reason: 'Evicted', message, graceMs: 1000 }]]);
  stop.abort();
  await running;
});
