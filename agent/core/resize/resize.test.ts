import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod, ResourceRequirements } from '../../../proto/kube/types.ts';
import type { ContainerFacts, PodFacts } from '../types.ts';
import { allocationOf, heldPod, withAllocation } from './allocation.ts';
import { sizesOf } from './amounts.ts';
import { decodeCheckpoint, encodeCheckpoint } from './checkpoint.ts';
import { conditionsFrom, conditionsList, noConditions, pend, progress } from './conditions.ts';
import { compareWaiting, refusal } from './decide.ts';
import { planMoves } from './moves.ts';
import type { PodCgroupValues } from './moves.ts';
import { isResizing, noWork, planContainer, planPod } from './plan.ts';

const sized = (cpu: string, memory: string): ResourceRequirements => ({ limits: { cpu, memory }, requests: { cpu, memory } });
const podOf = (containers: Container[], extra: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { uid: 'u', name: 'p', namespace: 'n' },
  spec: { containers, ...extra },
  status: { qosClass: 'Burstable' },
});
const running = (name: string, id = name): ContainerFacts => ({ name, id, state: 'running', sandboxId: 's' }) as ContainerFacts;
const factsOf = (...containers: ContainerFacts[]): PodFacts => ({ uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers });

test("a checkpoint is read and written as upstream's kubelet does", () => {
  // From upstream's own tests: a file of an older kubelet.
  const vector = String.raw`{"data":"{\"entries\":{\"pod1\":{\"ContainerResources\":{\"container1\":{\"requests\":{\"cpu\":\"1Ki\",\"memory\":\"1Ki\"}}}}}}","checksum":1178570812}`;
  const read = decodeCheckpoint(vector, 'f');
  assert.deepEqual(read.get('pod1'), { containers: new Map([['container1', { requests: { cpu: '1Ki', memory: '1Ki' } }]]), pod: null });
  const text = encodeCheckpoint(
    new Map([
      [
        'b',
        {
          containers: new Map([
            ['z', sized('1', '1Gi')],
            ['a', {}],
          ]),
          pod: { requests: { memory: '2Gi', cpu: '2' } },
        },
      ],
      ['a', { containers: new Map(), pod: null }],
    ]),
  );
  const { data } = JSON.parse(text) as { data: string };
  assert.equal(
    data,
    '{"entries":{"a":{"ContainerResources":{},"PodLevelResources":null,"EmptyDirVolumeLimits":null},' +
      '"b":{"ContainerResources":{"a":{},"z":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"1","memory":"1Gi"}}},' +
      '"PodLevelResources":{"requests":{"cpu":"2","memory":"2Gi"}},"EmptyDirVolumeLimits":null}}}',
  );
  assert.deepEqual(decodeCheckpoint(text, 'f').get('b')?.pod, { requests: { cpu: '2', memory: '2Gi' } });
  assert.equal(decodeCheckpoint('', 'f').size, 0);
});

test('a damaged checkpoint is refused with advice', () => {
  for (const text of ['{', '{}', '[1]', '{"data":"{}","checksum":1}']) {
    assert.throws(
      () => decodeCheckpoint(text, 'allocated_pods_state'),
      (error: { code?: string; advice?: string }) => error.code === 'invalid' && error.advice?.includes('allocated_pods_state') === true,
    );
  }
});

test('a pod runs at its allocation; one that asks for what it has stays the same object', () => {
  const pod = podOf([{ name: 'm', resources: sized('1', '1Gi') }, { name: 'constructor' }]);
  const allocation = allocationOf(pod);
  assert.equal(withAllocation(pod, allocation), pod);
  assert.equal(
    withAllocation(
      podOf([
        { name: 'm', resources: sized('1000m', '1024Mi') },
        { name: 'constructor', resources: {} },
      ]),
      allocation,
    ).spec.containers[0]!.resources?.limits?.['cpu'],
    '1000m',
  );
  const grown = podOf([{ name: 'm', resources: sized('2', '1Gi') }, { name: 'constructor' }], { resources: sized('4', '4Gi') });
  const allocated = withAllocation(grown, allocation);
  assert.deepEqual(allocated.spec.containers[0]!.resources, sized('1', '1Gi'));
  assert.equal(allocated.spec.resources, undefined);
});

