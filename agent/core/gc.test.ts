import assert from 'node:assert/strict';
import { test } from 'node:test';
import { freeDiskSpaceFailed, planImageGc, recordImages } from './gc-images.ts';
import type { ImageFacts, ImageGcPolicy, ImageRecord } from './gc-images.ts';
import { goneLogDirs, planContainerGc, unknownLogLinks } from './gc.ts';
import type { ContainerGcInput } from './gc.ts';
import type { ContainerFacts, PodFacts, SandboxFacts } from './types.ts';

const container = (id: string, createdAtMs: number, given: Partial<ContainerFacts> = {}): ContainerFacts =>
  ({ id, sandboxId: 's1', name: 'm', attempt: 0, state: 'exited', createdAtMs, ...given }) as ContainerFacts;
const sandbox = (id: string, createdAtMs: number, ready = false): SandboxFacts => ({ id, uid: 'u', attempt: 0, ready, createdAtMs }) as SandboxFacts;
const podOf = (containers: ContainerFacts[], sandboxes: SandboxFacts[] = [], uid = 'u'): PodFacts => ({
  uid,
  namespace: 'n',
  name: 'p',
  sandboxes,
  containers,
});

function plan(pods: PodFacts[], given: Partial<ContainerGcInput> = {}): { containers: string[]; sandboxes: string[] } {
  const result = planContainerGc({ pods, maxPerPodContainer: 1, maxContainers: -1, minAgeMs: 0, nowMs: 1000, isGone: () => false, ...given });
  return { containers: result.containers.map((each) => (each.stopFirst ? `stop ${each.id}` : each.id)), sandboxes: result.sandboxes.map((each) => each.id) };
}

test('of each container the newest dead one stays', () => {
  const pod = podOf(
    [container('a1', 1), container('a3', 3), container('a2', 2), container('run', 9, { state: 'running' }), container('b1', 1, { name: 'b' })],
    [sandbox('s1', 1, true)],
  );
  assert.deepEqual(plan([pod]), { containers: ['a1', 'a2'], sandboxes: [] });
  assert.deepEqual(plan([pod], { maxPerPodContainer: -1 }).containers, []);
  assert.deepEqual(plan([pod], { maxPerPodContainer: 0 }).containers, ['a1', 'a2', 'a3', 'b1'], 'while it goes on, the newest is still the newest');
  assert.deepEqual(plan([pod], { maxPerPodContainer: 2, maxContainers: 0 }).containers.slice(0, 2), ['a1', 'a2']);
  assert.deepEqual(plan([pod], { minAgeMs: 998 }).containers, ['a1'], 'young ones stay and do not count');
});

test('the newest is the one of the highest number, also when the clock was set back between two', () => {
  const pod = podOf(
    [container('late', 9, { attempt: 1, sandboxId: 's0' }), container('set-back', 5, { attempt: 2, sandboxId: 's0' })],
    [
      { ...sandbox('s1', 9), attempt: 1 },
      { ...sandbox('s2', 5), attempt: 2 },
    ],
  );
  assert.deepEqual(plan([pod]), { containers: ['late'], sandboxes: ['s1'] });
});

test('of a gone pod nothing stays; unknown containers are stopped first', () => {
  const pod = podOf(
    [container('a1', 1), container('a2', 2, { state: 'unknown' }), container('run', 3, { state: 'running' })],
    [sandbox('s1', 1), sandbox('s2', 2)],
  );
  assert.deepEqual(plan([pod], { isGone: () => true }), { containers: ['a1', 'stop a2'], sandboxes: ['s2'] }, 's1 still holds a running container');
});

test('a bound for the node is shared, then the oldest go', () => {
  const pods = [
    podOf([container('a1', 1), container('a2', 5)], [], 'u1'),
    podOf([container('b1', 2), container('b2', 6)], [], 'u2'),
    podOf([container('c1', 3)], [], 'u3'),
  ];
  assert.deepEqual(plan(pods, { maxPerPodContainer: -1, maxContainers: 2 }).containers.toSorted(), ['a1', 'b1', 'c1']);
});

test('of sandboxes the newest stays, and ready and used ones', () => {
  const pod = podOf([container('a', 1, { sandboxId: 's2' })], [sandbox('s1', 1), sandbox('s2', 2), sandbox('s3', 3), sandbox('s4', 4, true), sandbox('s5', 5)]);
  assert.deepEqual(plan([pod]).sandboxes, ['s3', 's1']);
});

