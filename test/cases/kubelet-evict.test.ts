import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Event, Node, Pod } from '../../proto/kube/types.ts';
import { eventually } from '../set.ts';
import { box, Cases, conditionOf, logMount, shell, skip } from './world.ts';

/*
 * Node-pressure eviction on one real set. What is short is the node's alone and not the machine's: the memory that all
 * pods together may use, and a kubelet folder on a small tmpfs. Ranking by its table: agent/core/evict-rank.test.ts.
 */
let at: Cases;
before(async () => {
  if (skip === false) at = await Cases.open('kc-evict');
});
after(() => at?.[Symbol.asyncDispose]());

/** Gives the kubelet of the node other settings and starts it again; `meanwhile` is done while it is stopped. */
async function configure(settings: object, meanwhile?: () => Promise<unknown>): Promise<void> {
  const path = `${at.folder}/agent.json`;
  const own = ['evictionHard', 'evictionSoft', 'evictionSoftGracePeriod', 'systemReserved'];
  const before = Object.entries(JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>).filter(([name]) => !own.includes(name));
  await at.stopAgent();
  writeFileSync(path, JSON.stringify({ ...Object.fromEntries(before), evictionPressureTransitionPeriod: '15s', ...settings }));
  await meanwhile?.();
  await at.init('start agent');
}

const node = async (): Promise<Node> => JSON.parse(await at.k('get', 'node', 'node-1', '-o', 'json')) as Node;
const pressure = async (type: string): Promise<string> => {
  const condition = (await node()).status?.conditions?.find((each) => each.type === type);
  return `${condition?.status ?? ''} ${condition?.reason ?? ''}: ${condition?.message ?? ''}`;
};
const ended = (name: string): Promise<Pod> => at.watch.pod(name, 'is evicted', 150_000, (pod) => pod.status?.phase === 'Failed');
const nodeEvents = async (): Promise<Event[]> =>
  (JSON.parse(await at.set.k(['get', 'events', '-n', 'default', '-o', 'json'])) as { items: Event[] }).items.filter(
    (event) => event.involvedObject.kind === 'Node',
  );
const say = (what: string, value: unknown): void => console.log(`${what}: ${JSON.stringify(value)}`);

const idle = ['sleep', '3600'];
const quick = { terminationGracePeriodSeconds: 1 };
/** Does `what` once the test says so by a file in the pod's log volume. */
const when = (what: string): string[] => shell(`until [ -e /log/go ]; do sleep 0.2; done; ${what}; while :; do sleep 1; done`);
const go = (pod: string): void => writeFileSync(at.path(`${at.folder}/cases/${pod}/go`), '');
/** Files in memory are charged to who writes them. */
const eats = (mi: number) => ({
  ...quick,
  containers: [box('m', when(`dd if=/dev/zero of=/ram/f bs=1M count=${mi}`), { volumeMounts: [logMount, { name: 'ram', mountPath: '/ram' }] })],
  volumes: [{ name: 'ram', emptyDir: { medium: 'Memory' } }],
});
const smallDisk = (): Promise<unknown> => at.inNode('mount', '-t', 'tmpfs', '-o', 'size=200m', 'tmpfs', '/var/lib/kubelet');

