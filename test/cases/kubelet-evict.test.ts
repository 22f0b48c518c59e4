import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { after, before, describe, test } from 'node:test';
import type { Event, Node, Pod } from '../../proto/kube/types.ts';
import { eventually } from '../set.ts';
import { box, Cases, conditionOf, NAMESPACE, shell, skip } from './world.ts';

/*
 * Node-pressure eviction on one real set. A threshold above what is free cannot be relieved, so that pods go one after
 * another in the order of their ranking; what only ranking and grace depend on is in agent/core/evict-*.test.ts.
 */
let at: Cases;
before(async () => {
  if (skip === false) at = await Cases.open('kc-evict');
});
after(() => at?.[Symbol.asyncDispose]());

/** Gives the kubelet of the node other settings and starts it again. */
async function configure(settings: object): Promise<void> {
  const path = `${at.folder}/agent.json`;
  const { evictionHard: _, evictionSoft: __, evictionSoftGracePeriod: ___, ...rest } = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  await at.stopAgent();
  writeFileSync(path, JSON.stringify({ ...rest, ...settings }));
  await at.init('start agent');
}

const node = async (): Promise<Node> => JSON.parse(await at.k('get', 'node', 'node-1', '-o', 'json')) as Node;
const pressure = async (type: string): Promise<string> => {
  const condition = (await node()).status?.conditions?.find((each) => each.type === type);
  return `${condition?.status ?? ''} ${condition?.reason ?? ''}: ${condition?.message ?? ''}`;
};
const ended = (name: string): Promise<Pod> => at.watch.pod(name, 'is evicted', 150_000, (pod) => pod.status?.phase === 'Failed');
const endedAtMs = (name: string): number => at.watch.history(name).find(({ pod }) => pod.status?.phase === 'Failed')?.atMs ?? Number.POSITIVE_INFINITY;
const nodeEvents = async (): Promise<Event[]> =>
  (JSON.parse(await at.set.k(['get', 'events', '-n', 'default', '-o', 'json'])) as { items: Event[] }).items.filter(
    (event) => event.involvedObject.kind === 'Node',
  );
const say = (what: string, value: unknown): void => console.log(`${what}: ${JSON.stringify(value)}`);

const eats = shell("x=$(dd if=/dev/zero bs=1M count=50 2>/dev/null | tr '\\0' x); while :; do sleep 1; done");
const idle = ['sleep', '3600'];
const quick = { terminationGracePeriodSeconds: 1 };

