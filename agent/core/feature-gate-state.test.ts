import assert from 'node:assert/strict';
import { test } from 'node:test';
import { declaredFeatures, gateRows, gateTableFaults, withRuntime } from './feature-gate-state.ts';
import { featureGates, gateEnabled } from '../../base/feature-gates.ts';

test('every gate of upstream has one row, and no name stands in two lists', () => {
  assert.deepEqual(gateTableFaults(), []);
  assert.equal(gateRows().length, featureGates.size);
  assert.deepEqual(new Set(gateRows().map(({ state }) => state)), new Set(['done', 'not done', 'does not concern a node']));
});

test('a node declares only what works and is on', () => {
  const done = new Set(
    gateRows()
      .filter(({ state }) => state === 'done')
      .map(({ name }) => name),
  );
  for (const name of declaredFeatures({ AllAlpha: true, AllBeta: true })) assert.ok(done.has(name), name);
  assert.ok(declaredFeatures({}).includes('RestartAllContainersOnContainerExits'));
  assert.ok(!declaredFeatures({ RestartAllContainersOnContainerExits: false }).includes('RestartAllContainersOnContainerExits'));
  for (const name of declaredFeatures({})) assert.ok(gateEnabled({}, name), name);
});

test('what the runtime must be able to do is declared only where it says so', () => {
  const wanted = declaredFeatures({ UserNamespacesHostNetworkSupport: true, VolumeBindMountOptions: true });
  const told = (abilities: Parameters<typeof withRuntime>[1]): string[] => withRuntime(wanted, abilities).filter((name) => /UserN|Bind/.test(name));
  assert.deepEqual(told({}), []);
  assert.deepEqual(told({ userNamespacesHostNetwork: true }), ['UserNamespacesHostNetworkSupport']);
  assert.deepEqual(told({ userNamespacesHostNetwork: true, mountOptions: true }), ['UserNamespacesHostNetworkSupport', 'VolumeBindMountOptions']);
});
