import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Container, Pod, PodStatus } from '../../proto/kube/types.ts';
import type { ContainerFacts } from '../core/types.ts';
import type { ProbeAnswer } from './probes-net.ts';
import { createProbes } from './probes.ts';

type Answers = Partial<Record<string, ProbeAnswer['result']>>;

function setUp(t: TestContext, probes: Partial<Container>, status: PodStatus = {}, forgets = false) {
  const clock = createFakeClock();
  const answers: Answers = {};
  const runs: string[] = [];
  const events: string[] = [];
  const beganMs = clock.nowMs();
  const prober = createProbes({
    clock,
    rng: seededRng(1),
    log: silentLog,
    forgets,
    events: { event: (target, _type, reason, message) => void events.push(`${reason} ${target.fieldPath} ${message}`) },
    run: async ({ probe, containerId }) => {
      const kind = probe.exec?.command?.[0] ?? '';
      runs.push(`${kind} ${containerId} ${(clock.nowMs() - beganMs) / 1000}`);
      return { result: answers[kind] ?? 'success', output: 'said' };
    },
  });
  t.after(() => prober[Symbol.dispose]());
  const pod: Pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u1' }, spec: { containers: [{ name: 'c', image: 'i', ...probes }] }, status };
  const running = (id = 'c1', startedAtMs = clock.nowMs()): ContainerFacts => ({ id, name: 'c', state: 'running', startedAtMs }) as ContainerFacts;
  const sync = (containers: ContainerFacts[], terminating = false) => prober.sync(pod, containers, { podIPs: ['10.0.0.1'], terminating });
  const changes: string[] = [];
  prober.onChange((uid) => changes.push(uid));
  return {
    clock,
    answers,
    runs,
    events,
    prober,
    sync,
    running,
    changes,
    of: (kind: string) => runs.filter((run) => run.startsWith(kind)).map((run) => Number(run.split(' ')[2])),
    result: () => prober.results('u1')['c'],
  };
}

const probe = (kind: string, rest: object = {}) => ({ exec: { command: [kind] }, ...rest });

test('the first probe comes when the container is seen running, then one each period', async (t) => {
  const { clock, sync, running, of, result, changes } = setUp(t, {
    readinessProbe: probe('r', { periodSeconds: 5 }),
    livenessProbe: probe('l', { periodSeconds: 10, initialDelaySeconds: 3 }),
  });
  sync([running()]);
  assert.deepEqual(result(), { containerId: 'c1', readiness: 'unknown', liveness: 'unknown' });
  await clock.advance(14_000);
  assert.deepEqual(of('r'), [0, 5, 10]);
  assert.deepEqual(of('l'), [3, 13]);
  assert.deepEqual(result(), { containerId: 'c1', readiness: 'success', liveness: 'success' });
  assert.equal(changes.length, 1, 'that a container lives was taken for granted');
});

test('a container that has just started is asked again soon, an older one once a period', async (t) => {
  const { clock, sync, running, answers, of, result } = setUp(t, { readinessProbe: probe('r', { periodSeconds: 5 }) });
  answers['r'] = 'failure';
  sync([running()]);
  await clock.advance(1_000);
  answers['r'] = 'success';
  await clock.advance(800);
  assert.equal(result()?.readiness, 'success');
  assert.deepEqual(of('r'), [0, 0.25, 0.75, 1.75]);
});

test('startup gates the others, which run at once when it succeeds', async (t) => {
  const { clock, sync, running, answers, of, result } = setUp(t, {
    startupProbe: probe('s', { periodSeconds: 2, failureThreshold: 10 }),
    readinessProbe: probe('r', { periodSeconds: 30 }),
    livenessProbe: probe('l', { periodSeconds: 30 }),
  });
  answers['s'] = 'failure';
  sync([running()]);
  await clock.advance(5_000);
  assert.deepEqual([of('r'), of('l')], [[], []]);
  answers['s'] = 'success';
  await clock.advance(1_500);
  assert.deepEqual([of('s'), of('r'), of('l')], [[0, 2, 4, 6], [6], [6]]);
  await clock.advance(20_000);
  assert.equal(of('s').length, 4);
  assert.equal(result()?.startup, 'success');
});

