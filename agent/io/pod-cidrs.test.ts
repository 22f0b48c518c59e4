import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node } from '../../proto/kube/types.ts';
import { silentLog } from '../../base/log.ts';
import { tellPodCidrs } from './pod-cidrs.ts';

test('the runtime is told of the pods’ addresses once, and again after a failure', async () => {
  const told: string[] = [];
  let refuse = true;
  let spec: Node['spec'] = {};
  let change: () => void = () => undefined;
  tellPodCidrs({
    log: silentLog,
    timeoutMs: 1_000,
    own: '',
    node: { node: () => ({ metadata: {}, spec }), onChange: (callback) => void (change = callback) },
    runtime: {
      updateRuntimeConfig: async ({ runtimeConfig }) => {
        told.push(runtimeConfig?.networkConfig?.podCidr ?? '');
        if (refuse) throw new Error('no');
        return {};
      },
    },
  });
  change();
  assert.deepEqual(told, []);
  spec = { podCIDR: '10.0.1.0/24', podCIDRs: ['10.0.1.0/24', 'fd00:1::/64'] };
  change();
  await new Promise(setImmediate);
  refuse = false;
  change();
  change();
  assert.deepEqual(told, ['10.0.1.0/24,fd00:1::/64', '10.0.1.0/24,fd00:1::/64']);
});
