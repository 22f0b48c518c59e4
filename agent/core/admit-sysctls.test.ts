import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { allowedSysctlsProblems, defaultSysctlsOf, defaultSysctlsProblems } from './admit-sysctls.ts';

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

test('only what each namespace has its own of may be allowed', () => {
  assert.deepEqual(
    allowedSysctlsProblems(['net.ipv4.route.*', 'net/core/somaxconn', 'kernel.shm*', 'kernel.msg*', 'kernel.sem', 'fs.mqueue.*', 'user.max_net_namespaces']),
    [],
  );
  assert.deepEqual(allowedSysctlsProblems(['kernel.panic', 'kernel.*', 'vm.*']), [
    'allowedUnsafeSysctls: the sysctls "kernel.panic" are not known to be namespaced',
    'allowedUnsafeSysctls: the sysctls "kernel." are not known to be namespaced',
    'allowedUnsafeSysctls: the sysctls "vm." are not known to be namespaced',
  ]);
  for (const wrong of ['*', '', 'net.*.a', 'Net.core', 'net..a', 'net.'])
    assert.match(allowedSysctlsProblems([wrong]).join(), /must have at most 253|not known to be namespaced/, wrong);
});
