import type { Container, Pod } from '../../../proto/kube/types.ts';
import { keyOf } from '../containers.ts';
import { takePacked } from './cpu-assign.ts';
import type { Taken } from './cpu-assign.ts';
import { takeDistributed } from './cpu-distribute.ts';
import type { CpuOptions } from './cpu-options.ts';
import { difference, formatCpuSet, intersection, sameSet, union } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';
import { cpusIn, cpusOf, cpusPerCore, idsOf } from './cpu-topology.ts';
import type { CpuTopology } from './cpu-topology.ts';
import type { Hint, Hints } from './hints.ts';
import { countOf, hasNode, masksOf, nodesOf } from './numa-mask.ts';
import type { NumaMask } from './numa-mask.ts';
import { containersOf, exclusiveCpus, exclusivePodCpus, isManagedAsPod, isRegularInit } from './requests.ts';
import type { Refusal } from './refusal.ts';

/** Which CPUs are whose: by pod UID and container name; all others share `shared`. */
export interface CpuState {
  readonly shared: CpuSet;
  readonly given: ReadonlyMap<string, ReadonlyMap<string, CpuSet>>;
  /** By UID, what pods own as a whole: all that their containers have is of it. */
  readonly pods?: ReadonlyMap<string, CpuSet>;
}

export const noCpus: CpuState = { shared: [], given: new Map() };

export interface StaticCpuRules {
  readonly topology: CpuTopology;
  readonly options: CpuOptions;
  /** Never given to one container alone; part of the shared pool unless `strictReservation`. */
  readonly reserved: CpuSet;
  /** `PodLevelResourceManagers`. */
  readonly ofPods?: boolean;
}

export type CpuOutcome = { readonly ok: true; readonly state: CpuState } | { readonly ok: false; readonly refusal: Refusal };

/** The rules for this machine; `specific` are `reservedSystemCPUs`, else as many as are reserved are chosen. */
export function staticCpuRules(
  topology: CpuTopology,
  options: CpuOptions,
  reservedCount: number,
  specific: CpuSet,
): { readonly ok: true; readonly rules: StaticCpuRules } | { readonly ok: false; readonly message: string } {
  const rules = { topology, options, reserved: specific };
  let reserved = specific;
  if (specific.length === 0) {
    const taken = takeCpus(rules, cpusOf(topology.places), reservedCount);
    reserved = taken.ok ? taken.cpus : [];
  }
  if (reserved.length !== reservedCount) {
    const message = `[cpumanager] unable to reserve the required amount of CPUs (size of ${formatCpuSet(reserved)} did not equal ${reservedCount})`;
    return { ok: false, message };
  }
  return { ok: true, rules: { ...rules, reserved } };
}

/** The state to begin with: all of the machine is shared. Null when there is one already, or upstream's sentence about what is wrong with it. */
export function startCpuState(rules: StaticCpuRules, state: CpuState): { readonly state: CpuState } | { readonly problem: string } {
  const { topology, options, reserved } = rules;
  const all = options.strictReservation ? difference(cpusOf(topology.places), reserved) : cpusOf(topology.places);
  const { shared, given, pods = new Map<string, CpuSet>() } = state;
  if (shared.length === 0) return given.size === 0 ? { state: { shared: all, given } } : { problem: 'default cpuset cannot be empty' };
  const both = intersection(reserved, shared);
  if (options.strictReservation && both.length > 0) {
    return { problem: `some of strictly reserved cpus: "${formatCpuSet(both)}" are present in defaultCpuSet: "${formatCpuSet(shared)}"` };
  }
  if (!options.strictReservation && !sameSet(both, reserved)) {
    return { problem: `not all reserved cpus: "${formatCpuSet(reserved)}" are present in defaultCpuSet: "${formatCpuSet(shared)}"` };
  }
  for (const [pod, containers] of given) {
    for (const [container, cpus] of containers) {
      if (intersection(shared, cpus).length === 0) continue;
      return { problem: `pod: ${pod}, container: ${container} cpuset: "${formatCpuSet(cpus)}" overlaps with default cpuset "${formatCpuSet(shared)}"` };
    }
  }
  const known = union(shared, ...[...given.values()].flatMap((containers) => [...containers.values()]), ...pods.values());
  if (sameSet(known, all)) return { state };
  return { problem: `current set of available CPUs "${formatCpuSet(all)}" doesn't match with CPUs in state "${formatCpuSet(known)}"` };
}