describe('node-pressure eviction', { skip, timeout: 600_000 }, () => {
  test('a critical pod that does not fit ends a lesser one, another is refused', async () => {
    const cpus = Number((await node()).status?.allocatable?.['cpu']);
    const asks = (cpu: string) => ({ nodeName: 'node-1', containers: [box('m', idle, { resources: { requests: { cpu } } })] });
    await at.create('filler', { terminationGracePeriodSeconds: 2, ...asks(`${cpus * 1000 - 500}m`) });
    await at.ready('filler');
    await at.create('too-much', { ...quick, ...asks('1') });
    const refused = await ended('too-much');
    say('too-much', [refused.status?.reason, refused.status?.message]);
    const words = `Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: ${cpus * 1000 - 500}, capacity: ${cpus * 1000}`;
    assert.deepEqual([refused.status?.reason, refused.status?.message], ['OutOfcpu', words]);
    await at.create('vip', { ...quick, ...asks('1'), priorityClassName: 'system-node-critical' });
    const filler = await ended('filler');
    await at.ready('vip');
    say('filler', [filler.status?.reason, filler.status?.message]);
    assert.deepEqual([filler.status?.reason, filler.status?.message], ['Preempting', 'Preempted in order to admit critical pod']);
    const condition = conditionOf(filler, 'DisruptionTarget');
    assert.deepEqual(
      [condition?.status, condition?.reason, condition?.message],
      ['True', 'TerminationByKubelet', 'Pod was preempted by Kubelet to accommodate a critical pod.'],
    );
    const event = at.watch.eventsOf('filler').find(({ reason }) => reason === 'Preempting');
    assert.deepEqual([event?.type, event?.message], ['Warning', 'Preempted in order to admit critical pod']);
    assert.equal(at.calls('filler').find((call) => call.method === 'StopContainer')?.timeoutS, 2);
    for (const name of ['vip', 'filler', 'too-much']) await at.remove(name, '--grace-period=0', '--force');
  });

  test('memory of all pods: the one that uses most goes, and it alone; no best-effort pod comes in meanwhile', async () => {
    const totalMi = Math.floor(Number(/^MemTotal:\s+(\d+)/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]) / 1024);
    await configure({ evictionHard: { 'memory.available': '300Mi' }, systemReserved: { memory: `${totalMi - 600}Mi` } });
    await at.create('small', { ...quick, containers: [box('m', idle)] });
    await at.create('hog', eats(250));
    await at.create('critical', { ...eats(120), priorityClassName: 'system-node-critical' });
    for (const name of ['small', 'hog', 'critical']) await at.ready(name);
    go('critical');
    go('hog');
    const hog = await ended('hog');
    say('hog', hog.status?.message);
    assert.equal(hog.status?.reason, 'Evicted');
    assert.match(
      hog.status?.message ?? '',
      /^The node was low on resource: memory\. Threshold quantity: 300Mi, available: \d+Ki\. Container m was using \d+Ki, request is 0, has larger consumption of memory\. $/,
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
    await at.create('late', { ...quick, nodeName: 'node-1', tolerations: [{ key: 'other', operator: 'Exists' }], containers: [box('m', idle)] });
    const late = await ended('late');
    say('late', [late.status?.reason, late.status?.message]);
    assert.deepEqual([late.status?.reason, late.status?.message], ['Evicted', 'Pod was rejected: The node had condition: [MemoryPressure]. ']);
    for (const name of ['critical', 'small']) assert.equal(at.watch.last(name)?.status?.phase, 'Running', name);
    await eventually('it is over', 60_000, async () => ((await pressure('MemoryPressure')).startsWith('False') ? true : null));
    assert.equal(await pressure('MemoryPressure'), 'False KubeletHasSufficientMemory: kubelet has sufficient memory available');
  });

  test('disk: the one whose volume is largest goes, and it alone', async () => {
    for (const name of ['small', 'critical', 'hog', 'late']) await at.remove(name, '--grace-period=0', '--force');
    await eventually('no pod is left', 60_000, async () => ((await at.k('get', 'pods', '-o', 'name')) === '' ? true : null));
    await configure({ evictionHard: { 'nodefs.available': '80Mi' } }, smallDisk);
    const volume = { volumes: [{ name: 'd', emptyDir: {} }] };
    const mounts = { volumeMounts: [logMount, { name: 'd', mountPath: '/d' }] };
    const writes = (count: number): string[] => when(`dd if=/dev/zero of=/d/f bs=1M count=${count}`);
    await at.create('writes-little', { ...quick, ...volume, containers: [box('m', writes(20), mounts)] });
    const much90 = when('dd if=/dev/zero of=/d/f bs=1M count=90; until [ -e /log/more ]; do sleep 0.2; done; dd if=/dev/zero of=/d/g bs=1M count=30');
    await at.create('writes-much', { ...quick, ...volume, containers: [box('m', much90, mounts)] });
    for (const name of ['writes-little', 'writes-much']) await at.ready(name);
    go('writes-little');
    go('writes-much');
    // Upstream sizes volumes once a minute, and ranks by what it has.
    if (process.env['NODELET_CASES_KUBELET'] !== undefined) await delay(75_000);
    await eventually('what fits is written', 30_000, async () => (/^9\d{4}/.test(await at.k('exec', 'writes-much', '--', 'du', '-k', '/d/f')) ? true : null));
    writeFileSync(at.path(`${at.folder}/cases/writes-much/more`), '');
    const much = await ended('writes-much');
    say('writes-much', much.status?.message);
    assert.match(
      much.status?.message ?? '',
      /^The node was low on resource: ephemeral-storage\. Threshold quantity: 80Mi, available: \d+Ki\. Container m was using \d+Ki, request is 0, /,
    );
    await eventually('the node says so', 20_000, async () => ((await pressure('DiskPressure')).startsWith('True') ? true : null));
    assert.equal(await pressure('DiskPressure'), 'True KubeletHasDiskPressure: kubelet has disk pressure');
    await at.create('refused', { ...quick, nodeName: 'node-1', containers: [box('m', idle, { resources: { requests: { cpu: '1m' } } })] });
    const refused = await ended('refused');
    say('refused', [refused.status?.reason, refused.status?.message]);
    assert.match(refused.status?.message ?? '', /^Pod was rejected: The node had condition: \[DiskPressure\]\. $/);
    await eventually('it is over', 60_000, async () => ((await pressure('DiskPressure')).startsWith('False') ? true : null));
    assert.equal(await pressure('DiskPressure'), 'False KubeletHasNoDiskPressure: kubelet has no disk pressure');
    assert.equal(at.watch.last('writes-little')?.status?.phase, 'Running');
  });

  test('a soft threshold waits for its grace, and the pod gets what both it and the node allow', async () => {
    await configure({
      evictionHard: {},
      evictionSoft: { 'nodefs.available': '80Mi' },
      evictionSoftGracePeriod: { 'nodefs.available': '15s' },
      evictionMaxPodGracePeriod: 3,
    });
    const script = `trap '' TERM; until [ -e /log/go ]; do sleep 0.2; done; dd if=/dev/zero of=/d/f bs=1M count=130; while :; do sleep 0.2; done`;
    await at.create('soft', {
      terminationGracePeriodSeconds: 30,
      volumes: [{ name: 'd', emptyDir: {} }],
      containers: [box('m', shell(script), { volumeMounts: [logMount, { name: 'd', mountPath: '/d' }] })],
    });
    await at.ready('soft');
    go('soft');
    const begunMs = performance.now();
    await ended('soft');
    const tookMs = performance.now() - begunMs;
    const stop = at.calls('soft').find((call) => call.method === 'StopContainer');
    say('soft', { tookS: Math.round(tookMs / 1000), timeoutS: stop?.timeoutS });
    assert.ok(tookMs > 15_000, 'not before its grace');
    assert.equal(stop?.timeoutS, 3);
  });
});