test('liveness that failed is told, held, and asked again only of the next container', async (t) => {
  const { clock, sync, running, answers, of, result, events, prober } = setUp(t, { livenessProbe: probe('l', { periodSeconds: 2, failureThreshold: 2 }) });
  answers['l'] = 'failure';
  sync([running()]);
  await clock.advance(20_000);
  assert.deepEqual(of('l'), [0, 2]);
  assert.equal(result()?.liveness, 'failure');
  assert.deepEqual(events, ['Unhealthy spec.containers{c} Liveness probe failed: said', 'Unhealthy spec.containers{c} Liveness probe failed: said']);
  prober.forget('u1', 'c1');
  assert.equal(result()?.liveness, 'unknown');
  // The kill did not succeed: the same container is still there.
  sync([running('c1')]);
  assert.equal(result()?.liveness, 'failure');
  sync([]);
  answers['l'] = 'success';
  sync([running('c2')]);
  await clock.advance(100);
  assert.deepEqual(result(), { containerId: 'c2', liveness: 'success' });
});

test('while the pod terminates readiness goes on and liveness does not', async (t) => {
  const { clock, sync, running, answers, result, events, of } = setUp(t, {
    readinessProbe: probe('r', { periodSeconds: 1, failureThreshold: 1 }),
    livenessProbe: probe('l', { periodSeconds: 1, failureThreshold: 1 }),
  });
  const facts = running();
  sync([facts]);
  await clock.advance(3_000);
  sync([facts], true);
  answers['r'] = 'failure';
  answers['l'] = 'failure';
  const before = of('l').length;
  await clock.advance(3_000);
  assert.equal(of('l').length, before);
  assert.deepEqual(result(), { containerId: 'c1', readiness: 'failure' });
  assert.ok(events.every((event) => event.includes('Readiness')));
});

test('a readiness that still passes stays while the pod terminates', async (t) => {
  const { clock, sync, running, result } = setUp(t, { readinessProbe: probe('r', { periodSeconds: 1 }) });
  const facts = running();
  sync([facts]);
  await clock.advance(1_500);
  sync([facts], true);
  await clock.advance(3_000);
  assert.equal(result()?.readiness, 'success');
});

const told = (ready: boolean, started: boolean): PodStatus => ({
  containerStatuses: [{ name: 'c', image: 'i', imageID: '', ready, started, restartCount: 0, containerID: 'containerd://c1', state: { running: {} } }],
});

test('an adopted container keeps what it was, and its startup is not asked again', async (t) => {
  const ok = setUp(t, { startupProbe: probe('s', { initialDelaySeconds: 10 }), readinessProbe: probe('r', { periodSeconds: 5 }) }, told(true, true));
  ok.sync([ok.running('c1', ok.clock.nowMs() - 100_000)]);
  assert.deepEqual(ok.result(), { containerId: 'c1', startup: 'success', readiness: 'success' });
  await ok.clock.advance(30_000);
  assert.equal(ok.of('s').length, 0);
  assert.ok((ok.of('r')[0] ?? 0) > 0 && (ok.of('r')[0] ?? 9) < 5, 'spread over a period after the start of the agent');
  assert.equal(ok.changes.length, 0);
  const ko = setUp(t, { readinessProbe: probe('r', { periodSeconds: 5 }) }, told(false, true));
  ko.sync([ko.running('c1', ko.clock.nowMs() - 100_000)]);
  assert.equal(ko.result()?.readiness, 'failure');
});

test('an adopted container that really fails goes unready by its threshold', async (t) => {
  const { clock, sync, running, answers, result } = setUp(t, { readinessProbe: probe('r', { periodSeconds: 5, failureThreshold: 2 }) }, told(true, true));
  answers['r'] = 'failure';
  sync([running('c1', clock.nowMs() - 100_000)]);
  await clock.advance(5_000);
  assert.equal(result()?.readiness, 'success');
  await clock.advance(6_000);
  assert.equal(result()?.readiness, 'failure');
});