test('while it shrinks a pod holds what it had', () => {
  const pod = podOf([{ name: 'm', resources: sized('1', '1Gi') }]);
  const held = heldPod(pod, { containers: new Map([['m', sized('2', '512Mi')]]), pod: null });
  assert.deepEqual(held.spec.containers[0]!.resources?.requests, { cpu: '2', memory: '1Gi' });
});

test('a running container is updated, restarted by its policy, or left alone', () => {
  const cases: { policy?: Container['resizePolicy']; from: ResourceRequirements; to: ResourceRequirements; want: string }[] = [
    { from: sized('1', '1Gi'), to: sized('1', '1Gi'), want: 'keep' },
    { from: sized('1', '1Gi'), to: sized('2', '1Gi'), want: 'keep cpu' },
    { from: sized('1', '1Gi'), to: sized('1', '2Gi'), want: 'keep memory' },
    { from: sized('1', '1Gi'), to: sized('2', '2Gi'), want: 'keep memory cpu' },
    { policy: [{ resourceName: 'cpu', restartPolicy: 'RestartContainer' }], from: sized('1', '1Gi'), to: sized('1', '2Gi'), want: 'keep memory' },
    { policy: [{ resourceName: 'memory', restartPolicy: 'RestartContainer' }], from: sized('1', '1Gi'), to: sized('2', '2Gi'), want: 'restart' },
    { policy: [{ resourceName: 'cpu', restartPolicy: 'NotRequired' }], from: {}, to: { requests: { cpu: '1' } }, want: 'keep cpu' },
    { from: { requests: { memory: '1Gi' } }, to: { requests: { memory: '2Gi' } }, want: 'keep memory' },
  ];
  for (const { policy, from, to, want } of cases) {
    const container: Container = { name: 'm', resources: to, ...(policy === undefined ? {} : { resizePolicy: policy }) };
    const work = noWork();
    const verdict = planContainer(podOf([container]), container, running('m'), { containers: new Map([['m', from]]), pod: null }, work);
    const parts = [verdict, ...work.memory.map(() => 'memory'), ...work.cpu.map(() => 'cpu')];
    assert.equal(parts.join(' '), want);
    assert.equal(work.ofPod, verdict === 'restart');
  }
});

test('decreases stand before increases', () => {
  const containers = ['a', 'b', 'c'].map((name, index): Container => ({ name, resources: sized(index === 2 ? '1' : '3', '1Gi') }));
  const work = noWork();
  const actuated = { containers: new Map(containers.map(({ name }) => [name, sized('2', '1Gi')])), pod: null };
  for (const container of containers) planContainer(podOf(containers), container, running(container.name), actuated, work);
  assert.deepEqual(
    work.cpu.map(({ name }) => name),
    ['c', 'a', 'b'],
  );
});

test("a container without limits shares its pod's and changes with them", () => {
  const pod = podOf([{ name: 'm' }], { resources: sized('2', '2Gi') });
  const actuated = { containers: new Map([['m', { limits: { cpu: '1', memory: '1Gi' } }]]), pod: sized('1', '1Gi') };
  const work = noWork();
  assert.equal(planContainer(pod, pod.spec.containers[0]!, running('m'), actuated, work), 'keep');
  planPod(pod, [], actuated, work);
  assert.deepEqual([work.memory.length, work.cpu.length, work.podLevel], [1, 1, true]);
  assert.ok(isResizing(pod, factsOf(running('m')), actuated));
});

test('what does not run needs no resize; what starts at another size changes its pod', () => {
  const pod = podOf([{ name: 'm', resources: sized('2', '1Gi') }]);
  const actuated = { containers: new Map([['m', sized('1', '1Gi')]]), pod: null };
  assert.equal(isResizing(pod, factsOf({ ...running('m'), state: 'exited' }), actuated), false);
  const work = noWork();
  planPod(pod, pod.spec.containers, actuated, work);
  assert.ok(work.ofPod);
});

