import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { createServerAuth } from './server-auth.ts';

function auth(anonymous = false) {
  const clock = createFakeClock();
  return createServerAuth({
    clock,
    api: new FakeKubeApi({ clock }),
    nodeName: 'n1',
    x509: true,
    anonymous,
    tokenWebhook: { enabled: false, cacheTtlMs: 0 },
    authorization: 'AlwaysAllow',
  });
}

const shown = (subject: Record<string, string | string[]> | undefined, authorized = true): IncomingMessage =>
  ({ headers: {}, socket: { authorized, getPeerCertificate: () => (subject === undefined ? {} : { subject }) } }) as unknown as IncomingMessage;

test('a certificate names a user and its groups', async () => {
  const user = await auth().authenticate(shown({ CN: 'system:kube-apiserver', O: ['system:masters', 'others'] }));
  assert.deepEqual([user?.name, user?.groups], ['system:kube-apiserver', ['system:masters', 'others', 'system:authenticated']]);
  // Of several the last counts, as in Go.
  assert.equal((await auth().authenticate(shown({ CN: ['a', 'b'] })))?.name, 'b');
});

test('one that names nobody, none at all, and one of another CA are nobody', async () => {
  for (const request of [shown({ CN: '' }), shown({ O: 'system:masters' }), shown({ CN: ['a', ''] }), shown(undefined), shown({ CN: 'root' }, false)]) {
    assert.equal(await auth().authenticate(request), null);
    assert.equal((await auth(true).authenticate(request))?.name, 'system:anonymous');
  }
});

test('a token is as if it were not sent where no webhook reads tokens', async () => {
  const request = { headers: { authorization: 'Bearer whatever' }, socket: { authorized: false } } as unknown as IncomingMessage;
  assert.equal(await auth().authenticate(request), null);
  assert.equal((await auth(true).authenticate(request))?.name, 'system:anonymous');
});