describe('node-pressure eviction', { skip, timeout: 600_000 }, () => {
  test('memory: the one beyond its request that uses most goes first, critical pods stay, and no best-effort pod comes in', async () => {
    await at.create('small', { ...quick, containers: [box('m', idle)] });
    await at.create('hog', { ...quick, containers: [box('m', eats)] });
    await at.create('critical', { ...quick, priorityClassName: 'system-node-critical', containers: [box('m', idle)] });
    for (const name of ['small', 'hog', 'critical']) await at.ready(name);
    const meminfo = readFileSync('/proc/meminfo', 'utf8');
    const totalKi = Number(/^MemTotal:\s+(\d+)/m.exec(meminfo)?.[1]);
    await configure({ evictionHard: { 'memory.available': `${totalKi - 512 * 1024}Ki` }, evictionPressureTransitionPeriod: '15s' });
    const hog = await ended('hog');
    await ended('small');
    say('hog', hog.status?.message);
    assert.ok(endedAtMs('hog') < endedAtMs('small'));
    assert.equal(hog.status?.reason, 'Evicted');
    assert.match(
      hog.status?.message ?? '',
      /^The node was low on resource: memory\. Threshold quantity: \d+Ki, available: \d+Ki\. Container m was using \d+Ki, request is 0, has larger consumption of memory\. $/,
    );
    const condition = conditionOf(hog, 'DisruptionTarget');
    assert.deepEqual([condition?.status, condition?.reason, condition?.message], ['True', 'TerminationByKubelet', hog.status?.message]);
    const [event] = await at.watch.until('the Event', 10_000, () => {
      const events = at.watch.eventsOf('hog').filter(({ reason }) => reason === 'Evicted');
      return events.length === 0 ? null : events;
    });
    assert.deepEqual(
      [event?.type, event?.message, event?.metadata.annotations?.['starved_resource'], event?.metadata.annotations?.['offending_containers']],
      ['Warning', hog.status?.message, 'memory', 'm'],
    );
    await eventually('the node says so', 20_000, async () => ((await pressure('MemoryPressure')).startsWith('True') ? true : null));
    assert.equal(await pressure('MemoryPressure'), 'True KubeletHasInsufficientMemory: kubelet has insufficient memory available');
    await eventually('the taint', 20_000, async () =>
      (await node()).spec.taints?.some(({ key, effect }) => key === 'node.kubernetes.io/memory-pressure' && effect === 'NoSchedule') === true ? true : null,
    );
    const met = (await nodeEvents()).find(({ reason }) => reason === 'EvictionThresholdMet');
    assert.deepEqual([met?.type, met?.message], ['Warning', 'Attempting to reclaim memory']);
    await at.create('late', { ...quick, nodeName: 'node-1', containers: [box('m', idle)] });
    const late = await ended('late');
    say('late', [late.status?.reason, late.status?.message]);
    assert.deepEqual([late.status?.reason, late.status?.message], ['Evicted', 'Pod was rejected: The node had condition: [MemoryPressure]. ']);
    assert.equal(at.watch.last('critical')?.status?.phase, 'Running');
    await configure({ evictionHard: { 'memory.available': '10Mi' }, evictionPressureTransitionPeriod: '15s' });
    await eventually('it is over', 60_000, async () => ((await pressure('MemoryPressure')).startsWith('False') ? true : null));
    assert.equal(await pressure('MemoryPressure'), 'False KubeletHasSufficientMemory: kubelet has sufficient memory available');
  });

  test('disk: the one whose volume is largest goes first', async () => {
    const volume = { volumes: [{ name: 'd', emptyDir: {} }] };
    const mount = { volumeMounts: [{ name: 'd', mountPath: '/d' }] };
    const writes = (count: number): string[] => shell(`dd if=/dev/zero of=/d/f bs=1M count=${count}; exec tail -f /dev/null`);
    await at.create('writes-little', { ...quick, ...volume, containers: [box('m', writes(1), mount)] });
    await at.create('writes-much', { ...quick, ...volume, containers: [box('m', writes(60), mount)] });
    for (const name of ['writes-little', 'writes-much']) await at.ready(name);
    await eventually('all is written', 20_000, async () =>
      (await at.k('exec', 'writes-much', '--', 'stat', '-c', '%s', '/d/f')) === String(60 << 20) ? true : null,
    );
    const disk = await statfs(at.path('/'));
    const freeGi = Math.ceil((disk.bavail * disk.bsize) / 2 ** 30);
    await configure({ evictionHard: { 'nodefs.available': `${freeGi + 20}Gi` }, evictionPressureTransitionPeriod: '15s' });
    const much = await ended('writes-much');
    await ended('writes-little');
    say('writes-much', much.status?.message);
    assert.ok(endedAtMs('writes-much') < endedAtMs('writes-little'));
    assert.match(much.status?.message ?? '', /^The node was low on resource: ephemeral-storage\. Threshold quantity: \d+Gi, available: \d+Ki\. /);
    assert.equal(await pressure('DiskPressure'), 'True KubeletHasDiskPressure: kubelet has disk pressure');
    await at.create('refused', { ...quick, nodeName: 'node-1', containers: [box('m', idle, { resources: { requests: { cpu: '1m' } } })] });
    const refused = await ended('refused');
    say('refused', [refused.status?.reason, refused.status?.message]);
    assert.match(refused.status?.message ?? '', /^Pod was rejected: The node had condition: \[DiskPressure\]\. $/);
    await configure({ evictionHard: {}, evictionPressureTransitionPeriod: '15s' });
    await eventually('it is over', 60_000, async () => ((await pressure('DiskPressure')).startsWith('False') ? true : null));
  });

  test('a soft threshold waits for its grace', async () => {
    await at.create('soft', { terminationGracePeriodSeconds: 30, containers: [box('m', shell("trap '' TERM; while :; do sleep 0.2; done"))] });
    await at.ready('soft');
    const totalKi = Number(/^MemTotal:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]);
    const begunMs = performance.now();
    await configure({
      evictionHard: {},
      evictionSoft: { 'memory.available': `${totalKi}Ki` },
      evictionSoftGracePeriod: { 'memory.available': '15s' },
      evictionMaxPodGracePeriod: 3,
      evictionPressureTransitionPeriod: '15s',
    });
    await ended('soft');
    const tookMs = performance.now() - begunMs;
    say('soft', { tookS: Math.round(tookMs / 1000), namespace: NAMESPACE });
    assert.ok(tookMs > 15_000, 'not before its grace');
    const stop = at.calls('soft').find((call) => call.method === 'StopContainer');
    assert.equal(stop?.timeoutS, 3);
  });
});
