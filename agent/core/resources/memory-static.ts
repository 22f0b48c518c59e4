import type { Container, Pod } from '../../../proto/kube/types.ts';
import { keyOf } from '../containers.ts';
import type { Hint, Hints } from './hints.ts';
import { countOf, isNarrower, maskOf, masksOf, nodesOf } from './numa-mask.ts';
import type { NumaMask } from './numa-mask.ts';
import type { Refusal } from './refusal.ts';
import { containersOf, isManagedAsPod, isRegularInit, pinnedMemory, pinnedPodMemory } from './requests.ts';

/** Bytes of one kind of memory (`memory`, `hugepages-2Mi` …) on one NUMA node. */
export interface MemoryTable {
  readonly total: number;
  readonly systemReserved: number;
  readonly allocatable: number;
  readonly reserved: number;
  readonly free: number;
}

export interface NodeMemory {
  readonly assignments: number;
  /** By resource name. */
  readonly tables: ReadonlyMap<string, MemoryTable>;
  /** The nodes that give memory together with this one, itself included. */
  readonly cells: readonly number[];
}

/** By NUMA node. */
export type MachineMemory = ReadonlyMap<number, NodeMemory>;

export interface MemoryBlock {
  readonly nodes: readonly number[];
  readonly type: string;
  readonly bytes: number;
}

export interface MemoryState {
  readonly machine: MachineMemory;
  /** By pod UID and container name. */
  readonly given: ReadonlyMap<string, ReadonlyMap<string, readonly MemoryBlock[]>>;
  /** By UID, what pods have as a whole: all that their containers have is of it. */
  readonly pods?: ReadonlyMap<string, readonly MemoryBlock[]>;
}

export const noMemory: MemoryState = { machine: new Map(), given: new Map() };

export type MemoryOutcome = { readonly ok: true; readonly state: MemoryState } | { readonly ok: false; readonly refusal: Refusal };

type Wanted = ReadonlyMap<string, number>;

/** What one NUMA node has. */
export interface NumaMemoryFacts {
  readonly node: number;
  readonly memoryBytes: number;
  readonly hugePages: readonly { readonly name: string; readonly bytes: number }[];
  /** By resource name. */
  readonly systemReserved: Readonly<Record<string, number>>;
}

/** All memory free but for what the system is to keep. */
export function freshMachine(facts: readonly NumaMemoryFacts[]): MachineMemory {
  return new Map(
    facts.map(({ node, memoryBytes, hugePages, systemReserved }) => {
      const table = (name: string, total: number, without: number): [string, MemoryTable] => {
        const kept = systemReserved[name] ?? 0;
        const allocatable = total - kept - without;
        return [name, { total, systemReserved: kept, allocatable, reserved: 0, free: allocatable }];
      };
      const inPages = hugePages.reduce((sum, { bytes }) => sum + bytes, 0);
      const tables = new Map([...hugePages.map(({ name, bytes }) => table(name, bytes, 0)), table('memory', memoryBytes, inPages)]);
      return [node, { assignments: 0, tables, cells: [node] }];
    }),
  );
}

/** The state to begin with, or upstream's sentence about what is wrong with the one that is there. */
export function startMemoryState(fresh: MachineMemory, state: MemoryState): { readonly state: MemoryState } | { readonly problem: string } {
  const { machine, given } = state;
  if (machine.size === 0) {
    return given.size === 0
      ? { state: { machine: fresh, given } }
      : { problem: '[memorymanager] machine state can not be empty when it has memory assignments' };
  }
  let expected = fresh;
  for (const [pod, containers] of given) {
    const whole = state.pods?.get(pod);
    for (const [container, blocks] of whole === undefined ? containers : [['', whole] as const]) {
      for (const block of blocks) {
        const unknown = block.nodes.find((node) => !expected.has(node));
        const where = `[memorymanager] (pod: ${pod}, container: ${container}) the memory assignment uses`;
        if (unknown !== undefined) return { problem: `${where} the NUMA that does not exist` };
        if (block.nodes.some((node) => expected.get(node)?.tables.has(block.type) !== true)) return { problem: `${where} memory resource that does not exist` };
        expected = reserve(expected, block.nodes, block.type, block.bytes);
      }
    }
  }
  return sameMachine(machine, expected) ? { state } : { problem: '[memorymanager] the expected machine state is different from the real one' };
}

