import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Schema } from '../../proto/kube/schema-types.ts';
import schema from '../../proto/kube/schema.json' with { type: 'json' };
import { serverSideApply, trackUpdate } from './apply.ts';
import type { Writer } from './apply.ts';
import { Failure } from './failure.ts';
import type { Obj } from './json.ts';
import { createTypes } from './schema.ts';

const types = createTypes(schema as unknown as Schema);
const shape = types.definition('Deployment');
const by = (name: string): Writer => ({ name, apiVersion: 'apps/v1', subresource: '', time: '2026-01-01T00:00:00Z' });
const deployment = (spec: Obj, metadata: Obj = {}): Obj => ({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web', ...metadata }, spec });
const containers = (...list: Obj[]): Obj => ({ template: { spec: { containers: list } } });
const apply = (live: Obj, config: Obj, name: string, force = false): Obj => serverSideApply(types, shape, live, config, by(name), force);

test('an applier owns what it says and nothing else', () => {
  const made = apply({ metadata: {} }, deployment({ replicas: 2, ...containers({ name: 'a', image: 'x:1' }) }), 'one');
  assert.deepEqual(made['metadata'].managedFields[0].fieldsV1, {
    'f:spec': { 'f:replicas': {}, 'f:template': { 'f:spec': { 'f:containers': { 'k:{"name":"a"}': { '.': {}, 'f:image': {}, 'f:name': {} } } } } },
  });
});

test('another value for a field of another manager is a conflict that names it; force takes the field', () => {
  const live = apply({ metadata: {} }, deployment({ replicas: 2 }), 'one');
  assert.throws(
    () => apply(live, deployment({ replicas: 3 }), 'two'),
    (error: unknown) => {
      assert.ok(error instanceof Failure);
      assert.equal(error.message, 'Apply failed with 1 conflict: conflict with "one": .spec.replicas');
      assert.deepEqual(error.details?.['causes'], [{ reason: 'FieldManagerConflict', message: 'conflict with "one"', field: '.spec.replicas' }]);
      return true;
    },
  );
  const taken = apply(live, deployment({ replicas: 3 }), 'two', true);
  assert.equal(taken['spec'].replicas, 3);
  assert.deepEqual(
    taken['metadata'].managedFields.map((entry: Obj) => entry['manager']),
    ['two'],
  );
});

test('several conflicts are listed by manager and path', () => {
  const live = apply({ metadata: {} }, deployment({ replicas: 2, paused: true }), 'one');
  assert.throws(() => apply(live, deployment({ replicas: 3, paused: false }), 'two'), {
    message: 'Apply failed with 2 conflicts: conflicts with "one":\n- .spec.paused\n- .spec.replicas',
  });
});

test('the same value is shared, and stays until the last owner gives it up', () => {
  const one = apply({ metadata: {} }, deployment({ replicas: 2, paused: true }), 'one');
  const both = apply(one, deployment({ replicas: 2 }), 'two');
  const left = apply(both, deployment({ paused: true }), 'one');
  assert.equal(left['spec'].replicas, 2, 'two still owns it');
  const none = apply(left, deployment({}), 'two');
  assert.equal(none['spec'].replicas, undefined);
  assert.equal(none['spec'].paused, true);
});

test('list items are merged by key and removed one by one', () => {
  const one = apply({ metadata: {} }, deployment(containers({ name: 'a', image: 'x:1' }, { name: 'b', image: 'y:1' })), 'one');
  const both = apply(one, deployment(containers({ name: 'c', image: 'z:1' })), 'two');
  assert.deepEqual(
    both['spec'].template.spec.containers.map((item: Obj) => item['name']),
    ['a', 'b', 'c'],
  );
  const less = apply(both, deployment(containers({ name: 'b', image: 'y:1' })), 'one');
  assert.deepEqual(
    less['spec'].template.spec.containers.map((item: Obj) => item['name']),
    ['b', 'c'],
  );
});

test('an update takes the fields it changes from the applier, who then meets a conflict', () => {
  const live = apply({ metadata: {} }, deployment({ replicas: 2 }), 'one');
  const next: Obj = { ...live, spec: { ...live['spec'], replicas: 5 } };
  next['metadata'] = { ...live['metadata'], managedFields: trackUpdate(types, shape, live, next, by('kubectl')) };
  assert.throws(() => apply(next, deployment({ replicas: 2 }), 'one'), {
    message: 'Apply failed with 1 conflict: conflict with "kubectl" using apps/v1: .spec.replicas',
  });
});

test('an update that changes nothing owns nothing new', () => {
  const live = apply({ metadata: {} }, deployment({ replicas: 2 }), 'one');
  assert.deepEqual(trackUpdate(types, shape, live, live, by('two')), live['metadata'].managedFields);
});

test('structures every object has belong to nobody, maps and lists to who made them', () => {
  const made = deployment({ replicas: 1, ...containers({ name: 'a', resources: { limits: { cpu: '1' } } }) }, { labels: { a: 'b' } });
  const [entry] = trackUpdate(types, shape, {}, made, by('one'))!;
  const fields = entry!['fieldsV1'];
  assert.deepEqual(fields['f:metadata'], { 'f:labels': { '.': {}, 'f:a': {} } });
  assert.deepEqual(fields['f:spec']['f:template']['f:spec']['f:containers'], {
    '.': {},
    'k:{"name":"a"}': { '.': {}, 'f:name': {}, 'f:resources': { 'f:limits': { '.': {}, 'f:cpu': {} } } },
  });
});
