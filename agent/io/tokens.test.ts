import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Pod, TokenRequest } from '../../proto/kube/types.ts';
import { dueAfterMs, Tokens } from './tokens.ts';

const signal = new AbortController().signal;
const pod: Pod = { metadata: { name: 'p', namespace: 'n', uid: 'u1' }, spec: { containers: [], serviceAccountName: 'sa' } };
const ask = { audience: '', expirationSeconds: 600 };

function world(lifeMs: number) {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  let count = 0;
  const bodies: TokenRequest[] = [];
  api.react('create', 'serviceaccounts/token', (call) => {
    count += 1;
    bodies.push(call.body as TokenRequest);
    return { ...(call.body as TokenRequest), status: { token: `t${count}`, expirationTimestamp: new Date(clock.nowMs() + lifeMs).toISOString() } };
  });
  return { clock, api, bodies, tokens: new Tokens({ api, clock, rng: seededRng(1), log: silentLog }) };
}

test('a token is bound to its pod and kept for 80 % of its life', async () => {
  const { clock, tokens, bodies } = world(600_000);
  assert.equal(await tokens.get(pod, ask, signal), 't1');
  assert.deepEqual(bodies[0]?.spec, { audiences: [], expirationSeconds: 600, boundObjectRef: { apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u1' } });
  await clock.advance(460_000);
  assert.equal(await tokens.get(pod, ask, signal), 't1');
  await clock.advance(25_000);
  assert.equal(await tokens.get(pod, ask, signal), 't2');
  assert.equal(await tokens.get(pod, { ...ask, audience: 'vault' }, signal), 't3');
  tokens.release('u1');
  assert.equal(await tokens.get(pod, ask, signal), 't4');
});

test('a long-lived token is renewed after a day', () => {
  assert.equal(dueAfterMs({ lifeMs: 365 * 86_400_000, jitterMs: 0 }), 86_400_000);
  assert.equal(dueAfterMs({ lifeMs: 3_607_000, jitterMs: 7 }), 3_607_000 * 0.8 - 7);
});

test('a refused renewal serves the old token, is tried at each pass and not more often than once a second', async () => {
  const { clock, api, tokens } = world(60_000);
  await tokens.get(pod, ask, signal);
  api.inject({ verb: 'create', resource: 'serviceaccounts/token', error: refusals.forbidden(), times: 3 });
  const asked = (): number => api.calls.filter((call) => call.ref?.subresource === 'token').length;
  await clock.advance(50_000);
  for (let pass = 0; pass < 3; pass += 1) assert.equal(await tokens.get(pod, ask, signal), 't1');
  assert.equal(asked(), 2);
  await clock.advance(1000);
  assert.equal(await tokens.get(pod, ask, signal), 't1');
  await clock.advance(10_000);
  await assert.rejects(tokens.get(pod, ask, signal), /forbidden/, 'an expired one is not given out');
  assert.equal(await tokens.get(pod, ask, signal), 't2');
});

test('a wall clock that is set back does not make a token live longer', async () => {
  const { clock, tokens } = world(600_000);
  await tokens.get(pod, ask, signal);
  clock.jumpWall(-3_600_000);
  await clock.advance(485_000);
  assert.equal(await tokens.get(pod, ask, signal), 't2');
});