/** Gives the container its memory where it is to have some; `hint` is what the topology policy chose. */
export function giveMemory(state: MemoryState, pod: Pod, container: Container, hint: Hint, ofPods = false): MemoryOutcome {
  const wanted = pinnedMemory(pod, container, ofPods);
  const { uid } = keyOf(pod);
  if (wanted.size === 0 || state.given.get(uid)?.has(container.name) === true) return { ok: true, state };
  const reusable = (mask: NumaMask, type: string): number => reusableBytes(state, pod, container.name, mask, type);
  const chosen = choose(state.machine, wanted, hint, reusable);
  if (!chosen.ok) return { ok: false, refusal: { kind: 'unexpected', message: `[memorymanager] ${chosen.message}` } };
  const nodes = nodesOf(chosen.mask);
  let machine = state.machine;
  const blocks: MemoryBlock[] = [];
  for (const [type, bytes] of wanted) {
    blocks.push({ nodes, type, bytes });
    machine = reserve(machine, nodes, type, Math.max(0, bytes - reusable(chosen.mask, type)));
  }
  const own = new Map(state.given.get(uid));
  for (const block of blocks) shrinkInits(own, pod, container.name, block);
  own.set(container.name, blocks);
  return { ok: true, state: { ...state, machine, given: new Map([...state.given, [uid, own]]) } };
}

/** The container is no more. */
export function takeBackMemory(state: MemoryState, uid: string, name: string): MemoryState {
  const containers = state.given.get(uid);
  const blocks = containers?.get(name);
  if (containers === undefined || blocks === undefined) return state;
  const own = new Map(containers);
  own.delete(name);
  const given = new Map(state.given);
  if (own.size === 0) given.delete(uid);
  else given.set(uid, own);
  const whole = state.pods?.get(uid);
  if (whole !== undefined) {
    // Whole pods give back when the last of their containers has.
    if (own.size > 0) return { ...state, given };
    return { machine: whole.reduce(release, state.machine), given, pods: new Map([...(state.pods ?? [])].filter(([each]) => each !== uid)) };
  }
  return { ...state, machine: blocks.reduce(release, state.machine), given };
}

/** Init containers that ended before this one starts give up what is left of theirs. */
export function takeBackInits(state: MemoryState, pod: Pod, name: string): MemoryState {
  let next = state;
  if (state.pods?.has(keyOf(pod).uid) === true) return state;
  for (const container of pod.spec.initContainers ?? []) {
    if (container.name === name) break;
    if (isRegularInit(pod, container.name)) next = takeBackMemory(next, keyOf(pod).uid, container.name);
  }
  return next;
}

export function memoryHints(state: MemoryState, pod: Pod, container: Container, ofPods = false): Hints {
  const wanted = pinnedMemory(pod, container, ofPods);
  if (wanted.size === 0) return new Map();
  const blocks = state.given.get(keyOf(pod).uid)?.get(container.name);
  if (blocks !== undefined) return hintsOfBlocks(blocks, wanted);
  return hintsFor(state.machine, wanted, (mask, type) => reusableBytes(state, pod, container.name, mask, type));
}

export function podMemoryHints(state: MemoryState, pod: Pod, ofPods = false): Hints {
  const wanted = pinnedPodMemory(pod, ofPods);
  if (wanted.size === 0) return new Map();
  if (isManagedAsPod(pod, ofPods)) {
    const own = state.pods?.get(keyOf(pod).uid);
    if (own !== undefined) return hintsOfBlocks(own, wanted);
    if (sharedMemoryProblem(pod) !== null) return new Map([...wanted.keys()].map((type) => [type, []]));
  }
  const given = state.given.get(keyOf(pod).uid);
  const first = containersOf(pod).find((container) => given?.has(container.name) === true);
  if (first !== undefined) return hintsOfBlocks(given?.get(first.name) ?? [], wanted);
  return hintsFor(state.machine, wanted, () => 0);
}

