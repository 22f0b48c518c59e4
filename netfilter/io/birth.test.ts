import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { announce } from './birth.ts';

interface Sent {
  metadata: { name: string };
  regarding: object;
  action: string;
  reason: string;
  type: string;
}

test('Events are of the node, or of the Service that they are about', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const facts = { nodeName: 'node-a', clock, rng: seededRng(1), log: silentLog };
  const { signal } = new AbortController();
  await announce(api, { type: 'Normal', reason: 'Starting' }, facts, signal);
  await announce(api, { type: 'Warning', reason: 'FailedToStartServiceHealthcheck', action: 'Listen', note: 'taken', service: 'lab/echo' }, facts, signal);
  const events = api.calls.filter((call) => call.verb === 'create').map(({ path, body }) => ({ path, ...(body as Sent) }));
  assert.deepEqual(
    events.map(({ path, regarding, action, reason, type }) => ({ path, regarding, action, reason, type })),
    [
      {
        path: '/apis/events.k8s.io/v1/namespaces/default/events',
        regarding: { apiVersion: 'v1', kind: 'Node', name: 'node-a' },
        ...{ action: 'StartKubeProxy', reason: 'Starting', type: 'Normal' },
      },
      {
        path: '/apis/events.k8s.io/v1/namespaces/lab/events',
        regarding: { apiVersion: 'v1', kind: 'Service', namespace: 'lab', name: 'echo' },
        ...{ action: 'Listen', reason: 'FailedToStartServiceHealthcheck', type: 'Warning' },
      },
    ],
  );
  assert.match(events[1]!.metadata.name, /^echo\.[0-9a-f]{16}$/);
});

test('a server that takes no Events stops nothing, and is not waited for', async () => {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const facts = { nodeName: 'a', clock, rng: seededRng(1), log: silentLog };
  const told = async (signal: AbortSignal): Promise<void> => await announce(api, { type: 'Normal', reason: 'Starting' }, facts, signal);
  api.inject({ verb: 'create', error: 'hang' });
  await told(AbortSignal.abort());
  api.inject({ verb: 'create', error: 'hang' });
  let isOver = false;
  const telling = told(new AbortController().signal).then(() => (isOver = true));
  await clock.advance(4_999);
  assert.equal(isOver, false);
  await clock.advance(1);
  assert.equal(isOver, true);
  await telling;
});
