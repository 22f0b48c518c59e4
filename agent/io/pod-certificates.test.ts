import assert from 'node:assert/strict';
import { createPublicKey } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { podCertificateRequests, serviceAccounts } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { pem, publicKeyPemOf, readCertificateRequest } from '../../base/x509.ts';
import type { Pod, PodCertificateRequest } from '../../proto/kube/types.ts';
import { PodCertificates } from './pod-certificates.ts';

const hourMs = 3_600_000;

/** Keys are made on other threads, which no fake clock sees. */
async function until(what: string, condition: () => boolean): Promise<void> {
  const endMs = Date.now() + 30_000;
  while (!condition()) {
    assert.ok(Date.now() < endMs, `in time: ${what}`);
    await delay(2);
  }
}

function world(keyType: string) {
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const changed: string[] = [];
  const told: string[] = [];
  api.put(serviceAccounts('n', 'sa'), { metadata: { name: 'sa', namespace: 'n', uid: 'sa-uid' } });
  const certificates = new PodCertificates({
    api,
    clock,
    rng: seededRng(1),
    log: silentLog,
    nodeName: 'n1',
    nodeUid: () => 'node-uid',
    tell: (pod, event) => told.push(`${pod.metadata.name}: ${event.reason}`),
    onChange: (uid) => changed.push(uid),
    onBug: (error) => assert.ifError(error),
  });
  const podCertificate = { keyType, signerName: 'a/b', credentialBundlePath: 'b', maxExpirationSeconds: 3600, userAnnotations: { 'a/x': 'y' } };
  const pod: Pod = {
    metadata: { name: 'p', namespace: 'n', uid: 'u1' },
    spec: { containers: [{ name: 'm' }], serviceAccountName: 'sa', volumes: [{ name: 'v', projected: { sources: [{ podCertificate }] } }] },
  };
  const requests = (): PodCertificateRequest[] => api.objects<PodCertificateRequest>(podCertificateRequests());
  const answer = (request: PodCertificateRequest, type: string, body = 'QUFB'): void => {
    const nowMs = clock.nowMs();
    api.put<PodCertificateRequest>(podCertificateRequests('n', request.metadata.name), {
      ...request,
      status: {
        conditions: [{ type, status: 'True', reason: 'R', message: 'm', lastTransitionTime: new Date(nowMs).toISOString() }],
        certificateChain: `-----BEGIN CERTIFICATE-----\n${body}\n-----END CERTIFICATE-----\n`,
        notBefore: new Date(nowMs).toISOString(),
        beginRefreshAt: new Date(nowMs + hourMs).toISOString(),
        notAfter: new Date(nowMs + 2 * hourMs).toISOString(),
      },
    });
  };
  return { clock, api, certificates, pod, changed, told, requests, answer, get: () => certificates.get(pod, { volume: 'v', source: 0 }) };
}

test('a request carries who asks and a proof of the key, and its end is told', async () => {
  for (const keyType of ['ECDSAP256', 'ECDSAP384', 'ECDSAP521', 'ED25519', 'RSA3072']) {
    await using scope = new AsyncDisposableStack();
    const { get, requests, answer, changed, certificates } = world(keyType);
    scope.use(certificates);
    assert.deepEqual(get(), { error: 'credential bundle is not issued yet' });
    await until('a request', () => requests().length === 1);
    const [request] = requests();
    assert.ok(request !== undefined);
    const { stubPKCS10Request, ...spec } = request.spec;
    assert.deepEqual(spec, {
      signerName: 'a/b',
      podName: 'p',
      podUID: 'u1',
      serviceAccountName: 'sa',
      serviceAccountUID: 'sa-uid',
      nodeName: 'n1',
      nodeUID: 'node-uid',
      maxExpirationSeconds: 3600,
      unverifiedUserAnnotations: { 'a/x': 'y' },
    });
    assert.equal(request.metadata.ownerReferences?.[0]?.uid, 'u1');
    const proof = readCertificateRequest(pem('CERTIFICATE REQUEST', Buffer.from(stubPKCS10Request, 'base64')));
    answer(request, 'Issued');
    await until('the certificate', () => changed.length === 1);
    const got = get();
    assert.ok('keyPem' in got);
    assert.equal(publicKeyPemOf(got.keyPem), createPublicKey(proof.publicKeyPem).export({ type: 'spki', format: 'pem' }));
    assert.match(got.chainPem, /QUFB/);
    assert.deepEqual(certificates.states(), [{ signer: 'a/b', state: 'fresh', count: 1 }]);
  }
});

test('a certificate is renewed with a new key when it is due; until then the old one serves', async () => {
  const { clock, get, requests, answer, changed, certificates } = world('ED25519');
  await using _ = certificates;
  get();
  await until('a request', () => requests().length === 1);
  answer(requests()[0]!, 'Issued');
  await until('the certificate', () => changed.length === 1);
  const first = get();
  await clock.advance(hourMs + 5 * 60_000);
  assert.deepEqual(get(), first);
  await until('another request', () => requests().length === 2);
  assert.deepEqual(get(), first);
  answer(
    requests().find(({ status }) => status === undefined)!,
    'Issued',
    'QkJC',
  );
  await until('the next certificate', () => changed.length === 2);
  const second = get();
  assert.ok('keyPem' in first && 'keyPem' in second && first.keyPem !== second.keyPem);
  assert.match(second.chainPem, /QkJC/);
});

test('a refusal is told and final; what could not be asked is asked at the next look; a pod that went is forgotten', async () => {
  const { api, get, requests, answer, changed, told, certificates } = world('ED25519');
  await using _ = certificates;
  api.remove(serviceAccounts('n', 'sa'));
  get();
  await until('the first try', () => api.calls.some(({ path }) => path.endsWith('/serviceaccounts/sa')));
  api.put(serviceAccounts('n', 'sa'), { metadata: { name: 'sa', namespace: 'n' } });
  await until('a request', () => {
    get();
    return requests().length === 1;
  });
  answer(requests()[0]!, 'Denied');
  await until('the refusal', () => changed.length === 1);
  assert.deepEqual(told, ['p: Denied']);
  assert.deepEqual(get(), { error: 'PodCertificateRequest was permanently denied: reason="R" message="m"' });
  certificates.release('u1');
  assert.deepEqual(certificates.states(), []);
});
