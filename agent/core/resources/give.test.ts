import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Container, Pod } from '../../../proto/kube/types.ts';
import { noCpuOptions, cpuOptionsProblem, readCpuOptions, readTopologyOptions } from './cpu-options.ts';
import { availableCpus, cpuHints, giveCpus, noCpus, podCpuHints, startCpuState, staticCpuRules, takeBackCpus } from './cpu-static.ts';
import type { CpuState, StaticCpuRules } from './cpu-static.ts';
import { parseCpuSet } from './cpuset.ts';
import { topologyOf } from './cpu-topology.ts';
import type { CpuTopology } from './cpu-topology.ts';
import { byNode, chooseDevices, deviceHints, finishChoice } from './devices.ts';
import type { Device } from './devices.ts';
import { mergeHints } from './hints.ts';
import type { Hint, Hints, TopologyPolicy } from './hints.ts';
import {
  freshMachine,
  giveMemory,
  givePodMemory,
  memoryHints,
  noMemory,
  podMemoryHints,
  startMemoryState,
  takeBackInits,
  takeBackMemory,
} from './memory-static.ts';
import type { MemoryState } from './memory-static.ts';
import { reservedByNode } from './memory-reserved.ts';
import { maskOf, nodesOf } from './numa-mask.ts';
import { quantityOf } from '../quantity.ts';
import { exclusivePodCpus, extendedLimits, isExtendedResource, pluginLimits } from './requests.ts';
import { givePodCpus } from './pod-cpus.ts';
import { refusalVerdict } from './refusal.ts';

const Gi = 1024 ** 3;

function container(name: string, cpu: string, memory = '1Gi', more: Partial<Container> = {}): Container {
  return { name, resources: { requests: { cpu, memory }, limits: { cpu, memory } }, ...more };
}

function podOf(uid: string, containers: Container[], initContainers: Container[] = []): Pod {
  return { metadata: { uid, namespace: 'default', name: uid }, spec: { containers, initContainers } };
}

/** Two sockets of one NUMA node each, two threads a core: 0,2,4,6,8,10 and 1,3,5,7,9,11. */
const twoSockets: CpuTopology = topologyOf(
  new Map(Array.from({ length: 12 }, (_, cpu) => [cpu, { numa: cpu % 2, socket: cpu % 2, core: cpu % 6, uncore: cpu % 2 }])),
);

function rulesOf(options = noCpuOptions, reserved = 1): StaticCpuRules {
  const made = staticCpuRules(twoSockets, options, reserved, []);
  assert.ok(made.ok);
  return made.rules;
}

function begun(rules: StaticCpuRules): CpuState {
  const started = startCpuState(rules, noCpus);
  assert.ok('state' in started);
  return started.state;
}

function give(rules: StaticCpuRules, state: CpuState, pod: Pod, name: string, nodes: number[] | null = null): CpuState {
  const one = [...(pod.spec.initContainers ?? []), ...pod.spec.containers].find((each) => each.name === name)!;
  const outcome = giveCpus(rules, state, pod, one, nodes === null ? null : maskOf(nodes));
  assert.ok(outcome.ok, JSON.stringify(outcome));
  return outcome.state;
}

const hintText = (hints: readonly Hint[] | null | undefined): string =>
  (hints ?? []).map(({ nodes, preferred }) => `${nodes === null ? 'any' : nodesOf(nodes).join('')}${preferred ? '!' : ''}`).join(' ');

