import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isForImage, readCredentialProviders, readProviderAnswer } from './credential-provider.ts';
import { allowlistProblem, isProven, mergedRecord, needsProof, withoutTag } from './pull-records.ts';

test('an image without its tag and digest', () => {
  const digest = `sha256:${'a'.repeat(64)}`;
  const cases: [string, string | null][] = [
    ['busybox', 'busybox'],
    ['busybox:1', 'busybox'],
    [`busybox:1@${digest}`, 'busybox'],
    [`reg:5000/a/b@${digest}`, 'reg:5000/a/b'],
    ['reg:5000/a/b', 'reg:5000/a/b'],
    ['reg:5000/a/b:v1', 'reg:5000/a/b'],
    ['UPPER', null],
  ];
  for (const [image, bare] of cases) assert.equal(withoutTag(image), bare, image);
});

test('which images need proof', () => {
  const cases: [policy: string, image: string, pulledByKubelet: boolean, needed: boolean][] = [
    ['NeverVerify', 'a/b', true, false],
    ['NeverVerifyPreloadedImages', 'a/b', true, true],
    ['NeverVerifyPreloadedImages', 'a/b', false, false],
    ['AlwaysVerify', 'a/b', false, true],
    ['NeverVerifyAllowlistedImages', 'reg.example/pause:3', true, false],
    ['NeverVerifyAllowlistedImages', 'reg.example/other', false, true],
    ['NeverVerifyAllowlistedImages', 'pub.example/team/x:1', false, false],
    ['NeverVerifyAllowlistedImages', 'pub.example/teammate/x', false, true],
  ];
  for (const [policy, image, ours, needed] of cases)
    assert.equal(needsProof(policy, ['reg.example/pause', 'pub.example/team/*'], image, ours), needed, `${policy} ${image}`);
  for (const pattern of ['a/b', 'reg.example/*']) assert.equal(allowlistProblem(pattern), null, pattern);
  for (const pattern of [' a', '', '*', '/*', 'a/*/b', 'a:1', 'a/B']) assert.notEqual(allowlistProblem(pattern), null, pattern);
});

const secret = (name: string, credentialHash: string) => ({ uid: `u-${name}`, namespace: 'ns', name, credentialHash });
const account = { uid: 'sa1', namespace: 'ns', name: 'default' };

test('what proves a right to an image', () => {
  const known = { kubernetesSecrets: [secret('a', 'h1')] };
  const shown = (...secrets: ReturnType<typeof secret>[]) => ({ secrets, serviceAccount: null });
  assert.deepEqual(isProven(known, shown(secret('a', 'h1'))), { proven: true, learn: null });
  assert.deepEqual(isProven(known, shown(secret('b', 'h1'))), { proven: true, learn: secret('b', 'h1') });
  assert.deepEqual(isProven(known, shown(secret('a', 'h2'))), { proven: true, learn: secret('a', 'h2') });
  assert.deepEqual(isProven(known, shown(secret('b', 'h2'))), { proven: false, learn: null });
  assert.deepEqual(isProven(known, shown()), { proven: false, learn: null });
  assert.deepEqual(isProven({ nodePodsAccessible: true }, shown()), { proven: true, learn: null });
  assert.deepEqual(isProven(undefined, shown(secret('a', 'h1'))), { proven: false, learn: null });
  // A hash that could not be made equals no other.
  assert.equal(isProven({ kubernetesSecrets: [secret('a', '')] }, shown(secret('b', ''))).proven, false);
  assert.equal(isProven({ kubernetesServiceAccounts: [account] }, { secrets: [], serviceAccount: account }).proven, true);
  assert.equal(isProven({ kubernetesServiceAccounts: [account] }, { secrets: [], serviceAccount: { ...account, uid: 'sa2' } }).proven, false);
});

test('what is remembered of a pull', () => {
  const at = '2026-01-01T00:00:00Z';
  const first = mergedRecord(null, 'sha256:1', 'app', { kubernetesSecrets: [secret('b', 'h1')] }, at);
  assert.deepEqual(first, {
    kind: 'ImagePulledRecord',
    apiVersion: 'kubelet.config.k8s.io/v1beta1',
    lastUpdatedTime: at,
    imageRef: 'sha256:1',
    credentialMapping: { app: { kubernetesSecrets: [secret('b', 'h1')] } },
  });
  assert.equal(mergedRecord(first, 'sha256:1', 'app', { kubernetesSecrets: [secret('b', 'h1')] }, 'later'), first);
  assert.equal(mergedRecord(first, 'sha256:1', 'app', null, 'later'), first);
  const second = mergedRecord(first, 'sha256:1', 'app', { kubernetesSecrets: [secret('a', 'h2')] }, 'later');
  assert.deepEqual(second.credentialMapping?.['app']?.kubernetesSecrets, [secret('a', 'h2'), secret('b', 'h1')]);
  const open = mergedRecord(second, 'sha256:1', 'app', { nodePodsAccessible: true }, 'later');
  assert.deepEqual(open.credentialMapping?.['app'], { nodePodsAccessible: true });
  assert.equal(mergedRecord(open, 'sha256:1', 'app', { kubernetesSecrets: [secret('a', 'h2')] }, 'later'), open);
  assert.deepEqual(mergedRecord(null, 'sha256:1', 'app', null, at).credentialMapping, {});
});

