import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { podsToPreempt } from './preempt.ts';

function pod(name: string, cpu: string, memory: string, given: Partial<Pod['spec']> & { limited?: boolean } = {}): Pod {
  const { limited = false, ...spec } = given;
  const amounts = { ...(cpu === '' ? {} : { cpu }), ...(memory === '' ? {} : { memory }) };
  return {
    metadata: { name, namespace: 'n', uid: name },
    spec: { containers: [{ name: 'm', resources: { requests: amounts, ...(limited ? { limits: amounts } : {}) } }], priority: 0, ...spec },
  };
}
const critical = pod('critical', '1', '1Gi', { priority: 2_000_000_000 });
const ended = (pods: Pod[], cpu: number, memoryMi: number, preemptor = critical): string => {
  const requirements = [
    ...(cpu === 0 ? [] : [{ resource: 'cpu', amount: BigInt(cpu) }]),
    ...(memoryMi === 0 ? [] : [{ resource: 'memory', amount: BigInt(memoryMi) << 20n }]),
  ];
  const plan = podsToPreempt(preemptor, pods, requirements);
  return 'problem' in plan ? plan.problem : plan.victims.map(({ metadata }) => metadata.name).join(' ');
};

test('as few pods as will do end for a critical one, of the better classes only what the others cannot give', () => {
  const bestEffort = pod('best-effort', '', '');
  const burstable = [pod('b100', '100m', '100Mi'), pod('b200', '200m', '200Mi'), pod('b400', '400m', '50Mi')];
  const guaranteed = [pod('g200', '200m', '200Mi', { limited: true }), pod('g500', '500m', '500Mi', { limited: true })];
  const all = [bestEffort, ...burstable, ...guaranteed];
  assert.equal(ended(all, 0, 0), '');
  assert.equal(ended(all, 100, 100), 'b100');
  assert.equal(ended(all, 150, 0), 'b400', 'of two that suffice the one that asks for less memory');
  assert.equal(ended(all, 600, 0), 'b400 b200');
  assert.equal(ended(all, 1100, 0), 'b400 b200 g500');
  assert.equal(ended(all, 5000, 0), 'no set of running pods found to reclaim resources: [(res: cpu, q: 3600), ]');
});

test('only lesser pods end: no critical ones, none of equal priority', () => {
  const other = pod('other-critical', '1', '1Gi', { priority: 2_000_000_000 });
  const fixed = pod('static', '1', '1Gi', { priority: undefined });
  fixed.metadata.annotations = { 'kubernetes.io/config.source': 'file' };
  assert.match(ended([other, fixed], 500, 0), /^no set of running pods/);
  const node = pod('node-critical', '1', '1Gi', { priority: 2_000_001_000 });
  assert.equal(ended([other], 500, 0, node), 'other-critical');
});

test('room for one more pod is a requirement too', () => {
  const plan = podsToPreempt(critical, [pod('a', '', ''), pod('b', '100m', '')], [{ resource: 'pods', amount: 1n }]);
  assert.deepEqual('victims' in plan ? plan.victims.map(({ metadata }) => metadata.name) : plan, ['a']);
});