test('log directories of gone pods', () => {
  assert.deepEqual(
    goneLogDirs(['n_p_u1', 'n_p_u2', 'other', 'lost+found'], (uid) => uid === 'u1'),
    ['n_p_u1'],
  );
});

const policy: ImageGcPolicy = { highThresholdPercent: 85, lowThresholdPercent: 80, minAgeMs: 0, maxAgeMs: 0 };
const image = (id: string, given: Partial<ImageFacts> = {}): ImageFacts => ({ id, repoTags: [], repoDigests: [], sizeBytes: 10, pinned: false, ...given });

test('a full disk frees the least recently used, never pinned or used images', () => {
  const known = new Map<string, ImageRecord>([['free2', { id: 'free2', firstSeenMs: 0, lastUsedMs: 500, sizeBytes: 10, isKept: false }]]);
  const images = [
    image('pause', { pinned: true }),
    image('oldpause', { repoTags: ['registry.k8s.io/pause:3.6'] }),
    image('used'),
    image('usedold', { repoDigests: ['r@sha256:1'] }),
    image('free1', { sizeBytes: 20 }),
    image('free2'),
  ];
  const records = recordImages(
    known,
    images,
    [
      { imageId: 'used', imageRef: '' },
      { imageId: '', imageRef: 'r@sha256:1' },
    ],
    new Set(['registry.k8s.io/pause:3.6']),
    1000,
  );
  const full = planImageGc({ records, policy, capacityBytes: 100, availableBytes: 5, nowMs: 1000, beganMs: 0 });
  assert.deepEqual([full.usedPercent, full.bytesToFree, full.candidates.map((each) => each.id)], [95, 15, ['free1', 'free2']]);
  const roomy = planImageGc({ records, policy, capacityBytes: 100, availableBytes: 16, nowMs: 1000, beganMs: 0 });
  assert.deepEqual([roomy.usedPercent, roomy.bytesToFree, roomy.candidates], [84, 0, []]);
  const young = planImageGc({ records, policy: { ...policy, minAgeMs: 1 }, capacityBytes: 100, availableBytes: 5, nowMs: 1000, beganMs: 0 });
  assert.deepEqual(
    young.candidates.map((each) => each.id),
    ['free2'],
    'just pulled is about to be used',
  );
});

test('by runtime handler: an image counts for each it was pulled for', () => {
  const records = recordImages(
    new Map(),
    [image('a', { handler: 'runc' }), image('a', { handler: 'kata' }), image('b')],
    [{ imageId: 'a', imageRef: '', handler: 'kata' }],
    new Set(),
    1000,
  );
  assert.deepEqual(
    [...records].map(([key, { id, handler, isKept }]) => [key, id, handler, isKept]),
    [
      ['a,runc', 'a', 'runc', false],
      ['a,kata', 'a', 'kata', true],
      ['b', 'b', undefined, false],
    ],
  );
});

test('images that nobody used for long go, counted anew after a restart', () => {
  const records = recordImages(new Map(), [image('a'), image('b')], [{ imageId: 'b', imageRef: '' }], new Set(), 1000);
  const of = (nowMs: number, beganMs: number): string[] =>
    planImageGc({ records, policy: { ...policy, maxAgeMs: 100 }, capacityBytes: 100, availableBytes: 50, nowMs, beganMs }).tooOld.map((each) => each.id);
  assert.deepEqual(of(1200, 1000), ['a']);
  assert.deepEqual(of(1200, 1150), []);
});

test('the words when too little can be freed', () => {
  assert.match(
    freeDiskSpaceFailed(95, 20 * 2 ** 30, 0),
    /^Insufficient free disk space on the node's image filesystem \(95% of 20\.0 GiB used\)\. Failed to free sufficient space by deleting unused images \(freed 0 bytes\)\./,
  );
});

test('links to logs of containers that are not there', () => {
  const names = ['p_n_m-abc1.log', 'p_n_a-b-abc2.log', 'p_n_m-abc3.log', 'other.log', 'p_n.log'];
  assert.deepEqual(
    unknownLogLinks(names, (id) => id === 'abc1').map(({ id }) => id),
    ['abc2', 'abc3'],
  );
});