const config = (provider: object) => ({ apiVersion: 'kubelet.config.k8s.io/v1', kind: 'CredentialProviderConfig', providers: [provider] });
const plain = { name: 'ecr', apiVersion: 'credentialprovider.kubelet.k8s.io/v1', matchImages: ['*.ecr.example'], defaultCacheDuration: '10m' };
const token = { serviceAccountTokenAudience: 'reg', requireServiceAccount: true, cacheType: 'Token' };

test('credential provider configuration', () => {
  const read = (provider: object, tokens = true) => readCredentialProviders([config(provider)], tokens);
  const { providers, problems } = read({ ...plain, args: ['get'], env: [{ name: 'A', value: 'b' }], tokenAttributes: token });
  assert.deepEqual(problems, []);
  assert.deepEqual(providers[0], {
    name: 'ecr',
    apiVersion: 'credentialprovider.kubelet.k8s.io/v1',
    matchImages: ['*.ecr.example'],
    defaultCacheMs: 600_000,
    args: ['get'],
    env: [{ name: 'A', value: 'b' }],
    token: { audience: 'reg', requireServiceAccount: true, requiredAnnotationKeys: [], optionalAnnotationKeys: [], cacheType: 'Token' },
  });
  const cases: [object, RegExp][] = [
    [{ ...plain, name: '../sh' }, /provider name cannot contain '\/'/],
    [{ ...plain, name: '..' }, /provider name cannot be '\.\.'/],
    [{ ...plain, apiVersion: 'v9' }, /providers\.apiVersion: Unsupported value: "v9"/],
    [{ ...plain, matchImages: [] }, /at least 1 item in matchImages is required/],
    [{ ...plain, defaultCacheDuration: undefined }, /providers\.defaultCacheDuration: Required value/],
    [{ ...plain, defaultCacheDuration: '-1s' }, /must be greater than or equal to 0/],
    [{ ...plain, tokenAttributes: { ...token, cacheType: '' } }, /cacheType is required/],
    [
      { ...plain, tokenAttributes: { ...token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: ['a'] } },
      /requireServiceAccount cannot be false/,
    ],
    [
      { ...plain, apiVersion: 'credentialprovider.kubelet.k8s.io/v1beta1', tokenAttributes: token },
      /only supported for credentialprovider\.kubelet\.k8s\.io\/v1/,
    ],
  ];
  for (const [provider, problem] of cases) assert.match(read(provider).problems.join('; '), problem);
  assert.match(read({ ...plain, tokenAttributes: token }, false).problems.join(), /feature gate is disabled/);
  assert.match(readCredentialProviders([config(plain), config(plain)], true).problems.join(), /duplicate provider name "ecr"/);
  assert.match(readCredentialProviders([{ kind: 'Pod' }], true).problems.join(), /failed to decode/);
  assert.ok(isForImage(plain, 'eu.ecr.example/app'));
  assert.ok(!isForImage(plain, 'ecr.example/app'));
});

test('what a program answers', () => {
  const answer = {
    kind: 'CredentialProviderResponse',
    apiVersion: 'x/v1',
    cacheKeyType: 'Registry',
    cacheDuration: '5m',
    auth: { 'r.example': { username: 'u', password: 'p' } },
  };
  assert.deepEqual(readProviderAnswer(JSON.stringify(answer), 'x/v1'), {
    entries: [{ pattern: 'r.example', auth: { username: 'u', password: 'p' } }],
    cacheBy: 'Registry',
    cacheMs: 300_000,
  });
  const problem = (change: object): string => {
    const read = readProviderAnswer(JSON.stringify({ ...answer, ...change }), 'x/v1');
    return typeof read === 'string' ? read : assert.fail('it was accepted');
  };
  assert.match(problem({ apiVersion: 'x/v2' }), /did not match expected apiVersion:x\/v1, actual apiVersion:x\/v2/);
  assert.match(problem({ cacheKeyType: 'Pod' }), /valid cacheKeyType: Pod/);
  assert.match(problem({ kind: 'Secret' }), /error decoding/);
  // Never the text itself: it may hold a password.
  assert.equal(readProviderAnswer('{"password":"hunter2"', 'x/v1'), 'error decoding credential provider plugin response from stdout');
});
