import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ContainerStatus, Pod, PodStatus } from '../../proto/kube/types.ts';
import { Auditor } from './auditor.ts';
import type { SeenContainer, SeenSandbox } from './auditor.ts';

/* The auditor on histories made by hand: good ones it lets pass, each harm it names. */

const status = (given: Partial<ContainerStatus>): ContainerStatus => ({ name: 'm', image: 'i', imageID: 'i', ready: false, restartCount: 0, ...given });
const pod = (given: PodStatus): Pod => ({
  metadata: { name: 'p', namespace: 'n', uid: 'u' },
  spec: { containers: [{ name: 'm' }], terminationGracePeriodSeconds: 2 },
  status: given,
});
const runs = (id: string, restartCount = 0, more: Partial<ContainerStatus> = {}): PodStatus => ({
  phase: 'Running',
  startTime: 't',
  containerStatuses: [status({ containerID: `containerd://${id}`, restartCount, state: { running: {} }, ...more })],
});
const container = (id: string, attempt: number, running: boolean, createdAtMs = 0, ran = true): SeenContainer => ({
  id,
  uid: 'u',
  name: 'm',
  attempt,
  running,
  ran,
  createdAtMs,
});
/** Made, and not started. */
const made = (id: string, attempt: number, createdAtMs = 0): SeenContainer => container(id, attempt, false, createdAtMs, false);
/** What a status tells of one. */
const waits = (id: string, restartCount: number, more: Partial<ContainerStatus> = {}): PodStatus => runs(id, restartCount, { state: { waiting: {} }, ...more });
const sandbox = (id: string, ready: boolean): SeenSandbox => ({ id, uid: 'u', ready });

type Step = { at: number } & ({ pod: PodStatus | 'deleted' } | { taken: string } | { containers: SeenContainer[]; sandboxes?: SeenSandbox[] });

function rules(...steps: Step[]): string[] {
  const auditor = new Auditor();
  for (const step of steps) {
    const atMs = step.at * 1000;
    if ('pod' in step) auditor.pod(step.pod === 'deleted' ? 'DELETED' : 'MODIFIED', pod(step.pod === 'deleted' ? {} : step.pod), atMs);
    else if ('taken' in step) auditor.taken({ id: step.taken, uid: 'u', name: 'm' });
    else auditor.listing({ fromMs: atMs, toMs: atMs, containers: step.containers, sandboxes: step.sandboxes ?? [] });
  }
  return auditor.violations.map(({ rule }) => rule);
}

test('a life without harm', () => {
  assert.deepEqual(
    rules(
      { at: 0, pod: { phase: 'Pending', startTime: 't' } },
      { at: 1, containers: [container('a', 0, true)], sandboxes: [sandbox('s', true)] },
      { at: 1, pod: runs('a') },
      { at: 2, containers: [container('a', 0, false)], sandboxes: [sandbox('s', false)] },
      { at: 3, containers: [container('b', 1, true, 3000), container('a', 0, false)], sandboxes: [sandbox('s', false), sandbox('s2', true)] },
      { at: 3, pod: runs('b', 1) },
      { at: 4, pod: { phase: 'Failed', startTime: 't', containerStatuses: [status({ restartCount: 1 })] } },
      { at: 5, containers: [container('b', 1, true, 3000)] },
      { at: 20, containers: [] },
      { at: 21, pod: 'deleted' },
    ),
    [],
  );
});