const cgroup: PodCgroupValues = { cpuShares: 1024n, cpuQuotaUs: 100_000n, cpuPeriodUs: 100_000n, memoryBytes: 1n << 30n, memoryUsageBytes: 1n << 20n };
const wish = (milli: bigint, memoryBytes: bigint) => ({
  cpuShares: (milli * 1024n) / 1000n,
  cpuQuotaUs: milli * 100n,
  cpuPeriodUs: 100_000n,
  memoryBytes,
  pidsMax: null,
});
const resizeOf = (from: ResourceRequirements, to: ResourceRequirements) => ({ name: 'm', containerId: 'm', from: sizesOf(from), to: sizesOf(to) });

test('the pod grows before its containers and shrinks after them, memory before CPU', () => {
  const texts = (from: ResourceRequirements, to: ResourceRequirements, wanted: ReturnType<typeof wish>, usage = 1n): string => {
    const resize = resizeOf(from, to);
    const plan = planMoves({
      work: { memory: [resize], cpu: [resize], ofPod: false, podLevel: false },
      current: cgroup,
      wanted,
      usageBytes: new Map([['m', usage]]),
    });
    return plan.ok ? plan.moves.map((move) => (move.kind === 'pod' ? move.what : `${move.kind} ${move.resource}`)).join(', ') : plan.message;
  };
  assert.equal(texts(sized('1', '1Gi'), sized('2', '2Gi'), wish(2000n, 2n << 30n)), 'memory-limit, container memory, cpu-limit, cpu-request, container cpu');
  assert.equal(
    texts(sized('1', '1Gi'), sized('500m', '512Mi'), wish(500n, 1n << 29n)),
    'container memory, memory-limit, container cpu, cpu-request, cpu-limit',
  );
  assert.equal(
    texts(sized('1', '1Gi'), sized('2', '10Ki'), wish(2000n, 10_240n), 20_000n),
    'cannot decrease memory limits: [attempting to set pod memory limit (10240) below current usage (1048576), ' +
      'attempting to set container "m" memory limit (10240) below current usage (20000)]',
  );
});

test('the first of two updates leaves the other resource as it is', () => {
  const resize = resizeOf(sized('1', '1Gi'), sized('2', '2Gi'));
  const plan = planMoves({
    work: { memory: [resize], cpu: [resize], ofPod: false, podLevel: false },
    current: cgroup,
    wanted: wish(2000n, 2n << 30n),
    usageBytes: new Map(),
  });
  assert.ok(plan.ok);
  const sizes = plan.moves.flatMap((move) => (move.kind === 'container' ? [move.sizes] : []));
  assert.deepEqual(sizes, [{ ...sizesOf(sized('1', '2Gi')) }, sizesOf(sized('2', '2Gi'))]);
});

test('a limit that is not known to hold is not set, and one that nobody asks for stays', () => {
  const resize = resizeOf({}, { limits: { memory: '1Mi' } });
  const work = { memory: [resize], cpu: [], ofPod: false, podLevel: false };
  const unlimited = { ...wish(0n, 0n), cpuQuotaUs: null, memoryBytes: null };
  const unknown = planMoves({ work, current: { ...cgroup, memoryBytes: null }, wanted: unlimited, usageBytes: new Map() });
  assert.deepEqual(unknown, { ok: false, message: 'cannot decrease memory limits: missing container "m" memory usage' });
  const known = planMoves({ work, current: { ...cgroup, memoryBytes: null }, wanted: unlimited, usageBytes: new Map([['m', 1n]]) });
  assert.ok(known.ok && known.moves.every((move) => move.kind === 'container'));
});

