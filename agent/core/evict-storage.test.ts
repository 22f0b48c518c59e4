import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { isCritical, storageNeeds, storageVerdict } from './evict-storage.ts';

const limited = (limit: string): Pod['spec']['containers'][number] => ({ name: 'm', resources: { limits: { 'ephemeral-storage': limit } } });
const podOf = (spec: Partial<Pod['spec']>): Pod => ({ metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [{ name: 'm' }], ...spec } });
const mi = (count: number): bigint => BigInt(count) << 20n;

test('a pod is evicted for what it put on the disk beyond its own limits', () => {
  const sized = podOf({ volumes: [{ name: 'd', emptyDir: { sizeLimit: '10Mi' } }] });
  const memory = podOf({ volumes: [{ name: 'd', emptyDir: { sizeLimit: '10Mi', medium: 'Memory' } }] });
  const both = podOf({ containers: [limited('10Mi')], volumes: [{ name: 'e', emptyDir: {} }] });
  const two = podOf({ containers: [limited('20Mi'), { ...limited('5Mi'), name: 'b' }] });
  const cases: [string, Pod, Record<string, number>, Record<string, number>, string | null][] = [
    ['within', sized, { d: 10 }, {}, null],
    ['an emptyDir beyond', sized, { d: 11 }, {}, 'Usage of EmptyDir volume "d" exceeds the limit "10Mi". '],
    ['in memory the kernel holds it', memory, { d: 11 }, {}, null],
    ['volumes and containers together', both, { e: 6 }, { m: 5 }, 'Pod ephemeral local storage usage exceeds the total limit of containers 10Mi. '],
    ['one container beyond', two, {}, { m: 1, b: 6 }, 'Container b exceeded its local ephemeral storage limit "5Mi". '],
    ['nothing measured', both, {}, {}, null],
  ];
  for (const [name, pod, volumes, containers, expected] of cases) {
    const bytes = (use: Record<string, number>): Map<string, bigint> => new Map(Object.entries(use).map(([key, count]) => [key, mi(count)]));
    assert.equal(storageVerdict(pod, { volumes: bytes(volumes), containers: bytes(containers) })?.message ?? null, expected, name);
  }
});

test('only what has a limit is measured', () => {
  assert.deepEqual(storageNeeds(podOf({ volumes: [{ name: 'e', emptyDir: {} }] })), { volumes: [], containers: [] });
  assert.deepEqual(storageNeeds(podOf({ volumes: [{ name: 'e', emptyDir: { sizeLimit: '1Mi' } }] })), {
    volumes: [{ name: 'e', dir: 'volumes/kubernetes.io~empty-dir/e' }],
    containers: [],
  });
  const whole = storageNeeds(
    podOf({
      containers: [limited('1Mi')],
      volumes: [
        { name: 'e', emptyDir: {} },
        { name: 'c', configMap: {} },
        { name: 'm', emptyDir: { medium: 'Memory' } },
      ],
    }),
  );
  assert.deepEqual([whole.volumes.map((volume) => volume.name), whole.containers], [['e', 'c'], ['m']]);
});

test('critical pods stay', () => {
  assert.equal(isCritical(podOf({})), false);
  assert.equal(isCritical(podOf({ priority: 2_000_000_000 })), true);
  assert.equal(isCritical({ ...podOf({}), metadata: { annotations: { 'kubernetes.io/config.source': 'file' } } }), true);
});
