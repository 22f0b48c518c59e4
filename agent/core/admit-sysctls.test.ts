import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { defaultSysctlsOf, defaultSysctlsProblems } from './admit-sysctls.ts';

const defaults = { 'net/ipv4/tcp_syncookies': '1', 'kernel.shmmax': '2', 'user.max_net_namespaces': '3', 'kernel.domainname': 'd' };
const of = (spec: Partial<Pod['spec']>): string[] => Object.keys(defaultSysctlsOf({ metadata: {}, spec: { containers: [], ...spec } }, defaults)).toSorted();

test('a pod gets the defaults of the namespaces that are its own', () => {
  assert.deepEqual(of({}), ['kernel.domainname', 'kernel.shmmax', 'net.ipv4.tcp_syncookies']);
  assert.deepEqual(of({ hostNetwork: true }), ['kernel.shmmax']);
  assert.deepEqual(of({ hostIPC: true, hostUsers: false }), ['kernel.domainname', 'net.ipv4.tcp_syncookies', 'user.max_net_namespaces']);
});

test('defaults that cannot be had are said', () => {
  assert.deepEqual(defaultSysctlsProblems({}, false), []);
  assert.deepEqual(defaultSysctlsProblems(defaults, true), []);
  assert.match(defaultSysctlsProblems(defaults, false).join(), /feature gate is required/);
  assert.deepEqual(defaultSysctlsProblems({ 'vm.swappiness': '1', 'Net.x': '1', 'net.a': '1', 'net/a': '1' }, true), [
    '"vm.swappiness" is not known to be namespaced for defaultPodSysctls',
    '"Net.x" is not a valid sysctl name for defaultPodSysctls',
    'duplicate sysctl "net.a" found in defaultPodSysctls',
  ]);
});
