import assert from 'node:assert/strict';
import { test } from 'node:test';
import roles from '../../control/io/bootstrap-roles.json' with { type: 'json' };
import { podNetworkObjects } from './pod-network.ts';

test('the embedded control plane lets the pod network read what a real one is told to', () => {
  const plain = (object: Record<string, unknown>): Record<string, unknown> => {
    const { apiVersion: _, metadata, ...rest } = object as { apiVersion: string; metadata: { name: string } };
    return { name: metadata.name, ...rest };
  };
  for (const object of podNetworkObjects().map(plain))
    assert.deepEqual(
      (roles as Record<string, unknown>[]).find((role) => role['kind'] === object['kind'] && role['name'] === object['name']),
      object,
    );
});