/** Why containers of a pod that has memory as a whole would have none to share; null: they have. */
export function sharedMemoryProblem(pod: Pod): string | null {
  const total = pinnedPodMemory(pod, true);
  const owned = new Map<string, number>();
  const spent = (): string | undefined => [...total].find(([type, bytes]) => (owned.get(type) ?? 0) >= bytes)?.[0];
  let sharesForLong = false;
  for (const container of containersOf(pod)) {
    const own = pinnedMemory(pod, container, true);
    if (isRegularInit(pod, container.name)) {
      const type = own.size === 0 ? spent() : undefined;
      if (type !== undefined) return `pod rejected, pod has shared init containers but no ${type} available for them`;
      continue;
    }
    sharesForLong ||= own.size === 0;
    for (const [type, bytes] of own) owned.set(type, (owned.get(type) ?? 0) + bytes);
  }
  const type = sharesForLong ? spent() : undefined;
  return type === undefined ? null : `pod rejected, sum of exclusive container ${type} requests equals pod budget, leaving no memory for shared containers`;
}

/** Gives a pod the memory that it asks for as a whole, and of it to each container its own (KEP-5526); the nodes are the same for all. */
export function givePodMemory(state: MemoryState, pod: Pod, hint: Hint): MemoryOutcome {
  const wanted = pinnedPodMemory(pod, true);
  const { uid } = keyOf(pod);
  if (wanted.size === 0 || state.pods?.has(uid) === true) return { ok: true, state };
  const empty = sharedMemoryProblem(pod);
  if (empty !== null) return { ok: false, refusal: { kind: 'shared-pool', message: empty } };
  const chosen = choose(state.machine, wanted, hint, () => 0);
  if (!chosen.ok) return { ok: false, refusal: { kind: 'unexpected', message: `[memorymanager] ${chosen.message}` } };
  const nodes = nodesOf(chosen.mask);
  const blocksOf = (amounts: ReadonlyMap<string, number>): MemoryBlock[] =>
    [...amounts].flatMap(([type, bytes]) => (bytes > 0 ? [{ nodes, type, bytes }] : []));
  const pool = new Map(wanted);
  const own = new Map<string, readonly MemoryBlock[]>();
  for (const container of containersOf(pod)) {
    const amounts = pinnedMemory(pod, container, true);
    const isInit = isRegularInit(pod, container.name);
    if (amounts.size > 0 || isInit) own.set(container.name, blocksOf(amounts.size === 0 ? pool : amounts));
    if (!isInit) for (const [type, bytes] of amounts) pool.set(type, (pool.get(type) ?? 0) - bytes);
  }
  const containers = new Map(containersOf(pod).map(({ name }): [string, readonly MemoryBlock[]] => [name, own.get(name) ?? blocksOf(pool)]));
  const whole = blocksOf(wanted);
  const machine = whole.reduce((before, { type, bytes }) => reserve(before, nodes, type, bytes), state.machine);
  return { ok: true, state: { machine, given: new Map([...state.given, [uid, containers]]), pods: new Map([...(state.pods ?? []), [uid, whole]]) } };
}

/** What can be given away at all, one block a node and kind. */
export function allocatableMemory(machine: MachineMemory): MemoryBlock[] {
  return [...machine].flatMap(([node, { tables }]) =>
    [...tables].flatMap(([type, { allocatable }]) => (allocatable === 0 ? [] : [{ nodes: [node], type, bytes: allocatable }])),
  );
}