test('an error is no result: tried again, told, and not counted', async (t) => {
  const { clock, sync, running, answers, result, events, of } = setUp(t, { livenessProbe: probe('l', { periodSeconds: 2, failureThreshold: 1 }) });
  answers['l'] = 'error';
  sync([running()]);
  await clock.advance(1_000);
  assert.equal(of('l').length, 3);
  assert.equal(result()?.liveness, 'unknown');
  assert.deepEqual(events, ['Unhealthy spec.containers{c} Liveness probe errored and resulted in unknown state: said']);
});

test('a warning is a success that is told', async (t) => {
  const { clock, sync, running, answers, result, events } = setUp(t, { readinessProbe: probe('r') });
  answers['r'] = 'warning';
  sync([running()]);
  await clock.advance(100);
  assert.equal(result()?.readiness, 'success');
  assert.deepEqual(events, ['ProbeWarning spec.containers{c} Readiness probe warning: said']);
});

test('a container that ended is not ready, and nothing is left running when the pod goes', async (t) => {
  const { clock, sync, running, result, prober } = setUp(t, { readinessProbe: probe('r') });
  sync([running()]);
  await clock.advance(1_000);
  sync([]);
  assert.deepEqual(result(), { containerId: 'c1', readiness: 'failure' });
  sync([running('c2')]);
  prober.remove('u1');
  await clock.settle();
  assert.equal(clock.armed, 0);
  assert.deepEqual(prober.results('u1'), {});
});

test('readiness of a pod that the node ends stays what it was, also for a probe under way', async (t) => {
  const { clock, answers, prober, sync, running, of, result } = setUp(t, { readinessProbe: probe('r', { periodSeconds: 5, failureThreshold: 1 }) });
  const pod: Pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u1' }, spec: { containers: [{ name: 'c', image: 'i', readinessProbe: probe('r') }] } };
  const container = running();
  sync([container]);
  await clock.advance(6_000);
  assert.equal(result()?.readiness, 'success');
  answers.r = 'failure';
  const asked = of('r').length;
  prober.sync(pod, [container], { podIPs: [], terminating: true, keepsReadiness: true });
  await clock.advance(20_000);
  assert.equal(result()?.readiness, 'success');
  assert.equal(of('r').length, asked);
});

test('containers of an earlier process are unready until they are asked, where the old behaviour is wished for', (t) => {
  const status = { containerStatuses: [{ name: 'c', image: '', imageID: '', ready: true, restartCount: 0, containerID: 'x://c1', state: { running: {} } }] };
  for (const [forgets, readiness] of [
    [false, 'success'],
    [true, 'unknown'],
  ] as const) {
    const { sync, running, result } = setUp(t, { readinessProbe: probe('r', { initialDelaySeconds: 60 }) }, status, forgets);
    sync([running()]);
    assert.equal(result()?.readiness, readiness);
  }
});

test('a container whose earlier status is known late keeps what it was, unless a probe has spoken', async (t) => {
  const world = setUp(t, { startupProbe: probe('s', { periodSeconds: 10, failureThreshold: 1 }), readinessProbe: probe('r', { periodSeconds: 5 }) });
  const { answers, clock, of, prober, result, running, sync } = world;
  answers['s'] = 'failure';
  sync([running('c1', clock.nowMs() - 100_000)]);
  prober.adopt?.('u1', told(true, true));
  assert.deepEqual(result(), { containerId: 'c1', startup: 'success', readiness: 'success' });
  await clock.advance(30_000);
  assert.deepEqual(of('s'), [], 'what has started is not asked again');
  assert.ok(of('r').length > 4);
  answers['r'] = 'failure';
  await clock.advance(20_000);
  prober.adopt?.('u1', told(true, true));
  assert.equal(result()?.readiness, 'failure');
});

test('nothing of another container is taken over', async (t) => {
  const { prober, result, running, sync } = setUp(t, { startupProbe: probe('s', { initialDelaySeconds: 60 }), readinessProbe: probe('r') });
  sync([running('c2')]);
  prober.adopt?.('u1', told(true, true));
  assert.deepEqual(result(), { containerId: 'c2', startup: 'unknown', readiness: 'unknown' });
});