/** CPUs that can be given away at all, and those that can be now. */
export const allocatableCpus = ({ topology, reserved }: StaticCpuRules): CpuSet => difference(cpusOf(topology.places), reserved);
export const availableCpus = ({ reserved }: StaticCpuRules, state: CpuState): CpuSet => difference(state.shared, reserved);

/** Gives the container its CPUs where it is to have some; `nodes` is what the topology policy chose. */
export function giveCpus(rules: StaticCpuRules, state: CpuState, pod: Pod, container: Container, nodes: NumaMask | null): CpuOutcome {
  const count = exclusiveCpus(pod, container, rules.ofPods);
  const { uid } = keyOf(pod);
  if (count === 0 || state.given.get(uid)?.has(container.name) === true) return { ok: true, state };
  const misaligned = alignmentProblem(rules, state, count);
  if (misaligned !== null) return { ok: false, refusal: { kind: 'smt', message: misaligned } };
  const free = union(availableCpus(rules, state), reusableCpus(state, pod, container.name));
  const taken = takeNear(rules, free, count, nodes);
  if (!taken.ok) return { ok: false, refusal: { kind: 'unexpected', message: taken.message } };
  const { cpus } = taken;
  return { ok: true, state: { ...state, shared: difference(state.shared, cpus), given: withCpus(state.given, uid, container.name, cpus) } };
}

/** So many of the free CPUs, first those of `nodes`. */
export function takeNear(rules: StaticCpuRules, free: CpuSet, count: number, nodes: NumaMask | null): Taken {
  let cpus: CpuSet = [];
  if (nodes !== null) {
    const near = alignedCpus(rules, nodes, free);
    const taken = takeCpus(rules, near, Math.min(count, near.length));
    if (!taken.ok) return taken;
    ({ cpus } = taken);
  }
  const rest = takeCpus(rules, difference(free, cpus), count - cpus.length);
  return rest.ok ? { ok: true, cpus: union(cpus, rest.cpus) } : rest;
}

/** The container is no more: CPUs that no other of the pod holds go back to the shared pool. */
export function takeBackCpus(state: CpuState, uid: string, name: string): CpuState {
  const containers = state.given.get(uid);
  const cpus = containers?.get(name);
  if (containers === undefined || cpus === undefined) return state;
  const others = new Map([...containers].filter(([each]) => each !== name));
  const given = new Map(state.given);
  if (others.size === 0) given.delete(uid);
  else given.set(uid, others);
  const ofPod = state.pods?.get(uid);
  if (ofPod !== undefined) {
    // Whole pods give back when the last of their containers has.
    if (others.size > 0) return { ...state, given };
    return { shared: union(state.shared, ofPod), given, pods: new Map([...(state.pods ?? [])].filter(([each]) => each !== uid)) };
  }
  return { ...state, shared: union(state.shared, difference(cpus, union(...others.values()))), given };
}

/** Where the container's CPUs could come from. */
export function cpuHints(rules: StaticCpuRules, state: CpuState, pod: Pod, container: Container): Hints {
  const count = exclusiveCpus(pod, container, rules.ofPods);
  if (count === 0) return new Map();
  const given = state.given.get(keyOf(pod).uid)?.get(container.name);
  if (given === undefined) return hintsFor(rules, availableCpus(rules, state), reusableCpus(state, pod, container.name), count);
  return given.length === count ? hintsFor(rules, given, [], count) : impossible;
}

/** Where those of all containers of the pod together could. */
export function podCpuHints(rules: StaticCpuRules, state: CpuState, pod: Pod): Hints {
  const count = exclusivePodCpus(pod, rules.ofPods);
  if (count === 0) return new Map();
  if (isManagedAsPod(pod, rules.ofPods === true)) {
    const own = state.pods?.get(keyOf(pod).uid);
    if (own !== undefined) return hintsFor(rules, own, [], count);
    return sharedCpusProblem(pod) === null ? hintsFor(rules, availableCpus(rules, state), [], count) : impossible;
  }
  let given: CpuSet = [];
  for (const container of containersOf(pod)) {
    const own = state.given.get(keyOf(pod).uid)?.get(container.name);
    if (own === undefined) continue;
    if (own.length !== exclusiveCpus(pod, container)) return impossible;
    given = union(given, own);
  }
  return given.length === count ? hintsFor(rules, given, [], count) : hintsFor(rules, availableCpus(rules, state), given, count);
}

