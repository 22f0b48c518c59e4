import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { createFakeSys, fakeRunResult } from '../../base/sys/fake.ts';
import type { RunRequest } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { openCredentialProviders } from './credential-providers.ts';
import { authHash, openPullRecords } from './pull-records.ts';
import { ScriptedApi } from './test-api.ts';

async function folder(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'pulls-'));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

const signal = new AbortController().signal;

test('several pods pull one image at once: one intent, and it goes with the last of them', async (t) => {
  const rootDir = await folder(t);
  const clock = createFakeClock(Date.parse('2026-01-02T03:04:05Z'));
  const records = await openPullRecords({ clock, log: silentLog, rootDir, policy: 'NeverVerifyPreloadedImages', allowlist: [] });
  const intents = (): Promise<string[]> => readdir(join(rootDir, 'image_manager/pulling'));
  for (let round = 0; round < 5; round++) {
    await Promise.all([1, 2, 3, 4].map(() => records.begin('app:1')));
    await Promise.all([records.failed('app:1'), records.done('app:1', 'sha256:1', null), records.failed('app:1')]);
    assert.equal((await intents()).length, 1);
    await Promise.all([records.failed('app:1'), records.begin('app:1')]);
    assert.equal((await intents()).length, 1);
    await records.failed('app:1');
    assert.deepEqual(await intents(), []);
  }
});

test('records of pulls lie where upstream has them and outlive the process', async (t) => {
  const rootDir = await folder(t);
  const clock = createFakeClock(Date.parse('2026-01-02T03:04:05Z'));
  const options = { clock, log: silentLog, rootDir, policy: 'NeverVerifyPreloadedImages', allowlist: [] };
  const records = await openPullRecords(options);
  const secret = { uid: 'u1', namespace: 'ns', name: 's', credentialHash: 'h' };
  const shows =
    (...secrets: (typeof secret)[]) =>
    async () => ({ secrets, serviceAccount: null });
  const nobody = shows();
  const files = async () =>
    [await readdir(join(rootDir, 'image_manager/pulling')), await readdir(join(rootDir, 'image_manager/pulled'))].map((each) => each.length);

  assert.equal(await records.mustPull('app:1', 'sha256:1', nobody), false, 'preloaded');
  await records.begin('app:1');
  assert.deepEqual(await files(), [1, 0]);
  const name = `sha256-${createHash('sha256').update('app:1').digest('hex')}`;
  assert.equal(
    await readFile(join(rootDir, 'image_manager/pulling', name), 'utf8'),
    '{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"app:1"}\n',
  );
  assert.equal(await records.mustPull('app:1', 'sha256:1', nobody), true, 'being pulled by us');
  await records.done('app:1', 'sha256:1', { kubernetesSecrets: [secret] });
  assert.deepEqual(await files(), [0, 1]);

  const next = await openPullRecords(options);
  assert.equal(await next.mustPull('app:2', 'sha256:1', shows(secret)), false, 'the Secret it was pulled with');
  assert.equal(await next.mustPull('app:1', 'sha256:1', nobody), true, 'no Secret');
  assert.equal(await next.mustPull('other:1', 'sha256:1', shows(secret)), true, 'another name for the same image');
  assert.equal(await next.mustPull('app:1', 'sha256:1', shows({ ...secret, uid: 'u2', name: 't' })), false, 'the same credential elsewhere');
  assert.equal(await next.mustPull('app:1', 'sha256:1', shows({ uid: 'u2', namespace: 'ns', name: 't', credentialHash: 'new' })), false, 'learned before');

  await next.begin('lost:1');
  const third = await openPullRecords(options);
  await third.recover(async () => [{ id: 'sha256:9', names: ['lost:1'] }]);
  assert.deepEqual(await files(), [0, 2]);
  assert.equal(await third.mustPull('lost:1', 'sha256:9', shows(secret)), true, 'nobody knows with what it was pulled');
  await third.prune(new Set(['sha256:1']), clock.nowMs() + 1000);
  assert.deepEqual(await files(), [0, 1]);

  await writeFile(join(rootDir, 'image_manager/pulled', `sha256-${createHash('sha256').update('sha256:1').digest('hex')}`), '{');
  assert.equal(await third.mustPull('app:1', 'sha256:1', shows(secret)), true, 'a record that cannot be read is no proof');
});

test('the hash of a credential is Go’s', () => {
  const sum = (json: string): string => createHash('sha256').update(json).digest('hex');
  assert.equal(authHash({ username: 'u', password: '<p&>' }), sum('{"username":"u","password":"\\u003cp\\u0026\\u003e"}'));
  assert.equal(authHash({ username: '', password: '', identityToken: 't' }), sum('{"identitytoken":"t"}'));
});

const pod = (account?: string): Pod => ({
  metadata: { name: 'p', namespace: 'ns', uid: 'u1' },
  spec: { containers: [], ...(account === undefined ? {} : { serviceAccountName: account }) },
});

