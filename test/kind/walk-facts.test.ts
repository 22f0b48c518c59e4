import assert from 'node:assert/strict';
import { test } from 'node:test';
import { census, first, lastRenewalMs, leastReady, mostLost, overlaps, sendsTo, taintsOf, type Seen, type Told } from './walk-facts.ts';
import { stepLines, Steps, type Step } from './walk-steps.ts';

const pod = (atMs: number, name: string, uid: string, ready: string, type = 'MODIFIED'): Told => ({
  atMs,
  kind: 'pods',
  type,
  object: { metadata: { name, uid, labels: { app: name.split('-')[0] ?? '' } }, status: { conditions: [{ type: 'Ready', status: ready }] } },
});

test('the fewest Ready pods are those of the worst moment after the start', () => {
  const told = [
    pod(0, 'web-a', '1', 'True', 'ADDED'),
    pod(1, 'web-b', '2', 'True', 'ADDED'),
    pod(2, 'redis-0', '9', 'True', 'ADDED'),
    pod(10, 'web-a', '1', 'False'),
    pod(11, 'web-c', '3', 'True'),
    pod(12, 'web-a', '1', 'False', 'DELETED'),
  ];
  assert.equal(leastReady(told, 'web', 5), 1);
  assert.equal(leastReady(told, 'web', 12), 2);
  assert.equal(leastReady(told, 'redis', 0), 0);
});

test('a second pod of a name counts only while the first is there', () => {
  const one = [pod(0, 'redis-0', '1', 'True', 'ADDED'), pod(1, 'redis-0', '1', 'False', 'DELETED'), pod(2, 'redis-0', '2', 'False', 'ADDED')];
  assert.deepEqual(overlaps(one, 'redis-0'), []);
  assert.deepEqual(overlaps([one[0] as Told, one[2] as Told], 'redis-0'), ['2 beside 1']);
});

test('so many nodes may be lost while their pods are still evicted', () => {
  assert.deepEqual(
    [2, 3, 4, 5, 6, 7, 8].map((nodes) => [nodes, mostLost(nodes)]),
    [
      [2, 1],
      [3, 2],
      [4, 2],
      [5, 2],
      [6, 3],
      [7, 3],
      [8, 4],
    ],
  );
});

test('the last renewal before a moment, and the first event after it', () => {
  const lease = (atMs: number, renewTime: string): Told => ({
    atMs,
    kind: 'leases',
    type: 'MODIFIED',
    object: { metadata: { name: 'w' }, spec: { renewTime } },
  });
  const told = [lease(10, '2026-01-01T00:00:00.000000Z'), lease(20, '2026-01-01T00:00:10.500000Z'), lease(30, '2026-01-01T00:00:20.000000Z')];
  assert.equal(lastRenewalMs(told, 'w', 25), Date.parse('2026-01-01T00:00:10.500Z'));
  assert.equal(lastRenewalMs(told, 'other', 25), null);
  assert.equal(first(told, 11, ({ kind }) => kind === 'leases')?.atMs, 20);
});

test('taints, endpoints, and whose pods there are', () => {
  const node: Seen = {
    metadata: { name: 'w' },
    spec: {
      taints: [
        { key: 'k', effect: 'NoSchedule' },
        { key: 'x', effect: 'NoExecute' },
        { key: 'k', effect: 'NoExecute' },
      ],
    },
  };
  assert.deepEqual(taintsOf(node, 'k'), ['NoExecute', 'NoSchedule']);
  const slice = (ready: boolean): Seen => ({ metadata: { name: 's' }, endpoints: [{ addresses: ['10.0.0.2'], nodeName: 'w', conditions: { ready } }] });
  assert.deepEqual([sendsTo(slice(true), 'w'), sendsTo(slice(false), 'w'), sendsTo(slice(true), 'v')], [true, false, false]);
  const mirror: Seen = { metadata: { name: 'etcd', annotations: { 'kubernetes.io/config.mirror': 'h' } } };
  const daemon: Seen = { metadata: { name: 'p', ownerReferences: [{ kind: 'DaemonSet', name: 'p' }] } };
  assert.deepEqual(census([mirror, daemon, daemon, { metadata: { name: 'coredns' } }]), { static: 1, daemons: 2, others: 1 });
});

test('a step that throws has a problem, and those behind it are told as not reached', async () => {
  const told: Step[] = [];
  const steps = new Steps((step) => void told.push(step));
  assert.equal(await steps.step('1', 'good', async (saw) => (saw.note('seen'), 7)), 7);
  assert.equal(
    await steps.step('2', 'bad', async (saw) => {
      saw.check(true, 'so');
      saw.check(false, 'not so');
      throw new Error('ended');
    }),
    null,
  );
  steps.unreached(['2', '3'], 'step 2 failed');
  assert.deepEqual(
    told.map(({ id, saw, problems }) => [id, saw, problems]),
    [
      ['1', ['seen'], []],
      ['2', ['so'], ['not so', 'ended']],
      ['3', [], ['step 2 failed']],
    ],
  );
  assert.match(stepLines(told[1] as Step).join('\n'), /^BAD {2}2 .*bad[\s\S]*so[\s\S]*NOT not so/);
});