test('each harm by its name', () => {
  const cases: [string, Step[]][] = [
    [
      'a phase goes back',
      [
        { at: 0, pod: { phase: 'Running' } },
        { at: 1, pod: { phase: 'Pending' } },
      ],
    ],
    [
      'a phase goes back',
      [
        { at: 0, pod: { phase: 'Succeeded' } },
        { at: 1, pod: { phase: 'Failed' } },
      ],
    ],
    [
      'a phase goes back',
      [
        { at: 0, pod: { phase: 'Failed' } },
        { at: 1, pod: { phase: 'Running' } },
      ],
    ],
    [
      'restartCount goes back',
      [
        { at: 0, pod: runs('a', 2) },
        { at: 1, pod: runs('a', 1) },
      ],
    ],
    [
      'another container and no restart',
      [
        { at: 0, pod: runs('a', 2) },
        { at: 1, pod: runs('b', 2) },
      ],
    ],
    [
      'another container and no restart',
      [
        { at: 0, pod: waits('a', 2) },
        { at: 1, containers: [container('a', 2, false)] },
        { at: 2, pod: runs('b', 2) },
      ],
    ],
    [
      'another container and no restart',
      [
        { at: 0, pod: runs('a', 2) },
        { at: 1, pod: runs('', 2, { containerID: '', state: { waiting: {} } }) },
        { at: 2, pod: runs('b', 2) },
      ],
    ],
    [
      'an earlier container is told again',
      [
        { at: 0, pod: runs('a', 2) },
        { at: 1, pod: waits('b', 3) },
        { at: 2, pod: runs('a', 3, { state: { terminated: { exitCode: 1 } } }) },
      ],
    ],
    [
      'startTime changes',
      [
        { at: 0, pod: { phase: 'Pending', startTime: 't' } },
        { at: 1, pod: { phase: 'Pending', startTime: 'u' } },
      ],
    ],
    [
      'observedGeneration goes back',
      [
        { at: 0, pod: { phase: 'Pending', observedGeneration: 2 } },
        { at: 1, pod: { phase: 'Pending', observedGeneration: 1 } },
      ],
    ],
    ['ready at the end', [{ at: 0, pod: { phase: 'Failed', conditions: [{ type: 'Ready', status: 'True' }] } }]],
    ['runs in a terminal phase', [{ at: 0, pod: { ...runs('a'), phase: 'Failed' } }]],
    [
      'written after it was gone',
      [
        { at: 0, pod: 'deleted' },
        { at: 1, pod: { phase: 'Running' } },
      ],
    ],
    ['two live containers of one name', [{ at: 0, containers: [container('a', 0, true), container('b', 1, true)] }]],
    ['two ready sandboxes', [{ at: 0, containers: [], sandboxes: [sandbox('s', true), sandbox('t', true)] }]],
    [
      'an attempt does not go up',
      [
        { at: 0, containers: [container('a', 1, false)] },
        { at: 1, containers: [container('b', 1, true, 900), container('a', 1, false)] },
      ],
    ],
    [
      'an attempt does not go up',
      [
        { at: 0, containers: [container('a', 3, false)] },
        { at: 1, containers: [container('b', 0, true, 900)] },
      ],
    ],
    [
      'a terminated pod starts again',
      [
        { at: 0, pod: { phase: 'Succeeded' } },
        { at: 4, containers: [container('b', 1, false, 3500)] },
      ],
    ],
    [
      'a terminated pod starts again',
      [
        { at: 0, pod: 'deleted' },
        { at: 4, containers: [container('b', 1, false, 3500)] },
      ],
    ],
    [
      'runs after it was gone',
      [
        { at: 0, pod: 'deleted' },
        { at: 13, containers: [container('a', 0, true)] },
      ],
    ],
    [
      'runs after it ended',
      [
        { at: 0, pod: { phase: 'Failed' } },
        { at: 13, containers: [container('a', 0, true)] },
      ],
    ],
  ];
  for (const [rule, steps] of cases) assert.deepEqual(rules(...steps), [rule], rule);
});

test('what never ran was not restarted, its number is free again, and its making is no start', () => {
  const lost = { exitCode: 128, reason: 'StartError', startedAt: '1970-01-01T00:00:00Z', containerID: 'containerd://b' };
  const steps: Step[] = [
    { at: 0, pod: waits('a', 2) },
    { at: 0, containers: [made('a', 2)] },
    { at: 1, pod: waits('b', 2, { lastState: { terminated: lost } }) },
    { at: 1, containers: [container('b', 2, false, 1000, false)] },
    { at: 2, pod: runs('c', 2) },
    { at: 2, containers: [container('c', 2, true, 2000)] },
    { at: 3, pod: { phase: 'Succeeded', startTime: 't' } },
    { at: 9, containers: [made('d', 3, 8000)] },
  ];
  assert.deepEqual(rules(...steps), []);
  assert.deepEqual(rules(...steps, { at: 10, containers: [container('d', 3, false, 8000)] }), ['a terminated pod starts again']);
  assert.deepEqual(rules({ at: 0, containers: [made('a', 2)] }, { at: 1, containers: [container('a', 2, false)] }, { at: 2, containers: [made('b', 2)] }), [
    'an attempt does not go up',
  ]);
});