test('conditions keep their generation and time until they say something else', () => {
  const first = pend(noConditions, 'Deferred', 'x', 2, 1000);
  assert.ok(first.news);
  const again = pend(first.conditions, 'Deferred', 'y', 2, 9000);
  assert.equal(again.news, false);
  assert.deepEqual(again.conditions.pending, { reason: 'Deferred', message: 'y', observedGeneration: 2, sinceMs: 1000 });
  assert.ok(pend(first.conditions, 'Deferred', 'x', 3, 9000).news);
  const begun = progress(noConditions, '', '', 2, 1000);
  const failed = progress(begun.conditions, 'Error', 'm', 5, 2000);
  assert.deepEqual([failed.news, failed.generation], [true, 2]);
  assert.equal(progress(failed.conditions, 'Error', 'm', 5, 3000).news, false);
  // The usual look takes no error away.
  assert.equal(progress(failed.conditions, '', '', 5, 3000).conditions.inProgress?.reason, 'Error');
  const list = conditionsList(failed.conditions);
  assert.deepEqual(list, [
    {
      type: 'PodResizeInProgress',
      status: 'True',
      reason: 'Error',
      message: 'm',
      observedGeneration: 2,
      lastProbeTime: '1970-01-01T00:00:02Z',
      lastTransitionTime: '1970-01-01T00:00:02Z',
    },
  ]);
  assert.deepEqual(conditionsFrom({ metadata: {}, spec: { containers: [] }, status: { conditions: list } }), failed.conditions);
});

test('of those that wait the one that frees something is first, then priority, class, patience', () => {
  const waiting = (name: string, cpu: string, sinceMs: number | null, extra: Partial<Pod['spec']> = {}, qosClass = 'Burstable') => {
    const desired = podOf([{ name: 'm', resources: { requests: { cpu } } }], extra);
    const allocated = podOf([{ name: 'm', resources: { requests: { cpu: '2' } } }]);
    return { name, desired: { ...desired, status: { qosClass } }, allocated, sinceMs };
  };
  const order = [
    waiting('new', '3', null),
    waiting('patient', '3', 5),
    waiting('old', '3', 1),
    waiting('guaranteed', '3', 9, {}, 'Guaranteed'),
    waiting('important', '3', 9, { priority: 10 }),
    waiting('shrinks', '1', null),
  ].toSorted(compareWaiting);
  assert.deepEqual(
    order.map(({ name }) => name),
    ['shrinks', 'important', 'guaranteed', 'old', 'patient', 'new'],
  );
});

test('what does not fit now waits; what swaps cannot be resized in place', () => {
  const [desired, allocated] = [
    podOf([{ name: 'm', resources: { requests: { memory: '2Gi' } } }]),
    podOf([{ name: 'm', resources: { requests: { memory: '1Gi' } } }]),
  ];
  assert.equal(refusal({ desired, allocated, swaps: false, admission: null }), null);
  assert.deepEqual(refusal({ desired, allocated, swaps: false, admission: { reason: 'OutOfmemory', message: 'no' } }), {
    reason: 'Deferred',
    message: 'no',
    detail: '',
  });
  assert.equal(refusal({ desired, allocated, swaps: true, admission: null })?.reason, 'Infeasible');
  // Neither a container that is limited to what it requests nor one of a critical pod swaps.
  const bound = (memory: string): Pod => podOf([{ name: 'm', resources: { requests: { memory, cpu: '1' }, limits: { memory } } }]);
  assert.equal(refusal({ desired: bound('2Gi'), allocated: bound('1Gi'), swaps: true, admission: null }), null);
  const critical = (pod: Pod): Pod => ({ ...pod, spec: { ...pod.spec, priority: 2_000_000_000 } });
  assert.equal(refusal({ desired: critical(desired), allocated: critical(allocated), swaps: true, admission: null }), null);
  const guaranteed = (cpu: string): Pod => ({ ...podOf([{ name: 'm', resources: sized(cpu, '1Gi') }]), status: { qosClass: 'Guaranteed' } });
  const whole = { desired: guaranteed('2'), allocated: guaranteed('1') };
  const message = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"';
  assert.deepEqual(refusal({ ...whole, swaps: false, admission: null, statics: { cpu: true, memory: true } }), {
    reason: 'Infeasible',
    message,
    detail: 'guaranteed_pod_cpu_manager_static_policy',
  });
  assert.equal(refusal({ ...whole, swaps: false, admission: null, statics: { cpu: false, memory: true } }), null);
});
