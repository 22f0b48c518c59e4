import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { allStarted, coveredMs, isStateful, startLatency, wasUnschedulable } from './start-latency.ts';

const at = (seconds: number): string => new Date(1_700_000_000_000 + seconds * 1000).toISOString();

test('time that pulls cover is counted once', () => {
  assert.equal(coveredMs([]), 0);
  assert.equal(
    coveredMs([
      { fromMs: 10, toMs: 20 },
      { fromMs: 0, toMs: 12 },
      { fromMs: 13, toMs: 14 },
      { fromMs: 30, toMs: 35 },
    ]),
    25,
  );
});

test('pulls and init containers do not count as the start of a pod', () => {
  const pod: Pod = {
    metadata: { name: 'p', creationTimestamp: at(0) },
    spec: { containers: [{ name: 'm' }] },
    status: {
      initContainerStatuses: [
        { name: 'i', image: '', imageID: '', ready: true, restartCount: 0, state: { terminated: { exitCode: 0, startedAt: at(2), finishedAt: at(5) } } },
      ],
      containerStatuses: [{ name: 'm', image: '', imageID: '', ready: true, restartCount: 0, state: { running: { startedAt: at(8) } } }],
    },
  };
  assert.equal(allStarted(pod.status), true);
  assert.equal(allStarted({}), false);
  const seenMs = 1_700_000_010_000;
  assert.deepEqual(startLatency(pod, [{ fromMs: seenMs - 4_000, toMs: seenMs - 2_000 }], seenMs), { totalMs: 10_000, sliMs: 5_000 });
});

test('whose start is not told', () => {
  const pod = (volumes: Pod['spec']['volumes'], status: string): Pod => ({
    metadata: { name: 'p' },
    spec: { containers: [], volumes },
    status: { conditions: [{ type: 'PodScheduled', status }] },
  });
  assert.equal(wasUnschedulable(pod([], 'False')), true);
  assert.equal(wasUnschedulable(pod([], 'True')), false);
  assert.equal(
    isStateful(
      pod(
        [
          { name: 'a', emptyDir: {} },
          { name: 'b', projected: { sources: [] } },
        ],
        'True',
      ),
    ),
    false,
  );
  assert.equal(isStateful(pod([{ name: 'a', hostPath: { path: '/x' } }], 'True')), true);
});