test('a run that was lost is counted before the next one is named', () => {
  const gone: PodStatus = runs('', 3, { containerID: '', state: { waiting: {} }, lastState: { terminated: { exitCode: 137 } } });
  assert.deepEqual(rules({ at: 0, pod: runs('a', 2) }, { at: 1, pod: gone }, { at: 2, pod: runs('b', 3) }), []);
});

test('who lost the newest container to somebody else may go by an older one until the count goes up', () => {
  const steps: Step[] = [
    { at: 0, containers: [container('a', 0, false), container('b', 1, false)] },
    { at: 0, pod: runs('a', 0) },
    { at: 1, pod: runs('b', 1) },
    { at: 2, taken: 'b' },
    { at: 3, pod: waits('a', 1) },
    { at: 4, containers: [container('a', 0, false), container('c', 1, true, 4000)] },
    { at: 4, pod: runs('c', 1) },
    { at: 5, pod: runs('d', 2) },
  ];
  assert.deepEqual(rules(...steps), []);
  assert.deepEqual(rules(...steps, { at: 6, pod: runs('e', 2) }), ['another container and no restart']);
  assert.deepEqual(rules(...steps.filter((step) => !('taken' in step))), [
    'an earlier container is told again',
    'an attempt does not go up',
    'another container and no restart',
  ]);
});

test('a lost sandbox takes a pod back to its init containers', () => {
  const auditor = new Auditor();
  const given: Pod = { ...pod(runs('a')), spec: { initContainers: [{ name: 'i' }], containers: [{ name: 'm' }] } };
  auditor.pod('ADDED', given, 0);
  const init = (state: ContainerStatus['state']): PodStatus => ({ phase: 'Pending', startTime: 't', initContainerStatuses: [status({ name: 'i', state })] });
  auditor.pod('MODIFIED', { ...given, status: init({ running: {} }) }, 1);
  assert.deepEqual(auditor.violations, []);
  auditor.pod('MODIFIED', given, 2);
  auditor.pod('MODIFIED', { ...given, status: init({ terminated: { exitCode: 0 } }) }, 3);
  assert.deepEqual(
    auditor.violations.map(({ rule }) => rule),
    ['a phase goes back'],
  );
});

test('who was killed while a pod ended has as long again', () => {
  const seen = (...killedAtMs: number[]): number => {
    const auditor = new Auditor();
    auditor.pod('ADDED', pod({ phase: 'Running' }), 0);
    auditor.pod('DELETED', pod({ phase: 'Running' }), 1000);
    for (const atMs of killedAtMs) auditor.killed(atMs);
    auditor.listing({ fromMs: 14_000, toMs: 14_000, sandboxes: [], containers: [container('a', 0, true)] });
    return auditor.violations.length;
  };
  assert.deepEqual([seen(), seen(500), seen(5000)], [1, 1, 0]);
});

test('a runtime that is slow by a factor may be late by as much', () => {
  const seen = (slow: number): string[] => {
    const auditor = new Auditor(slow);
    auditor.pod('ADDED', pod({ phase: 'Running' }), 0);
    auditor.pod('DELETED', pod({ phase: 'Running' }), 1000);
    auditor.listing({ fromMs: 20_000, toMs: 20_000, sandboxes: [], containers: [container('a', 0, true, 7000)] });
    return auditor.violations.map(({ rule }) => rule);
  };
  assert.deepEqual(seen(1), ['a terminated pod starts again', 'runs after it was gone']);
  assert.deepEqual(seen(4), []);
});

test('a harm that stays is told once', () => {
  const twins: Step = { at: 0, containers: [container('a', 0, true), container('b', 1, true)] };
  assert.equal(rules(twins, { ...twins, at: 1 }, { ...twins, at: 2 }).length, 1);
});

test('what a list no longer has was deleted meanwhile', () => {
  const auditor = new Auditor();
  auditor.pod('ADDED', pod({ phase: 'Running' }), 0);
  auditor.list([], 1000);
  assert.deepEqual(auditor.left(), []);
  auditor.listing({ fromMs: 14_000, toMs: 14_000, sandboxes: [], containers: [container('a', 0, true)] });
  assert.deepEqual(
    auditor.violations.map(({ rule }) => rule),
    ['runs after it was gone'],
  );
});
