import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import type { CertificateSigningRequest } from '../../proto/kube/types.ts';
import { ApiError } from '../../base/kubeapi/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi, refusals } from '../../base/kubeapi/fake.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { readCertificateRequest } from '../../base/x509.ts';
import { clientTemplate } from '../core/node-certs.ts';
import { openCertStore, type StoredPair } from './cert-store.ts';
import { createRotation, type RotationOptions } from './cert-rotation.ts';
import { csrs, deny, pending, signAll } from './test-signer.ts';

const hour = 3_600_000;

async function setUp(t: TestContext, rest: Partial<RotationOptions> = {}) {
  const dir = await mkdtemp(join(tmpdir(), 'cert-rotation-'));
  t.after(() => rm(dir, { recursive: true }));
  const clock = createFakeClock();
  const api = new FakeKubeApi({ clock });
  const store = await openCertStore({ clock, dir, prefix: 'kubelet-client' });
  const asked: boolean[] = [];
  const renewed: StoredPair[] = [];
  let failures = 0;
  const rotation = createRotation({
    clock,
    rng: seededRng(1),
    log: silentLog,
    store,
    purpose: 'client',
    template: () => clientTemplate('n1'),
    api(hasCertificate) {
      asked.push(hasCertificate);
      return api;
    },
    initial: { pair: null, renew: true },
    onRenewed: (pair) => void renewed.push(pair),
    onFailure: () => failures++,
    ...rest,
  });
  const stop = new AbortController();
  const running = rotation.run(stop.signal);
  t.after(async () => {
    stop.abort();
    await running;
  });
  const requests = (): CertificateSigningRequest[] => api.objects<CertificateSigningRequest>(csrs);
  /** The store writes to a real disk and keys are made by a thread, which no clock moves. */
  const until = async (condition: () => boolean): Promise<void> => {
    for (const begunAt = performance.now(); !condition();) {
      assert.ok(performance.now() - begunAt < 30_000);
      await clock.settle();
    }
  };
  return { clock, api, store, rotation, asked, renewed, requests, until, failures: () => failures };
}

test('the first certificate is asked for as upstream asks, and the next before the first ends', async (t) => {
  const { api, asked, clock, renewed, requests, rotation, store, until } = await setUp(t);
  await until(() => requests().length === 1);
  const [{ metadata, spec } = { metadata: {}, spec: { request: '' } }] = requests();
  assert.match(metadata.name ?? '', /^csr-/);
  assert.deepEqual(
    { ...spec, request: '' },
    { request: '', signerName: 'kubernetes.io/kube-apiserver-client-kubelet', usages: ['digital signature', 'client auth'] },
  );
  assert.deepEqual(readCertificateRequest(Buffer.from(spec.request, 'base64').toString()).subject, {
    commonName: 'system:node:n1',
    organizations: ['system:nodes'],
  });
  assert.equal(rotation.current(), null);
  signAll(api, clock, 10 * hour);
  await until(() => renewed.length === 1);
  assert.match(rotation.current()?.privateKeyPem ?? '', /BEGIN EC PRIVATE KEY/);
  const first = await store.current();
  await clock.advance(6.9 * hour);
  assert.equal(requests().length, 1);
  await clock.advanceUntil(() => requests().length === 2, 2.2 * hour);
  signAll(api, clock, 10 * hour);
  await until(() => renewed.length === 2);
  assert.notDeepEqual((await store.current())?.privateKeyPem, first?.privateKeyPem);
  assert.deepEqual(asked, [false, true]);
});

test('a request that is denied, refused or lost is followed by another, after growing pauses', async (t) => {
  const { api, clock, failures, renewed, requests, rotation, until } = await setUp(t);
  await until(() => requests().length === 1);
  deny(api);
  await until(() => failures() === 1);
  api.inject({ verb: 'create', resource: 'certificatesigningrequests', error: refusals.unavailable() });
  await clock.advanceUntil(() => failures() === 2, 3_000);
  assert.equal(rotation.serverAnswers(), false);
  api.inject({ verb: 'create', resource: 'certificatesigningrequests', error: new ApiError(401, 'Unauthorized', 'Unauthorized') });
  await clock.advanceUntil(() => failures() === 3, 5_000);
  assert.equal(rotation.serverAnswers(), true);
  await clock.advanceUntil(() => requests().length === 2, 9_000);
  api.remove({ ...csrs, name: pending(api)[0]?.metadata.name ?? '' });
  await until(() => failures() === 4);
  await clock.advanceUntil(() => requests().length === 2, 18_000);
  signAll(api, clock, hour);
  await until(() => renewed.length === 1);
});

test('nobody signs: after a quarter of an hour another is asked for', async (t) => {
  const { clock, requests, until } = await setUp(t);
  await until(() => requests().length === 1);
  await clock.advance(14 * 60_000);
  assert.equal(requests().length, 1);
  await clock.advanceUntil(() => requests().length === 2, 2 * 60_000);
});

test('a certificate that has ended is none, and one for another name is replaced at once', async (t) => {
  const { api, clock, renewed, requests, rotation, until } = await setUp(t);
  await until(() => requests().length === 1);
  signAll(api, clock, hour);
  await until(() => renewed.length === 1);
  const pair = rotation.current();
  clock.jumpWall(2 * hour);
  assert.equal(rotation.current(), null);
  clock.jumpWall(-2 * hour);
  const other = await setUp(t, { initial: { pair, renew: false }, template: () => clientTemplate('n2') });
  await other.until(() => other.requests().length === 1);
  const same = await setUp(t, { initial: { pair, renew: false } });
  await same.clock.advance(30 * 60_000);
  assert.equal(same.requests().length, 0);
});