/** Why containers of a pod that owns CPUs as a whole would have none to share; null: they have. */
export function sharedCpusProblem(pod: Pod): string | null {
  const total = exclusivePodCpus(pod, true);
  let sharesForLong = false;
  let owned = 0;
  for (const container of containersOf(pod)) {
    const own = exclusiveCpus(pod, container, true);
    if (!isRegularInit(pod, container.name)) {
      owned += own;
      sharesForLong ||= own === 0;
    } else if (own === 0 && owned >= total) return 'pod rejected, pod has shared init containers but no cpus available for them';
  }
  return sharesForLong && owned >= total
    ? 'pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers'
    : null;
}

const impossible: Hints = new Map([['cpu', []]]);

/** What init containers of the pod hold that ended before this one starts, and nobody after them took. */
function reusableCpus(state: CpuState, pod: Pod, name: string): CpuSet {
  const given = state.given.get(keyOf(pod).uid);
  let reusable: CpuSet = [];
  for (const container of containersOf(pod)) {
    if (container.name === name) break;
    const cpus = given?.get(container.name) ?? [];
    reusable = isRegularInit(pod, container.name) ? union(reusable, cpus) : difference(reusable, cpus);
  }
  return reusable;
}

export function takeCpus({ topology, options }: Omit<StaticCpuRules, 'reserved'>, available: CpuSet, count: number): Taken {
  const order = options.distributeCores ? 'spread' : 'packed';
  if (!options.distributeNuma) return takePacked(topology, available, count, order, options.preferUncore);
  const groupSize = options.fullCores ? cpusPerCore(topology) : 1;
  return takeDistributed(topology, available, count, { groupSize, order, alignBySocket: options.alignBySocket });
}

export function alignmentProblem({ topology, options, reserved }: StaticCpuRules, state: CpuState, count: number): string | null {
  if (!options.fullCores) return null;
  const perCore = cpusPerCore(topology);
  if (count % perCore !== 0) return `SMT Alignment Error: requested ${count} cpus not multiple cpus per core = ${perCore}`;
  const cores = reserved.flatMap((cpu) => topology.places.get(cpu)?.core ?? []);
  const free = difference(state.shared, cpusIn(topology.places, 'core', ...cores)).length;
  if (count <= free) return null;
  return `SMT Alignment Error: not enough free physical CPUs: available physical CPUs = ${free}, requested CPUs = ${count}, CPUs per core = ${perCore}`;
}

function alignedCpus({ topology, options }: StaticCpuRules, nodes: NumaMask, free: CpuSet): CpuSet {
  const ids = nodesOf(nodes);
  if (!options.alignBySocket) return intersection(free, cpusIn(topology.places, 'numa', ...ids));
  const sockets = idsOf(topology.places, 'socket', { level: 'numa', ids });
  return intersection(free, cpusIn(topology.places, 'socket', ...sockets));
}

function hintsFor({ topology, options }: StaticCpuRules, available: CpuSet, reusable: CpuSet, count: number): Hints {
  const nodes = idsOf(topology.places, 'numa');
  const inMask = (mask: NumaMask, cpus: CpuSet): number => cpus.filter((cpu) => hasNode(mask, topology.places.get(cpu)?.numa ?? 0)).length;
  let fewest = nodes.length;
  const masks: NumaMask[] = [];
  for (const mask of masksOf(nodes)) {
    if (cpusIn(topology.places, 'numa', ...nodesOf(mask)).length >= count) fewest = Math.min(fewest, countOf(mask));
    const reused = inMask(mask, reusable);
    if (reused === reusable.length && reused + inMask(mask, available) >= count) masks.push(mask);
  }
  const isPreferred = (mask: NumaMask): boolean => countOf(mask) === fewest || (options.alignBySocket && isSocketAligned(topology, mask, fewest));
  return new Map([['cpu', masks.map((mask): Hint => ({ nodes: mask, preferred: isPreferred(mask) }))]]);
}

function isSocketAligned(topology: CpuTopology, mask: NumaMask, fewest: number): boolean {
  const nodesPerSocket = Math.floor(topology.numaNodes / topology.sockets);
  if (nodesPerSocket === 0) return false;
  return idsOf(topology.places, 'socket', { level: 'numa', ids: nodesOf(mask) }).length === Math.ceil(fewest / nodesPerSocket);
}

function withCpus(given: CpuState['given'], uid: string, name: string, cpus: CpuSet): CpuState['given'] {
  return new Map([...given, [uid, new Map([...(given.get(uid) ?? []), [name, cpus]])]]);
}
