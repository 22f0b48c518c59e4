import assert from 'node:assert/strict';
import { test } from 'node:test';
import { builtinTypes } from './builtin.ts';
import { imagesOf, readManifest } from './manifest.ts';

const web = (extra: Record<string, unknown> = {}) => ({
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'web' },
  spec: {
    replicas: 3,
    selector: { matchLabels: { app: 'web' } },
    template: {
      metadata: { labels: { app: 'web' } },
      spec: { containers: [{ name: 'c', image: 'nginx:1.29', ports: [{ containerPort: 80 }], resources: { requests: { cpu: '100m' } } }] },
    },
    ...extra,
  },
});

test('a right manifest has no problems and names its images', () => {
  const { objects, problems } = readManifest([web(), null], builtinTypes, 'm.yaml');
  assert.deepEqual(problems, []);
  assert.equal(objects.length, 1);
  assert.deepEqual(imagesOf(objects), ['nginx:1.29']);
});

test('a typo is named with its place', () => {
  assert.deepEqual(readManifest([web({ replcas: 3 })], builtinTypes, 'm.yaml').problems, ['m.yaml, document 1 (Deployment web): unknown field "spec.replcas"']);
  assert.match(readManifest([web({ replicas: 'three' })], builtinTypes, 'm.yaml').problems[0] ?? '', /spec\.replicas must be a whole number/);
  assert.match(
    readManifest([{ apiVersion: 'apps/v1', kind: 'Deploymen', metadata: { name: 'x' } }], builtinTypes, 'm.yaml').problems[0] ?? '',
    /no kind "Deploymen"/,
  );
  assert.match(readManifest([[1]], builtinTypes, 'm.yaml').problems[0] ?? '', /not an object/);
  assert.match(readManifest([], builtinTypes, 'm.yaml').problems[0] ?? '', /no object/);
});
