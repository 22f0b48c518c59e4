import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseImage, pullPolicyOf } from './images.ts';

test('image names are completed as registries have them', () => {
  const name = (image: string): string => {
    const parsed = parseImage(image);
    return typeof parsed === 'string' ? parsed : `${parsed.repository} ${parsed.tag} ${parsed.digest} ${parsed.pullName}`.replaceAll(/ +/g, ' ');
  };
  assert.equal(name('busybox'), 'docker.io/library/busybox latest busybox:latest');
  assert.equal(name('me/app:1'), 'docker.io/me/app 1 me/app:1');
  assert.equal(name('localhost:1/none:x'), 'localhost:1/none x localhost:1/none:x');
  assert.equal(name('registry.k8s.io/pause:3.10'), 'registry.k8s.io/pause 3.10 registry.k8s.io/pause:3.10');
  const digest = `sha256:${'a'.repeat(64)}`;
  assert.equal(name(`x@${digest}`), `docker.io/library/x ${digest} x@${digest}`);
  assert.equal(name('index.docker.io/me/app:1'), 'docker.io/me/app 1 index.docker.io/me/app:1');
  // As the kubelet 1.37.2 says it.
  assert.equal(name('Busybox:1.37'), `couldn't parse image name "Busybox:1.37": invalid reference format: repository name (library/Busybox) must be lowercase`);
  assert.equal(
    name('localhost:5000/Me/app'),
    `couldn't parse image name "localhost:5000/Me/app": invalid reference format: repository name (Me/app) must be lowercase`,
  );
  assert.match(name('a'.repeat(64)), /: invalid repository name \(a+\), cannot specify 64-byte hexadecimal strings$/);
  assert.match(name('a b'), /invalid reference format/);
  assert.match(name(''), /invalid reference format/);
});

test('the policy by tag when it is not set', () => {
  assert.equal(pullPolicyOf({ name: 'm', image: 'x' }), 'Always');
  assert.equal(pullPolicyOf({ name: 'm', image: 'x:latest' }), 'Always');
  assert.equal(pullPolicyOf({ name: 'm', image: 'x:1' }), 'IfNotPresent');
  assert.equal(pullPolicyOf({ name: 'm', image: 'x:latest', imagePullPolicy: 'Never' }), 'Never');
});
