import assert from 'node:assert/strict';
import { test } from 'node:test';
import { kernelDefaults, kernelProblems } from './kernel-defaults.ts';

test('a kernel as the kubelet wants it, and one that is not', () => {
  assert.deepEqual(
    kernelProblems((name) => `${kernelDefaults[name]}\n`),
    [],
  );
  assert.deepEqual(
    kernelProblems((name) => (name === 'kernel/panic' ? '0\n' : name === 'vm/panic_on_oom' ? null : String(kernelDefaults[name]))),
    ['invalid kernel flag: vm/panic_on_oom, expected value: 0, actual value: none', 'invalid kernel flag: kernel/panic, expected value: 10, actual value: 0'],
  );
});
