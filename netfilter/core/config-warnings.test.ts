import assert from 'node:assert/strict';
import { test } from 'node:test';
import { proxyConfig } from './config.ts';
import type { Family } from './ip.ts';
import { checkFamilies, configWarnings } from './config-warnings.ts';

test('what a configuration had better say', () => {
  const warned = (object: object): string[] => configWarnings(proxyConfig(object), ['ip', 'ip6']).map((warning) => warning.split(':')[0]!);
  const cidrs = { clusterCIDR: '10.244.0.0/16' };
  assert.deepEqual(warned({ ...cidrs, mode: 'iptables' }), ['No nodePortAddresses are given']);
  assert.deepEqual(warned({ ...cidrs, mode: 'iptables', nodePortAddresses: ['primary'] }), []);
  assert.deepEqual(warned({ ...cidrs, mode: 'nftables' }), []);
  assert.deepEqual(warned({ mode: 'nftables' }), ['Detect-local-mode set to ClusterCIDR, but no cluster CIDR is given']);
  assert.deepEqual(warned({ mode: 'nftables', detectLocalMode: 'NodeCIDR' }), []);
  const dual = { mode: 'nftables', clusterCIDR: '10.244.0.0/16,fd00::/48' };
  assert.deepEqual(warned({ ...dual, nodePortAddresses: ['192.0.2.0/24'] }), ['The nodePortAddresses have none of IPv6']);
  assert.deepEqual(warned({ ...dual, nodePortAddresses: ['192.0.2.0/24', 'localhost'] }), []);
  assert.deepEqual(warned({ ...cidrs, mode: 'nftables', nodePortAddresses: ['192.0.2.0/24'] }), []);
});

test('a machine of one family and a cluster of the other', () => {
  const check = (object: object, families: readonly Family[]) => () => checkFamilies(proxyConfig({ mode: 'nftables', ...object }), families);
  assert.throws(check({ clusterCIDR: 'fd00::/48' }, ['ip']), /this machine has IPv4 alone, and clusterCIDR fd00::\/48 has nothing of it/);
  for (const fits of [
    check({ clusterCIDR: 'fd00::/48' }, ['ip', 'ip6']),
    check({ clusterCIDR: '10.244.0.0/16,fd00::/48' }, ['ip']),
    check({ clusterCIDR: 'fd00::/48', detectLocalMode: 'NodeCIDR' }, ['ip']),
    check({}, ['ip']),
  ])
    assert.doesNotThrow(fits);
});
