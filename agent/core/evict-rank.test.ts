import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { diskParts, nodeReclaims, rankPods } from './evict-rank.ts';
import type { PodUse } from './evict-rank.ts';
import { thresholdsOf } from './evict-thresholds.ts';
import type { DiskLayout, EvictionSignal, Observation } from './evict-thresholds.ts';
import { evictionWords } from './evict-words.ts';
import { parseQuantity } from './quantity.ts';

const mi = (count: number): bigint => BigInt(count) << 20n;
interface Given {
  priority?: number;
  memory?: string;
  storage?: string;
  use?: Partial<PodUse> | null;
}
const uses = new Map<string, PodUse>();
function pod(name: string, { priority, memory, storage, use = {} }: Given): Pod {
  const requests = { ...(memory === undefined ? {} : { memory }), ...(storage === undefined ? {} : { 'ephemeral-storage': storage }) };
  if (use !== null) uses.set(name, { memoryBytes: null, processes: 0n, containers: [], volumes: new Map(), ...use });
  return {
    metadata: { name, namespace: 'n', uid: name },
    spec: {
      ...(priority === undefined ? {} : { priority }),
      containers: [{ name: 'm', resources: { requests } }],
      volumes: [
        { name: 'd', emptyDir: {} },
        { name: 'ram', emptyDir: { medium: 'Memory' } },
      ],
    },
  };
}
const useOf = (each: Pod): PodUse | undefined => uses.get(each.metadata.uid ?? '');
const ranked = (pods: readonly Pod[], signal: EvictionSignal, layout: DiskLayout = 'one'): string[] =>
  rankPods(pods, useOf, signal, layout).map(({ metadata }) => metadata.name ?? '');

test('memory: beyond requests, then priority, then the most beyond; what was not measured goes first', () => {
  const pods = [
    pod('within', { memory: '200Mi', use: { memoryBytes: mi(190) } }),
    pod('beyond-important', { priority: 10, memory: '1Mi', use: { memoryBytes: mi(500) } }),
    pod('beyond-little', { memory: '100Mi', use: { memoryBytes: mi(110) } }),
    pod('beyond-much', { memory: '100Mi', use: { memoryBytes: mi(150) } }),
    pod('best-effort', { use: { memoryBytes: mi(120) } }),
    pod('unmeasured', { priority: 100, use: null }),
    pod('within-less', { memory: '200Mi', use: { memoryBytes: mi(20) } }),
  ];
  assert.deepEqual(ranked(pods, 'memory.available'), [
    'unmeasured',
    'best-effort',
    'beyond-much',
    'beyond-little',
    'beyond-important',
    'within',
    'within-less',
  ]);
});

test('disk: what counts depends on where things lie; volumes in memory never do', () => {
  const disk = (bytes: number): { bytes: bigint; inodes: bigint } => ({ bytes: mi(bytes), inodes: 1n });
  const container = (rootfs: number, logs: number) => ({ name: 'm', memoryBytes: null, rootfs: disk(rootfs), logs: disk(logs) });
  const pods = [
    pod('writes', { use: { containers: [container(50, 0)] } }),
    pod('logs', { use: { containers: [container(0, 40)] } }),
    pod('volume', {
      use: {
        containers: [container(0, 0)],
        volumes: new Map([
          ['d', disk(60)],
          ['ram', disk(900)],
        ]),
      },
    }),
    pod('asked', { storage: '1Gi', use: { containers: [container(500, 500)] } }),
  ];
  assert.deepEqual(ranked(pods, 'nodefs.available'), ['volume', 'writes', 'logs', 'asked']);
  assert.deepEqual(ranked(pods, 'nodefs.available', 'dedicated'), ['volume', 'logs', 'writes', 'asked']);
  assert.deepEqual(ranked(pods, 'imagefs.available', 'dedicated').slice(0, 1), ['writes']);
});

test('processes: priority, then how many', () => {
  const pods = [pod('a', { use: { processes: 3n } }), pod('b', { use: { processes: 300n } }), pod('c', { priority: -1, use: { processes: 1n } })];
  assert.deepEqual(ranked(pods, 'pid.available'), ['c', 'b', 'a']);
});

test('what the node gives up before pods do, and what is counted, by where things lie', () => {
  const cases: [EvictionSignal, DiskLayout, string, string][] = [
    ['memory.available', 'one', '', 'rootfs logs volumes'],
    ['nodefs.available', 'one', 'containers images', 'rootfs logs volumes'],
    ['nodefs.inodesFree', 'dedicated', '', 'logs volumes'],
    ['imagefs.available', 'dedicated', 'containers images', 'rootfs'],
    ['containerfs.available', 'dedicated', 'containers images', 'rootfs'],
    ['imagefs.available', 'split', 'images', ''],
    ['nodefs.available', 'split', 'containers', 'rootfs logs volumes'],
  ];
  for (const [signal, layout, reclaims, parts] of cases)
    assert.deepEqual([nodeReclaims(signal, layout).join(' '), diskParts(signal, layout).join(' ')], [reclaims, parts], `${signal} ${layout}`);
});

test('the words of an eviction, and what its Event carries', () => {
  const thresholds = thresholdsOf({
    evictionHard: { 'memory.available': '100Mi', 'pid.available': '50' },
    evictionSoft: {},
    evictionSoftGracePeriod: {},
    evictionMinimumReclaim: {},
    enforceNodeAllocatable: [],
  });
  const observed = (available: string): Observation => ({ available: parseQuantity(available), capacity: parseQuantity('24683656Ki') });
  const observations = new Map<EvictionSignal, Observation>([
    ['memory.available', observed('95Mi')],
    ['pid.available', observed('40')],
  ]);
  const victim = pod('p', { memory: '10Mi', use: { memoryBytes: mi(70), containers: [{ name: 'm', memoryBytes: mi(64) + 4096n, rootfs: null, logs: null }] } });
  assert.deepEqual(evictionWords('memory', victim, useOf(victim), thresholds, observations), {
    message:
      'The node was low on resource: memory. Threshold quantity: 100Mi, available: 95Mi. Container m was using 65540Ki, request is 10Mi, has larger consumption of memory. ',
    annotations: { offending_containers: 'm', offending_containers_usage: '65540Ki', starved_resource: 'memory' },
  });
  assert.equal(
    evictionWords('pids', victim, useOf(victim), thresholds, observations).message,
    'The node was low on resource: pids. Threshold quantity: 50, available: 40. ',
  );
  assert.deepEqual(evictionWords('memory', victim, undefined, thresholds, observations).annotations, {});
  const whole = { ...victim, spec: { ...victim.spec, resources: { requests: { memory: '20Mi' } } } };
  assert.match(
    evictionWords('memory', whole, useOf(victim), thresholds, observations).message,
    /Pod p was using 70Mi, request is 20Mi, has larger consumption of memory\. Container m/,
  );
});
