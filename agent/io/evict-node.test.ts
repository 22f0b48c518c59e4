import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import type { Pod } from '../../proto/kube/types.ts';
import type { PodUse } from '../core/evict-rank.ts';
import type { EvictionSignal, Observation } from '../core/evict-thresholds.ts';
import { thresholdsOf } from '../core/evict-thresholds.ts';
import { parseQuantity } from '../core/quantity.ts';
import { NodeEviction } from './evict-node.ts';
import type { NodeEvictionOptions } from './evict-node.ts';

const gi = 1n << 30n;

/** A node whose memory or disk is what the pods and images on it leave of 10 GiB. */
function world(
  given: { uses?: Record<string, bigint>; priorities?: Record<string, number>; hard?: Record<string, string>; imagesGi?: number; deaf?: string[] } = {},
) {
  const clock = createFakeClock();
  const uses = new Map(Object.entries(given.uses ?? { a: 1n, b: 4n, c: 4n }));
  const ending = new Map<string, number>();
  let images = BigInt(given.imagesGi ?? 0);
  const did: string[] = [];
  const conditions: string[] = [];
  const free = (): bigint => 10n - images - [...uses.values()].reduce((sum, each) => sum + each, 0n);
  const pods = (): Pod[] =>
    [...uses.keys()].map((uid) => ({
      metadata: { name: uid, namespace: 'n', uid },
      spec: { containers: [{ name: 'm' }], priority: given.priorities?.[uid] ?? 0, terminationGracePeriodSeconds: 30 },
      status: { phase: 'Running' },
    }));
  const observe = (): Map<EvictionSignal, Observation> => {
    const observation = { available: parseQuantity(`${free()}Gi`), capacity: parseQuantity('10Gi') };
    return new Map([
      ['memory.available', observation],
      ['nodefs.available', observation],
    ]);
  };
  let quickLooks = 0;
  const fault: { error: Error | null } = { error: null };
  const options: NodeEvictionOptions = {
    clock,
    log: silentLog,
    events: {
      event: (target, type, reason, message, annotations) =>
        void did.push(`${target.name} ${type} ${reason} ${message}${annotations === undefined ? '' : ` ${JSON.stringify(annotations)}`}`),
    },
    pods: {
      list: pods,
      synced: () => true,
      mayRun: (uid) => uses.has(uid),
      holdsDisk: () => false,
      async evict(uid, { reason, graceMs, condition }, signal) {
        did.push(`evict ${uid} ${reason} ${graceMs} ${condition?.reason}`);
        ending.set(uid, clock.monoMs());
        if (given.deaf?.includes(uid) === true) return await clock.sleep(1_000_000, signal);
        uses.delete(uid);
      },
    },
    measure: {
      layout: async () => 'one',
      quick: async () => {
        quickLooks++;
        if (fault.error !== null) throw fault.error;
        return observe();
      },
      all: async () => observe(),
      pods: async (list) =>
        new Map(
          list.map((pod): [string, PodUse] => [
            pod.metadata.uid!,
            { memoryBytes: (uses.get(pod.metadata.uid!) ?? 0n) * gi, processes: 1n, containers: [], volumes: new Map() },
          ]),
        ),
    },
    reclaim: {
      containers: async () => void did.push('reclaim containers'),
      images: async () => {
        did.push('reclaim images');
        images = 0n;
      },
    },
    node: () => ({ apiVersion: 'v1', kind: 'Node', name: 'node', uid: 'node' }),
    thresholds: thresholdsOf({
      evictionHard: given.hard ?? { 'memory.available': '2Gi' },
      evictionSoft: {},
      evictionSoftGracePeriod: {},
      evictionMinimumReclaim: {},
      enforceNodeAllocatable: [],
    }),
    transitionMs: 300_000,
    maxPodGraceSeconds: 0,
    onChange: () => conditions.push(eviction.conditions().join()),
    evicted: (signal) => did.push(`counted ${signal}`),
    statsAge: () => {},
  };
  const eviction = new NodeEviction(options);
  const stop = new AbortController();
  const running = eviction.run(stop.signal);
  return { clock, did, conditions, uses, fault, quickLooks: () => quickLooks, end: async () => (stop.abort(), await running) };
}

const threshold = 'Warning EvictionThresholdMet Attempting to reclaim';

test('one pod a pass, until enough is free; the condition stays for its period', async () => {
  const { clock, did, conditions, uses, end } = world({ priorities: { c: 5 } });
  await clock.advance(60_000);
  assert.deepEqual(
    did.map((line) => line.replace(/The node was low.*/, '…')),
    [`node ${threshold} memory`, 'b Warning Evicted …', 'evict b Evicted 1000 TerminationByKubelet', 'counted memory.available'],
  );
  assert.deepEqual([...uses.keys()], ['a', 'c']);
  assert.deepEqual(conditions, ['MemoryPressure']);
  await clock.advance(300_000);
  assert.deepEqual(conditions, ['MemoryPressure', '']);
  await end();
});

test('images that nobody uses go before any pod', async () => {
  const { clock, did, uses, end } = world({ uses: { a: 4n, b: 3n }, imagesGi: 2, hard: { 'nodefs.available': '2Gi' } });
  await clock.advance(30_000);
  assert.deepEqual(did, [`node ${threshold} ephemeral-storage`, 'reclaim containers', 'reclaim images']);
  assert.equal(uses.size, 2);
  await end();
});

test('critical pods stay whatever they use; one that does not end in time is told of, and the next goes', async () => {
  const { clock, did, end } = world({ uses: { critical: 5n, deaf: 3n, small: 1n }, priorities: { critical: 2_000_000_000 }, deaf: ['deaf'] });
  await clock.advance(11_000);
  assert.equal(
    did.some((line) => line.startsWith('deaf Warning ExceededGracePeriod')),
    true,
  );
  await clock.advance(60_000);
  assert.deepEqual(
    did.filter((line) => line.startsWith('evict ')),
    ['evict deaf Evicted 1000 TerminationByKubelet', 'evict small Evicted 1000 TerminationByKubelet'],
  );
  await end();
});

test('near a threshold the kernel is read each second, and crossing it does not wait for the period', async () => {
  const { clock, did, uses, quickLooks, end } = world({ uses: { a: 4n, b: 4n }, hard: { 'memory.available': '1900Mi' } });
  await clock.advance(5_000);
  assert.ok(quickLooks() >= 5);
  uses.set('b', 5n);
  await clock.advance(1_500);
  assert.equal(did.filter((line) => line.startsWith('evict b')).length, 1);
  await end();
});

test('without thresholds nothing is read', async () => {
  const { clock, did, quickLooks, end } = world({ hard: {} });
  await clock.advance(60_000);
  assert.deepEqual([did, quickLooks()], [[], 0]);
  await end();
});

test('what cannot be read for a while ends nothing', async () => {
  const { clock, did, fault, quickLooks, end } = world({ uses: { a: 1n } });
  fault.error = new OpError('unavailable', 'read files', 'sys ended');
  await clock.advance(30_000);
  const looks = quickLooks();
  assert.ok(looks > 1, String(looks));
  fault.error = null;
  await clock.advance(30_000);
  assert.ok(quickLooks() > looks);
  assert.deepEqual(did, []);
  await end();
});
