import assert from 'node:assert/strict';
import { test } from 'node:test';
import { imageNameText, parseImageName, standIn } from './oci.ts';

test('image names get the defaults that a runtime gives them', () => {
  const full = (text: string) => {
    const name = parseImageName(text);
    return name === null ? null : imageNameText(name);
  };
  assert.equal(full('nginx:1.29'), 'docker.io/library/nginx:1.29');
  assert.equal(full('nginx'), 'docker.io/library/nginx:latest');
  assert.equal(full('bitnami/redis:8'), 'docker.io/bitnami/redis:8');
  assert.equal(full('registry.k8s.io/e2e-test-images/busybox:1.37.0-2'), 'registry.k8s.io/e2e-test-images/busybox:1.37.0-2');
  assert.equal(full('localhost:5000/a/b'), 'localhost:5000/a/b:latest');
  assert.equal(full('UPPER'), null);
  assert.equal(full('a b'), null);
});

test('stand-ins exist for the images of the examples', () => {
  const recipe = (text: string) => {
    const name = parseImageName(text);
    return name === null ? null : standIn(name);
  };
  assert.equal(recipe('nginx:1.30-alpine'), 'server');
  assert.equal(recipe('registry.k8s.io/pause:3.10.2'), 'pause');
  assert.equal(recipe('busybox'), 'busybox');
  assert.equal(recipe('redis:8.2-alpine'), null);
});
