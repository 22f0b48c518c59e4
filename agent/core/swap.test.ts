import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mayReachSwap } from './swap.ts';

test('volumes in memory may be swapped out by old kernels that have swap, and in user namespaces', () => {
  const of = (kernelVersion: string, swapBytes = 1 << 30, inUserNamespace?: boolean): boolean =>
    mayReachSwap({ kernelVersion, swapBytes, ...(inUserNamespace === undefined ? {} : { inUserNamespace }) });
  assert.deepEqual(
    ['5.15.0-91-generic', '6.3.9', '6.4.0', '6.12.1+', '7.0'].map((version) => of(version)),
    [true, true, false, false, false],
  );
  assert.equal(of('5.15.0', 0), false, 'without swap there is nothing to fear');
  assert.equal(of('6.12.0', 1, true), true);
});
