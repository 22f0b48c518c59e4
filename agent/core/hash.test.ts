import assert from 'node:assert/strict';
import { test } from 'node:test';
import { containerHash, fnv1a32 } from './hash.ts';

test('the container hash is what live containers of the upstream kubelet carry', () => {
  const agnhost = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1';
  assert.equal(containerHash({ name: 'agnhost-container', image: agnhost }), 'ba4e4a06');
  assert.equal(containerHash({ name: 'container-handle-http-request', image: agnhost }), 'f139a92a');
  assert.equal(containerHash({ name: 'test-container', image: agnhost }), 'fda4d812');
  assert.equal(containerHash({ name: 'main', image: agnhost }), '7aee8ea3');
  assert.equal(containerHash({ name: 'dapi-container', image: 'registry.k8s.io/e2e-test-images/busybox:1.37.0-2' }), '38d16924');
});

test('FNV-1a of known texts', () => {
  assert.equal(fnv1a32(''), 0x811c9dc5);
  assert.equal(fnv1a32('a'), 0xe40c292c);
  assert.equal(fnv1a32('foobar'), 0xbf9cf968);
});