async function provider(t: TestContext, tokenAttributes?: object) {
  const root = await folder(t);
  await mkdir(join(root, 'bin'));
  await writeFile(join(root, 'bin/ecr'), '#!/bin/sh\n');
  await chmod(join(root, 'bin/ecr'), 0o755);
  await mkdir(join(root, 'config'));
  const one = {
    name: 'ecr',
    apiVersion: 'credentialprovider.kubelet.k8s.io/v1',
    matchImages: ['*.ecr.example'],
    defaultCacheDuration: '10m',
    args: ['get'],
    env: [{ name: 'A', value: 'b' }],
    tokenAttributes,
  };
  await writeFile(join(root, 'config/a.yaml'), JSON.stringify({ apiVersion: 'kubelet.config.k8s.io/v1', kind: 'CredentialProviderConfig', providers: [one] }));
  const clock = createFakeClock();
  const runs: RunRequest[] = [];
  const sys = createFakeSys();
  let answer: object = {};
  sys.onRun = (request) => {
    runs.push(request);
    return fakeRunResult({
      stdout: JSON.stringify({
        kind: 'CredentialProviderResponse',
        apiVersion: one.apiVersion,
        cacheKeyType: 'Registry',
        auth: { '*.ecr.example': { username: 'u', password: 'p' } },
        ...answer,
      }),
    });
  };
  const api = new ScriptedApi(() => ({ metadata: { uid: 'sa1', annotations: { role: 'r' } } }));
  const providers = await openCredentialProviders({
    clock,
    sys,
    api,
    log: silentLog,
    tokens: { get: async () => 'the-token' },
    config: join(root, 'config'),
    binDir: join(root, 'bin'),
    tokensAllowed: true,
    env: { PATH: '/bin' },
  });
  assert.ok(providers !== null);
  return { providers, runs, clock, root, say: (next: object) => (answer = next) };
}

test('a program is asked for its images, once a registry, for as long as its answer holds', async (t) => {
  const { providers, runs, clock, root } = await provider(t);
  assert.deepEqual(await providers.forImage(pod(), 'docker.io/library/busybox', signal), []);
  const [entry] = await providers.forImage(pod(), 'eu.ecr.example/app', signal);
  assert.deepEqual(entry, { pattern: '*.ecr.example', auth: { username: 'u', password: 'p' }, source: null });
  await providers.forImage(pod(), 'eu.ecr.example/other', signal);
  assert.equal(runs.length, 1);
  assert.deepEqual(runs[0]?.argv, [join(root, 'bin/ecr'), 'get']);
  assert.deepEqual(runs[0]?.env, { PATH: '/bin', A: 'b' });
  assert.deepEqual(JSON.parse(runs[0]?.stdin as string), {
    kind: 'CredentialProviderRequest',
    apiVersion: 'credentialprovider.kubelet.k8s.io/v1',
    image: 'eu.ecr.example/app',
  });
  await providers.forImage(pod(), 'us.ecr.example/app', signal);
  assert.equal(runs.length, 2);
  await clock.advance(601_000);
  await Promise.all([providers.forImage(pod(), 'eu.ecr.example/app', signal), providers.forImage(pod(), 'eu.ecr.example/app', signal)]);
  assert.equal(runs.length, 3);
});

test('a program that fails leaves the pull without it', async (t) => {
  const { providers, say } = await provider(t);
  say({ apiVersion: 'other/v1' });
  assert.deepEqual(await providers.forImage(pod(), 'eu.ecr.example/app', signal), []);
});

test('with tokens: bound to the service account, never handed on as a password', async (t) => {
  const { providers, runs, say } = await provider(t, {
    serviceAccountTokenAudience: 'reg',
    requireServiceAccount: true,
    cacheType: 'ServiceAccount',
    requiredServiceAccountAnnotationKeys: ['role'],
  });
  assert.deepEqual(await providers.forImage(pod(), 'eu.ecr.example/app', signal), [], 'a pod without a service account');
  const [entry] = await providers.forImage(pod('default'), 'eu.ecr.example/app', signal);
  assert.deepEqual(entry?.source, { kind: 'serviceAccount', uid: 'sa1', namespace: 'ns', name: 'default' });
  const request = JSON.parse(runs[0]?.stdin as string) as object;
  assert.deepEqual(Object.entries(request).slice(3), [
    ['serviceAccountToken', 'the-token'],
    ['serviceAccountAnnotations', { role: 'r' }],
  ]);
  await providers.forImage(pod('other'), 'eu.ecr.example/app', signal);
  assert.equal(runs.length, 2, 'kept for one service account only');
  say({ auth: { '*.ecr.example': { username: 'u', password: 'the-token' } }, cacheDuration: '0s' });
  assert.deepEqual(await providers.forImage(pod('third'), 'eu.ecr.example/app', signal), []);
});

test('a program or folder that is not there is said at the start', async (t) => {
  const root = await folder(t);
  const options = {
    clock: createFakeClock(),
    sys: createFakeSys(),
    api: new ScriptedApi(() => ({})),
    log: silentLog,
    tokens: { get: async () => '' },
    tokensAllowed: true,
    env: {},
  };
  assert.equal(await openCredentialProviders({ ...options, config: '', binDir: '' }), null);
  await assert.rejects(openCredentialProviders({ ...options, config: join(root, 'none'), binDir: root }), { code: 'not-found' });
  await assert.rejects(openCredentialProviders({ ...options, config: root, binDir: '' }), { code: 'invalid' });
  await writeFile(
    join(root, 'c.yaml'),
    JSON.stringify({
      apiVersion: 'kubelet.config.k8s.io/v1',
      kind: 'CredentialProviderConfig',
      providers: [{ name: 'none', apiVersion: 'credentialprovider.kubelet.k8s.io/v1', matchImages: ['a'], defaultCacheDuration: '1m' }],
    }),
  );
  await assert.rejects(openCredentialProviders({ ...options, config: root, binDir: root }), /plugin binary executable .*none did not exist/);
});
