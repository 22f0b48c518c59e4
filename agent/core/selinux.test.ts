import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PersistentVolume, Pod } from '../../proto/kube/types.ts';
import { contextOf, contextOption, fileContextOf, mountContext } from './selinux.ts';

const fileContext = 'system_u:object_r:container_file_t:s0';
const node = { fileContext, mountsAll: true };
const pv = (...accessModes: string[]): PersistentVolume => ({ metadata: { name: 'pv' }, spec: { accessModes } });
const mount = { volumeMounts: [{ name: 'v', mountPath: '/v' }] };
const level = (value: string) => ({ seLinuxOptions: { level: value } });
const names = new Set(['v']);
const podOf = (spec: Partial<Pod['spec']>): Pod => ({ metadata: {}, spec: { containers: [{ name: 'c', ...mount }], ...spec } });

test('the context of files by the machine and by what a process is', () => {
  assert.equal(fileContextOf('process = "system_u:system_r:container_t:s0"\n# file = "x"\nfile = "a:b:c:s0"\nro_file="d"\n'), 'a:b:c:s0');
  assert.equal(fileContextOf(''), '');
  assert.equal(contextOf({ level: 's0:c1,c2', type: 'spc_t', role: 'r' }, fileContext), 'system_u:object_r:container_file_t:s0:c1,c2');
  assert.equal(contextOf({ level: 's0:c1,c2', user: 'u' }, fileContext), 'u:object_r:container_file_t:s0:c1,c2');
  assert.equal(contextOf({ type: 'spc_t' }, fileContext), '', 'the runtime draws a level');
  assert.equal(contextOf({ level: 's0' }, ''), '', 'the machine has no contexts of containers');
  assert.equal(contextOption('a:b:c:s0:c1,c2'), 'context="a:b:c:s0:c1,c2"');
});

test('which volumes are mounted with a context', () => {
  const one = podOf({ securityContext: level('s0:c1,c2') });
  const wanted = { ok: true, context: 'system_u:object_r:container_file_t:s0:c1,c2' };
  const none = { ok: true, context: '' };
  assert.deepEqual(mountContext(node, one, names, pv('ReadWriteOnce'), true), wanted);
  assert.deepEqual(mountContext(node, one, names, pv('ReadWriteOnce'), false), none, 'its driver cannot');
  assert.deepEqual(mountContext({ ...node, mountsAll: false }, one, names, pv('ReadWriteOnce'), true), none);
  assert.deepEqual(mountContext({ ...node, mountsAll: false }, one, names, pv('ReadWriteOncePod'), true), wanted);
  const recursive = podOf({ securityContext: { ...level('s0:c1,c2'), seLinuxChangePolicy: 'Recursive' } });
  assert.deepEqual(mountContext(node, recursive, names, pv('ReadWriteOnce'), true), none);
  assert.deepEqual(mountContext(node, podOf({}), names, pv('ReadWriteOnce'), true), none, 'no options at all');
});

test('containers that do not agree', () => {
  const two = podOf({
    securityContext: level('s0:c1,c2'),
    containers: [
      { name: 'a', ...mount },
      { name: 'b', ...mount, securityContext: level('s0:c3,c4') },
      { name: 'c', securityContext: level('s0:c5,c6') },
    ],
  });
  assert.deepEqual(mountContext(node, two, names, pv('ReadWriteOnce'), true), {
    ok: false,
    message: 'multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2,system_u:object_r:container_file_t:s0:c3,c4',
  });
  assert.deepEqual(mountContext({ ...node, mountsAll: false }, two, names, pv('ReadWriteOnce'), true), { ok: true, context: '' });
});

test('a label cannot bring further options of the mount with it', () => {
  for (const options of [{ level: 's0:c1",suid,dev,x="' }, { level: 's0\\' }, { level: 's0\n' }, { level: 's0', user: 'u",rw,x="' }]) {
    const { ok } = mountContext(node, podOf({ securityContext: { seLinuxOptions: options } }), names, pv('ReadWriteOnce'), true);
    assert.equal(ok, false, JSON.stringify(options));
  }
  for (const value of ['s0', 's0-s0:c0.c1023', 's0:c1,c2', 'SystemLow-SystemHigh']) {
    assert.ok(mountContext(node, podOf({ securityContext: level(value) }), names, pv('ReadWriteOnce'), true).ok, value);
  }
});