function choose(
  machine: MachineMemory,
  wanted: Wanted,
  hint: Hint,
  reusable: (mask: NumaMask, type: string) => number,
): { readonly ok: true; readonly mask: NumaMask } | { readonly ok: false; readonly message: string } {
  const all = (): readonly Hint[] => hintsFor(machine, wanted, reusable).get('memory') ?? [];
  let best = hint;
  if (best.nodes === null) {
    const usual = bestOf(all());
    if (usual === null) return { ok: false, message: 'failed to get the default NUMA affinity, no NUMA nodes with enough memory is available' };
    if (!usual.preferred && hint.preferred) return { ok: false, message: 'failed to find the default preferred hint' };
    best = usual;
  }
  const mask = best.nodes ?? 0n;
  if (!satisfies(machine, mask, wanted)) {
    const wider = bestOf(all().filter(({ nodes }) => ((nodes ?? 0n) & mask) === mask));
    if (wider === null) return { ok: false, message: 'failed to find NUMA nodes to extend the current topology hint' };
    if (!wider.preferred && best.preferred) return { ok: false, message: 'failed to find the extended preferred hint' };
    best = wider;
  }
  const chosen = best.nodes ?? 0n;
  if (breaksGroups(machine, nodesOf(chosen))) return { ok: false, message: 'preferred hint violates NUMA node allocation' };
  return { ok: true, mask: chosen };
}

function bestOf(hints: readonly Hint[]): Hint | null {
  let best: Hint | null = null;
  for (const hint of hints) {
    if (best === null || (hint.preferred && !best.preferred)) best = hint;
    else if (hint.preferred === best.preferred && isNarrower(hint.nodes ?? 0n, best.nodes ?? 0n)) best = hint;
  }
  return best;
}

function satisfies(machine: MachineMemory, mask: NumaMask, wanted: Wanted): boolean {
  return [...wanted].every(([type, bytes]) => sumOf(machine, nodesOf(mask), type, 'free') >= bytes);
}

function sumOf(machine: MachineMemory, nodes: readonly number[], type: string, what: 'free' | 'allocatable' | 'reserved'): number {
  return nodes.reduce((sum, node) => sum + (machine.get(node)?.tables.get(type)?.[what] ?? 0), 0);
}

/** Nodes that give memory together must not give it in another company, nor alone. */
function breaksGroups(machine: MachineMemory, nodes: readonly number[]): boolean {
  if (nodes.length === 1) return false;
  return nodes.some((node) => {
    const state = machine.get(node);
    return state !== undefined && state.assignments > 0 && (state.cells.length === 1 || !sameGroup(state.cells, nodes));
  });
}

function sameGroup(left: readonly number[], right: readonly number[]): boolean {
  return maskOf(left) === maskOf(right) && left.length === right.length;
}

function hintsFor(machine: MachineMemory, wanted: Wanted, reusable: (mask: NumaMask, type: string) => number): Hints {
  let fewest = machine.size;
  const masks: NumaMask[] = [];
  for (const mask of masksOf([...machine.keys()].toSorted((left, right) => left - right))) {
    const nodes = nodesOf(mask);
    if ([...wanted].some(([type, bytes]) => sumOf(machine, nodes, type, 'allocatable') < bytes)) continue;
    fewest = Math.min(fewest, nodes.length);
    if (nodes.length === 1 && (machine.get(nodes[0] ?? 0)?.cells.length ?? 1) > 1) continue;
    if (breaksGroups(machine, nodes)) continue;
    if ([...wanted].some(([type, bytes]) => sumOf(machine, nodes, type, 'free') + reusable(mask, type) < bytes)) continue;
    masks.push(mask);
  }
  // With no choice at all upstream says nothing, and its empty answer is "any".
  if (masks.length === 0) return new Map();
  const hints = masks.map((mask): Hint => ({ nodes: mask, preferred: countOf(mask) === fewest }));
  return new Map([...wanted.keys()].map((type) => [type, hints]));
}