describe('exclusive CPUs', () => {
  it('are for whole CPUs of Guaranteed pods only, and never the reserved ones', () => {
    const rules = rulesOf();
    assert.deepEqual(rules.reserved, [0]);
    let state = begun(rules);
    assert.equal(state.shared.length, 12);
    state = give(rules, state, podOf('half', [container('a', '1500m')]), 'a');
    state = give(rules, state, podOf('burst', [{ name: 'a', resources: { requests: { cpu: '2' } } }]), 'a');
    assert.equal(state.given.size, 0);
    state = give(rules, state, podOf('p', [container('a', '2')]), 'a');
    assert.deepEqual([...state.given.get('p')!], [['a', [2, 8]]]);
    assert.deepEqual(availableCpus(rules, state), [1, 3, 4, 5, 6, 7, 9, 10, 11]);
    assert.deepEqual(takeBackCpus(state, 'p', 'a').shared.length, 12);
    assert.equal(takeBackCpus(state, 'p', 'other'), state);
  });

  it('come from the nodes that were chosen', () => {
    const rules = rulesOf();
    const state = give(rules, begun(rules), podOf('p', [container('a', '2')]), 'a', [1]);
    assert.deepEqual(state.given.get('p')?.get('a'), [1, 7]);
    const wide = give(rules, state, podOf('q', [container('a', '6')]), 'a', [1]);
    assert.equal(
      wide.given
        .get('q')
        ?.get('a')
        ?.filter((cpu) => cpu % 2 === 1).length,
      4,
    );
  });

  it('of an init container are used again, those of a sidecar are not', () => {
    const rules = rulesOf();
    const pod = podOf('p', [container('app', '2')], [container('init', '4'), container('side', '2', '1Gi', { restartPolicy: 'Always' })]);
    assert.equal(exclusivePodCpus(pod), 4);
    let state = give(rules, begun(rules), pod, 'init');
    const init = state.given.get('p')!.get('init')!;
    state = give(rules, state, pod, 'side');
    state = give(rules, state, pod, 'app');
    const [side, app] = [state.given.get('p')!.get('side')!, state.given.get('p')!.get('app')!];
    assert.deepEqual(
      [...side, ...app].toSorted((a, b) => a - b),
      init,
    );
    const without = takeBackCpus(state, 'p', 'init');
    assert.equal(without.shared.length, 8);
  });

  it('are refused in upstream’s words', () => {
    const rules = rulesOf();
    const pod = podOf('p', [container('a', '12')]);
    const outcome = giveCpus(rules, begun(rules), pod, pod.spec.containers[0]!, null);
    assert.ok(!outcome.ok);
    assert.deepEqual(refusalVerdict(outcome.refusal), {
      reason: 'UnexpectedAdmissionError',
      message: 'Allocate failed due to not enough cpus available to satisfy request: requested=12, available=11, which is unexpected',
    });
    const whole = rulesOf({ ...noCpuOptions, fullCores: true });
    const odd = giveCpus(whole, begun(whole), pod, container('a', '3'), null);
    assert.ok(!odd.ok);
    assert.deepEqual(refusalVerdict(odd.refusal), {
      reason: 'SMTAlignmentError',
      message: 'SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2',
    });
    const many = giveCpus(whole, begun(whole), podOf('p', [container('a', '12')]), container('a', '12'), null);
    assert.ok(!many.ok);
    assert.equal(
      many.refusal.message,
      'SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 10, requested CPUs = 12, CPUs per core = 2',
    );
  });

  it('leave the reserved ones out of the shared pool when that is strict', () => {
    const rules = rulesOf({ ...noCpuOptions, strictReservation: true }, 2);
    assert.deepEqual(begun(rules).shared, parseCpuSet('1-5,7-11'));
    const wrong = startCpuState(rules, { shared: [0, 1], given: new Map() });
    assert.match('problem' in wrong ? wrong.problem : '', /some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-1"/);
  });

  it('are not begun with from a state that does not fit the machine', () => {
    const rules = rulesOf();
    const problem = (state: CpuState): string => {
      const started = startCpuState(rules, state);
      return 'problem' in started ? started.problem : '';
    };
    assert.equal(problem({ shared: [], given: new Map([['p', new Map([['a', [1]]])]]) }), 'default cpuset cannot be empty');
    assert.equal(problem({ shared: [1], given: new Map() }), 'not all reserved cpus: "0" are present in defaultCpuSet: "1"');
    assert.equal(
      problem({ shared: [0, 1], given: new Map([['p', new Map([['a', [1]]])]]) }),
      'pod: p, container: a cpuset: "1" overlaps with default cpuset "0-1"',
    );
    assert.equal(problem({ shared: [0, 1], given: new Map() }), `current set of available CPUs "0-11" doesn't match with CPUs in state "0-1"`);
  });

  it('are hinted at by node', () => {
    const rules = rulesOf();
    const state = begun(rules);
    const one = (cpu: string, at = state): string => {
      const pod = podOf('p', [container('a', cpu)]);
      return hintText(cpuHints(rules, at, pod, pod.spec.containers[0]!).get('cpu'));
    };
    assert.equal(one('2'), '0! 1! 01');
    assert.equal(one('6'), '1! 01');
    assert.equal(one('7'), '01!');
    assert.equal(one('12'), '');
    assert.equal(one('500m'), '');
    const given = give(rules, state, podOf('p', [container('a', '2')]), 'a', [1]);
    assert.equal(one('2', given), '1! 01');
    const pod = podOf('q', [container('a', '4'), container('b', '3')]);
    assert.equal(hintText(podCpuHints(rules, state, pod).get('cpu')), '01!');
  });

  it('have options that are read as upstream reads them', () => {
    const gates = { alpha: false, beta: true };
    const text = (wanted: Record<string, string>, with_ = gates): string => {
      const read = readCpuOptions(wanted, with_);
      return read.ok ? 'ok' : read.message;
    };
    assert.equal(text({ 'full-pcpus-only': 'true', 'distribute-cpus-across-numa': 'true', 'strict-cpu-reservation': 'T' }), 'ok');
    assert.equal(text({ 'align-by-socket': 'true' }), 'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided');
    assert.equal(text({ other: 'true' }), 'unknown CPU Manager Policy option: "other"');
    assert.equal(text({ 'full-pcpus-only': 'yes' }), 'bad value for option "full-pcpus-only": strconv.ParseBool: parsing "yes": invalid syntax');
    assert.equal(
      text({ 'full-pcpus-only': 'true', 'distribute-cpus-across-cores': 'true' }, { alpha: true, beta: true }),
      'static policy options full-pcpus-only and distribute-cpus-across-cores can not be used at the same time',
    );
    assert.match(cpuOptionsProblem({ ...noCpuOptions, alignBySocket: true }, twoSockets, 'single-numa-node') ?? '', /incompatible/);
    const topology = readTopologyOptions({ 'max-allowable-numa-nodes': '7' });
    assert.ok(!topology.ok && topology.message.includes('should not be less than 8'));
  });
});

describe('the choice of NUMA nodes', () => {
  const numa = {
    nodes: [0, 1],
    distances: new Map([
      [0, [10, 21]],
      [1, [21, 10]],
    ]),
  };
  const hint = (text: string): Hint => ({
    nodes: text.startsWith('any') ? null : maskOf(text.replace('!', '').split('').map(Number)),
    preferred: text.endsWith('!'),
  });
  const hints = (lists: Record<string, string | null>): Hints =>
    new Map(Object.entries(lists).map(([name, list]) => [name, list === null ? null : list === '' ? [] : list.split(' ').map(hint)]));
  const cases: readonly [string, TopologyPolicy, readonly Hints[], string, boolean][] = [
    ['nobody minds', 'best-effort', [new Map()], '01!', true],
    ['nobody minds, one node', 'single-numa-node', [new Map()], 'any!', true],
    ['no wish for one resource', 'restricted', [hints({ a: null })], '01!', true],
    ['it cannot be served', 'best-effort', [hints({ a: '' })], '01', true],
    ['it cannot be served', 'restricted', [hints({ a: '' })], '01', false],
    ['it cannot be served', 'single-numa-node', [hints({ a: '' })], 'any', false],
    ['one of two', 'restricted', [hints({ a: '0! 1! 01' })], '0!', true],
    ['they agree', 'restricted', [hints({ a: '0! 1! 01' }), hints({ b: '1! 01' })], '1!', true],
    ['they agree on two', 'restricted', [hints({ a: '01!' }), hints({ b: '01!' })], '01!', true],
    ['two are not one', 'single-numa-node', [hints({ a: '01!' }), hints({ b: '01!' })], 'any', false],
    ['they do not agree', 'restricted', [hints({ a: '0! 01' }), hints({ b: '1! 01' })], '0', false],
    ['they do not agree', 'best-effort', [hints({ a: '0! 01' }), hints({ b: '1! 01' })], '0', true],
    ['nothing in common', 'single-numa-node', [hints({ a: '0!' }), hints({ b: '1!' })], 'any', false],
  ];
  for (const [name, policy, providers, best, admitted] of cases) {
    it(`${policy}: ${name}`, () => {
      const merged = mergeHints(providers, { policy, preferClosest: false, numa });
      assert.equal(hintText([merged.best]), best);
      assert.equal(merged.admit, admitted);
    });
  }

  it('takes near nodes when that is wished', () => {
    const far = {
      nodes: [0, 1, 2],
      distances: new Map([
        [0, [10, 30, 20]],
        [1, [30, 10, 30]],
        [2, [20, 30, 10]],
      ]),
    };
    const providers = [hints({ a: '01! 02! 12!' })];
    assert.equal(hintText([mergeHints(providers, { policy: 'restricted', preferClosest: false, numa: far }).best]), '01!');
    assert.equal(hintText([mergeHints(providers, { policy: 'restricted', preferClosest: true, numa: far }).best]), '02!');
  });
});

describe('memory of NUMA nodes', () => {
  const fresh = freshMachine(
    [0, 1].map((node) => ({ node, memoryBytes: 4 * Gi, hugePages: [{ name: 'hugepages-2Mi', bytes: Gi }], systemReserved: { memory: Gi } })),
  );
  const begin = (): MemoryState => {
    const started = startMemoryState(fresh, noMemory);
    assert.ok('state' in started);
    return started.state;
  };
  const any: Hint = { nodes: null, preferred: true };
  const take = (state: MemoryState, pod: Pod, name: string, hint = any): MemoryState => {
    const one = [...(pod.spec.initContainers ?? []), ...pod.spec.containers].find((each) => each.name === name)!;
    const outcome = giveMemory(state, pod, one, hint);
    assert.ok(outcome.ok, JSON.stringify(outcome));
    return outcome.state;
  };

  it('is what is left beside the system and huge pages', () => {
    assert.deepEqual(fresh.get(0)?.tables.get('memory'), { total: 4 * Gi, systemReserved: Gi, allocatable: 2 * Gi, reserved: 0, free: 2 * Gi });
  });

  it('comes from one node, else from a group that stays together', () => {
    const small = podOf('s', [container('a', '1', '1Gi')]);
    let state = take(begin(), small, 'a');
    assert.deepEqual(state.given.get('s')?.get('a'), [{ nodes: [0], type: 'memory', bytes: Gi }]);
    const large = podOf('l', [container('a', '1', '3Gi')]);
    const refused = giveMemory(state, large, large.spec.containers[0]!, any);
    assert.ok(!refused.ok);
    assert.equal(
      refusalVerdict(refused.refusal).message,
      'Allocate failed due to [memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available, which is unexpected',
    );
    state = take(takeBackMemory(state, 's', 'a'), large, 'a');
    assert.deepEqual(state.machine.get(0)?.cells, [0, 1]);
    assert.deepEqual(
      [0, 1].map((node) => state.machine.get(node)?.tables.get('memory')?.free),
      [0, Gi],
    );
    assert.equal(hintText(memoryHints(state, small, small.spec.containers[0]!).get('memory')), '01');
    const after = takeBackMemory(state, 'l', 'a');
    assert.deepEqual(after.machine, begin().machine);
  });

  it('of init containers is used again and given up when they are over', () => {
    const pod = podOf('p', [container('app', '1', '1Gi')], [container('init', '1', '2Gi')]);
    let state = take(begin(), pod, 'init');
    state = take(state, pod, 'app');
    assert.deepEqual(state.given.get('p')?.get('init'), [{ nodes: [0], type: 'memory', bytes: Gi }]);
    assert.equal(state.machine.get(0)?.tables.get('memory')?.free, 0);
    state = takeBackInits(state, pod, 'app');
    assert.equal(state.machine.get(0)?.tables.get('memory')?.free, Gi);
    assert.deepEqual(startMemoryState(fresh, state), { state });
    assert.deepEqual(startMemoryState(fresh, { ...state, given: new Map() }), {
      problem: '[memorymanager] the expected machine state is different from the real one',
    });
  });

  it('is hinted at by node, for the pod as well', () => {
    const pod = podOf('p', [container('a', '1', '1Gi'), container('b', '1', '2Gi')]);
    assert.equal(hintText(memoryHints(begin(), pod, pod.spec.containers[0]!).get('memory')), '0! 1! 01');
    assert.equal(hintText(podMemoryHints(begin(), pod).get('memory')), '01!');
    assert.equal(hintText(memoryHints(take(begin(), pod, 'a'), pod, pod.spec.containers[0]!).get('memory')), '0!');
  });

  it('must be reserved in the sum that node allocatable says', () => {
    const wanted = { memory: quantityOf(BigInt(Gi), 'BinarySI') };
    assert.deepEqual(reservedByNode([0], [{ numaNode: 0, limits: { memory: '1Gi' } }], wanted), { ok: true, byNode: new Map([[0, { memory: Gi }]]) });
    const less = reservedByNode([0], [{ numaNode: 0, limits: { memory: '512Mi' } }], wanted);
    assert.deepEqual(less, {
      ok: false,
      message: 'the total amount "512Mi" of type "memory" is not equal to the value "1Gi" determined by Node Allocatable feature',
    });
    const nowhere = reservedByNode([0], [{ numaNode: 3, limits: { memory: '1Gi' } }], wanted);
    assert.ok(!nowhere.ok && nowhere.message.includes('NUMA node 3 that does not exist'));
  });
});

describe('devices', () => {
  const devices = new Map<string, Device>(
    (
      [
        ['a', [0]],
        ['b', [0]],
        ['c', [1]],
        ['d', [0, 1]],
        ['e', []],
      ] as const
    ).map(([id, nodes]) => [id, { id, healthy: true, nodes }]),
  );
  const ids = (text: string): Set<string> => new Set(text === '' ? [] : text.split(''));

  it('are hinted at by node', () => {
    const hints = (count: number, available = 'abcde', reusable = ''): string =>
      hintText(deviceHints({ devices, available: ids(available), reusable: ids(reusable), count, numaNodes: [0, 1] }));
    assert.equal(hints(1), '0! 1! 01');
    assert.equal(hints(3), '0! 01');
    assert.equal(hints(4), '01!');
    assert.equal(hints(5), '');
    assert.equal(hints(2, 'd', 'c'), '1! 01');
  });

  it('are chosen near to the nodes, with the plugin’s wish', () => {
    const choose = (count: number, nodes: number[] | null, prefer: string, reusable = ''): string => {
      const choice = chooseDevices({ devices, available: ids('abcde'), reusable: ids(reusable), count, nodes: nodes === null ? null : maskOf(nodes) });
      return finishChoice(choice, prefer.split('')).join('');
    };
    assert.equal(choose(2, [1], ''), 'cd');
    assert.equal(choose(1, [0], 'bc'), 'b');
    assert.equal(choose(3, [1], 'e'), 'cde');
    assert.equal(choose(2, null, 'ec'), 'ce');
    assert.equal(choose(2, null, '', 'e'), 'ae');
    assert.equal(choose(1, null, '', 'de'), 'd');
  });

  it('are noted by node', () => {
    assert.deepEqual(
      [...byNode(devices, ['c', 'd', 'e'])],
      [
        [1, ['c', 'd']],
        [0, ['d']],
        [-1, ['e']],
      ],
    );
  });

  it('have a vendor in their name', () => {
    for (const good of ['example.com/dev', 'a/b', 'nvidia.com/gpu.shared']) assert.ok(isExtendedResource(good), good);
    for (const bad of ['cpu', 'kubernetes.io/x', 'a.kubernetes.io/x', 'requests.x/y', 'Example/x', 'x/', 'x/-y', 'hugepages-2Mi'])
      assert.ok(!isExtendedResource(bad), bad);
    const limits = extendedLimits({ name: 'a', resources: { limits: { cpu: '1', 'a.io/b': '3' } } });
    assert.deepEqual([...limits], [['a.io/b', 3]]);
    const pod = podOf('p', [{ name: 'a', resources: { limits: { 'a.io/b': '3', 'c.io/d': '1' } } }]);
    const requestMappings = [{ containerName: 'a', resourceName: 'a.io/b', requestName: 'r' }];
    const claimed: Pod = { ...pod, status: { extendedResourceClaimStatus: { resourceClaimName: 'c', requestMappings } } };
    assert.deepEqual([...pluginLimits(claimed, pod.spec.containers[0]!)], [['c.io/d', 1]]);
  });
});

describe('resources of pods as a whole', () => {
  const ofPod = (cpu: string, memory: string, containers: Container[], inits: Container[] = []): Pod => {
    const pod = podOf('p', containers, inits);
    return { ...pod, spec: { ...pod.spec, resources: { requests: { cpu, memory }, limits: { cpu, memory } } } };
  };
  const sidecar = container('side', '1', '1Gi', { restartPolicy: 'Always' });

  it('are parted: sidecars keep theirs, init containers have what is left, who owns none shares the rest', () => {
    const rules = { ...rulesOf(), ofPods: true };
    const pod = ofPod('4', '8Gi', [container('app', '2'), { name: 'shares' }], [sidecar, { name: 'init' }]);
    const outcome = givePodCpus(rules, begun(rules), pod, maskOf([1]));
    assert.ok(outcome.ok);
    const given = Object.fromEntries(outcome.state.given.get('p')!);
    assert.deepEqual(given, { side: [1], init: [3, 7, 9], app: [3, 9], shares: [7] });
    assert.deepEqual(outcome.state.pods?.get('p'), [1, 3, 7, 9]);
    assert.deepEqual(startCpuState(rules, outcome.state), { state: outcome.state });
    let state = outcome.state;
    for (const name of ['side', 'init', 'app']) state = takeBackCpus(state, 'p', name);
    assert.equal(state.shared.length, 8, 'nothing comes back before the last');
    state = takeBackCpus(state, 'p', 'shares');
    assert.deepEqual([state.shared.length, state.pods?.size], [12, 0]);
  });

  it('are wished for on nodes that have them all, or not at all where nobody could share', () => {
    const rules = { ...rulesOf(), ofPods: true };
    assert.equal(hintText(podCpuHints(rules, begun(rules), ofPod('6', '1Gi', [container('app', '1'), { name: 'shares' }])).get('cpu')), '1! 01');
    assert.deepEqual(podCpuHints(rules, begun(rules), ofPod('2', '1Gi', [container('app', '2'), { name: 'shares' }])).get('cpu'), []);
    assert.deepEqual(podCpuHints(rules, begun(rules), ofPod('1500m', '1Gi', [{ name: 'shares' }])).size, 0, 'no whole CPUs');
    const burstable = ofPod('2', '1Gi', [{ name: 'shares' }]);
    assert.equal(podCpuHints(rules, begun(rules), { ...burstable, spec: { ...burstable.spec, resources: { requests: { cpu: '2' } } } }).size, 0);
  });

  it('and their memory is of the same nodes for all, taken once', () => {
    const facts = [0, 1].map((node) => ({ node, memoryBytes: 8 * Gi, hugePages: [], systemReserved: {} }));
    const started = startMemoryState(freshMachine(facts), noMemory);
    assert.ok('state' in started);
    const pod = ofPod('4', '6Gi', [container('app', '1', '2Gi'), { name: 'shares' }], [sidecar, { name: 'init' }]);
    const outcome = givePodMemory(started.state, pod, { nodes: maskOf([1]), preferred: true });
    assert.ok(outcome.ok);
    const blocks = [...outcome.state.given.get('p')!].map(
      ([name, list]) => `${name} ${list.map(({ nodes, bytes }) => `${nodes.join()}:${bytes / Gi}`).join()}`,
    );
    assert.deepEqual(blocks, ['side 1:1', 'init 1:5', 'app 1:2', 'shares 1:3']);
    assert.equal(outcome.state.machine.get(1)?.tables.get('memory')?.free, 2 * Gi);
    assert.deepEqual(startMemoryState(freshMachine(facts), outcome.state), { state: outcome.state });
    assert.equal(takeBackInits(outcome.state, pod, 'app'), outcome.state);
    const emptied = ['side', 'init', 'app', 'shares'].reduce((state, name) => takeBackMemory(state, 'p', name), outcome.state);
    assert.deepEqual(emptied, { ...started.state, pods: new Map() });
    assert.equal(hintText(podMemoryHints(outcome.state, pod, true).get('memory')), '1!');
    const full = ofPod('4', '3Gi', [container('app', '1', '2Gi'), { name: 'shares' }], [sidecar]);
    const refused = givePodMemory(started.state, full, { nodes: null, preferred: false });
    assert.equal(
      refused.ok ? '' : refused.refusal.message,
      'pod rejected, sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers',
    );
  });
});
