import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { coreEvents, namespaces } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Event } from '../../proto/kube/types.ts';
import { createEventsApi } from './events-api.ts';

const target = { apiVersion: 'v1', kind: 'Pod', namespace: 'ns', name: 'p', uid: 'u1', resourceVersion: '7', fieldPath: 'spec.containers{c}' };

function setUp(t: TestContext, limits: { qps?: number; burst?: number } = {}) {
  const clock = createFakeClock(Date.UTC(2026, 0, 1));
  const api = new FakeKubeApi({ clock });
  for (const name of ['ns', 'default']) api.put(namespaces(name), { apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  const events = createEventsApi({ clock, rng: seededRng(1), log: silentLog, api, nodeName: 'n1', ...limits });
  const stop = new AbortController();
  const done = events.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await done;
  });
  return { clock, api, events, signal: stop.signal, stored: (namespace = 'ns') => api.objects<Event>(coreEvents(namespace)) };
}

test('an event carries upstream’s fields', async (t) => {
  const { clock, events, stored } = setUp(t);
  events.event(target, 'Normal', 'Started', 'Container started');
  await clock.settle();
  const [event] = stored();
  assert.match(event?.metadata.name ?? '', /^p\.[0-9a-f]{16}$/);
  const { metadata: _, ...rest } = event ?? ({} as Event);
  assert.deepEqual(rest, {
    apiVersion: 'v1',
    kind: 'Event',
    involvedObject: target,
    reason: 'Started',
    message: 'Container started',
    source: { component: 'kubelet', host: 'n1' },
    firstTimestamp: '2026-01-01T00:00:00Z',
    lastTimestamp: '2026-01-01T00:00:00Z',
    count: 1,
    type: 'Normal',
    reportingComponent: 'kubelet',
    reportingInstance: 'n1',
  });
});

test('the same again is a count, and events about the node go to default', async (t) => {
  const { clock, events, stored } = setUp(t);
  events.event(target, 'Warning', 'BackOff', 'm');
  await clock.advance(5_000);
  events.event(target, 'Warning', 'BackOff', 'm');
  events.event({ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'n1' }, 'Normal', 'NodeReady', 'x');
  await clock.settle();
  assert.deepEqual(
    stored().map(({ count, firstTimestamp, lastTimestamp }) => [count, firstTimestamp, lastTimestamp]),
    [[2, '2026-01-01T00:00:00Z', '2026-01-01T00:00:05Z']],
  );
  assert.equal(stored('default').length, 1);
});

test('an event that expired at the server is told anew', async (t) => {
  const { clock, api, events, stored } = setUp(t);
  events.event(target, 'Warning', 'BackOff', 'm');
  await clock.settle();
  api.remove(coreEvents('ns', stored()[0]?.metadata.name ?? ''));
  events.event(target, 'Warning', 'BackOff', 'm');
  await clock.settle();
  assert.equal(stored().length, 1);
});

test('a server that is away is tried again, one that refuses is not', async (t) => {
  const { clock, api, events, stored } = setUp(t);
  api.inject({ verb: 'create', times: 2, error: refusals.unavailable() });
  events.event(target, 'Normal', 'A', 'a');
  await clock.advance(25_000);
  assert.equal(stored().length, 1);
  api.inject({ verb: 'create', error: refusals.forbidden() });
  events.event(target, 'Normal', 'B', 'b');
  await clock.advance(60_000);
  assert.equal(stored().length, 1);
  assert.equal(events.dropped, 1);
});

test('telling never waits: the queue is bounded and the rest is dropped', async (t) => {
  const { clock, api, events } = setUp(t);
  api.inject({ verb: 'create', times: 100, error: 'hang' });
  for (let n = 0; n < 1_500; n++) events.event({ ...target, name: `p${n}` }, 'Normal', 'A', 'a');
  await clock.settle();
  assert.ok(events.waiting <= 1_000);
  assert.ok(events.dropped >= 499);
});

test('Events are written no faster than eventRecordQPS', async (t) => {
  const { clock, events, stored } = setUp(t, { qps: 2, burst: 3 });
  for (let n = 0; n < 6; n++) events.event({ ...target, name: `p${n}` }, 'Normal', 'A', 'a');
  await clock.settle();
  assert.equal(stored().length, 3);
  await clock.advance(1_000);
  assert.equal(stored().length, 5);
  await clock.advance(1_000);
  assert.equal(stored().length, 6);
});

test('an idle queue leaves nothing on the signal, however often it was idle', async (t) => {
  const { clock, events, signal } = setUp(t);
  await clock.settle();
  const before = getEventListeners(signal, 'abort').length;
  for (let n = 0; n < 20; n++) {
    events.event({ ...target, name: `p${n}` }, 'Normal', 'A', 'a');
    await clock.settle();
  }
  assert.equal(getEventListeners(signal, 'abort').length, before);
});