/** What was given once is what is wished for now; null-free when sizes have changed: nothing is said. */
function hintsOfBlocks(blocks: readonly MemoryBlock[], wanted: Wanted): Hints {
  if (blocks.length !== wanted.size || blocks.some(({ type, bytes }) => wanted.get(type) !== bytes)) return new Map();
  return new Map(blocks.map(({ type, nodes }): [string, Hint[]] => [type, [{ nodes: maskOf(nodes), preferred: true }]]));
}

function reserve(machine: MachineMemory, nodes: readonly number[], type: string, bytes: number): MachineMemory {
  const next = new Map(machine);
  let open = bytes;
  for (const node of nodes) {
    const state = next.get(node);
    if (state === undefined) continue;
    const table = state.tables.get(type);
    const taken = Math.min(open, Math.max(0, table?.free ?? 0));
    open -= taken;
    const tables =
      table === undefined ? state.tables : new Map([...state.tables, [type, { ...table, reserved: table.reserved + taken, free: table.free - taken }]]);
    next.set(node, { assignments: state.assignments + 1, tables, cells: nodes });
  }
  return next;
}

function release(machine: MachineMemory, block: MemoryBlock): MachineMemory {
  const next = new Map(machine);
  let open = block.bytes;
  for (const node of block.nodes) {
    const state = next.get(node);
    if (state === undefined) continue;
    const assignments = state.assignments - 1;
    const table = state.tables.get(block.type);
    const back = Math.min(open, table?.reserved ?? 0);
    open -= back;
    const tables =
      table === undefined ? state.tables : new Map([...state.tables, [block.type, { ...table, reserved: table.reserved - back, free: table.free + back }]]);
    next.set(node, { assignments, tables, cells: assignments === 0 ? [node] : state.cells });
  }
  return next;
}

/** What init containers before this one hold on exactly these nodes, less what others have taken of it since. */
function reusableBytes(state: MemoryState, pod: Pod, name: string, mask: NumaMask, type: string): number {
  const given = state.given.get(keyOf(pod).uid);
  return containersOf(pod)
    .slice(
      0,
      containersOf(pod).findIndex((container) => container.name === name),
    )
    .filter((container) => isRegularInit(pod, container.name))
    .flatMap((container) => given?.get(container.name) ?? [])
    .filter((block) => block.type === type && maskOf(block.nodes) === mask)
    .reduce((sum, block) => sum + block.bytes, 0);
}

/** Memory that a container takes over from init containers before it is written off there, or it would be given back twice. */
function shrinkInits(own: Map<string, readonly MemoryBlock[]>, pod: Pod, name: string, block: MemoryBlock): void {
  let open = block.bytes;
  for (const container of pod.spec.initContainers ?? []) {
    if (container.name === name || open === 0) break;
    const blocks = isRegularInit(pod, container.name) ? own.get(container.name) : undefined;
    if (blocks === undefined) continue;
    const shrunk = blocks.map((each) => {
      if (each.type !== block.type || maskOf(each.nodes) !== maskOf(block.nodes)) return each;
      const taken = Math.min(open, each.bytes);
      open -= taken;
      return { ...each, bytes: each.bytes - taken };
    });
    own.set(container.name, shrunk);
  }
}

/** Groups as wholes are compared: which of its nodes a block was taken from depends on the order. */
function sameMachine(left: MachineMemory, right: MachineMemory): boolean {
  if (left.size !== right.size) return false;
  return [...left].every(([node, one]) => {
    const other = right.get(node);
    if (other === undefined || one.assignments !== other.assignments || !sameGroup(one.cells, other.cells) || one.tables.size !== other.tables.size)
      return false;
    return [...one.tables].every(([type, table]) => {
      const beside = other.tables.get(type);
      if (beside === undefined || table.total !== beside.total || table.systemReserved !== beside.systemReserved || table.allocatable !== beside.allocatable)
        return false;
      return (['free', 'reserved'] as const).every((what) => sumOf(left, one.cells, type, what) === sumOf(right, one.cells, type, what));
    });
  });
}
