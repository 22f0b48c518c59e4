import assert from 'node:assert/strict';
import { test } from 'node:test';
import { proxyConfig } from './config.ts';
import { configWarnings } from './config-warnings.ts';

test('what a configuration had better say', () => {
  const warned = (object: object): string[] => configWarnings(proxyConfig(object)).map((warning) => warning.split(':')[0]!);
  const cidrs = { clusterCIDR: '10.244.0.0/16' };
  assert.deepEqual(warned({ ...cidrs, mode: 'iptables' }), ['No nodePortAddresses are given']);
  assert.deepEqual(warned({ ...cidrs, mode: 'iptables', nodePortAddresses: ['primary'] }), []);
  assert.deepEqual(warned({ ...cidrs, mode: 'nftables' }), []);
  assert.deepEqual(warned({ mode: 'nftables' }), ['Detect-local-mode set to ClusterCIDR, but no cluster CIDR is given']);
  assert.deepEqual(warned({ mode: 'nftables', detectLocalMode: 'NodeCIDR' }), []);
});
