import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { qosMemoryLimits, readQosReserved } from './qos-reserved.ts';

test('percentages of memory and nothing else', () => {
  assert.equal(readQosReserved({}), null);
  assert.deepEqual(readQosReserved({ memory: '50%' }), { percent: 50n });
  for (const [name, value] of [
    ['cpu', '50%'],
    ['memory', '50'],
    ['memory', '101%'],
    ['memory', '-1%'],
  ] as const)
    assert.equal(typeof readQosReserved({ [name]: value }), 'string');
});

test('what better pods ask for is kept from the others', () => {
  const pod = (qosClass: string, memory: string): Pod => ({
    metadata: { name: 'p' },
    spec: { containers: [{ name: 'm', resources: { requests: { memory } } }] },
    status: { qosClass },
  });
  const pods = [pod('Guaranteed', '200'), pod('Guaranteed', '100'), pod('Burstable', '100'), pod('BestEffort', '0')];
  assert.deepEqual(qosMemoryLimits(pods, 1_000n, 50n), { burstable: 850n, bestEffort: 800n });
  assert.deepEqual(qosMemoryLimits(pods, 1_000n, 0n), { burstable: 1_000n, bestEffort: 1_000n });
});
