import {
  endpointMap,
  endpointMapOf,
  fixedTable,
  localhostRejectChain,
  localhostRejectCounter,
  localhostRejectsLeft,
  SERVICE_SETS,
  sets,
  TABLE_COMMENT,
} from './nft-table.ts';
import type { RuleSettings } from './settings.ts';
import { drawnElements, elementsOf, type PortObjects } from './nft-service.ts';
import type { Element, NetworkTarget, Op, Rule, SetSpec, Verdict } from './ops.ts';

/**
 * What is in the table, what should be there, and the smallest change between them.
 *
 * Where a cold start goes through everything, `forEach` stands for a loop: in code that is not optimized (node/frugal.ts)
 * each step of `for … of` makes an object or two, and the collector took as long as all the rest.
 */

/** What the last transactions left in the kernel, as far as it comes from Services. */
export interface TableState {
  /** By port key. */
  ports: Map<string, PortObjects>;
  /** Who wants a key of a set, ordered by port key: several Services may name one address, and the first has it. */
  claims: Map<string, Claims>;
  /** Maps of endpoints that are there. They stay: an empty one costs nothing. */
  maps: Set<string>;
  /** Chains that are empty and unused, waiting to be deleted, with the time they were flushed. */
  stale: Map<string, number>;
}

export interface Claim {
  port: string;
  set: SetSpec;
  element: Element;
}

/** What was read back from the kernel. Elements by set name, then by key text. */
export interface Observed {
  chains: readonly string[];
  /** Maps of endpoints are among `elements`, by their names. Sets whose elements packets add, by name, with their timeout. */
  affinitySets: ReadonlyMap<string, number>;
  elements: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** Operations and, for each, the port that needs it; undefined for the fixed part. */
export interface Plan {
  ops: Op[];
  owners: (string | undefined)[];
  /** Chains that this plan empties and that are to be deleted later. */
  stale: string[];
  /** Who will want the keys that change, where that was worked out. */
  claims?: NextClaims;
}

/** Nearly every key is claimed by one port alone. */
export type Claims = Claim | readonly Claim[];
/** By key; null where nobody wants it any more. */
type NextClaims = ReadonlyMap<string, Claims | null>;

/** Who has the key, of those who want it. */
export function holder(claims: Claims): Claim {
  return isAlone(claims) ? claims : claims[0]!;
}

function isAlone(claims: Claims): claims is Claim {
  return !Array.isArray(claims);
}

function add(plan: Plan, owner: string | undefined, op: Op): void {
  plan.ops.push(op);
  plan.owners.push(owner);
}

function addRules(plan: Plan, owner: string | undefined, chain: string, rules: readonly Rule[]): void {
  rules.forEach((rule) => add(plan, owner, { op: 'add-rule', chain, rule }));
}

export function emptyState(): TableState {
  return { ports: new Map(), claims: new Map(), maps: new Set(), stale: new Map() };
}

export function emptyPlan(): Plan {
  return { ops: [], owners: [], stale: [] };
}

function push(plan: Plan, owner: string | undefined, ...ops: Op[]): void {
  ops.forEach((op) => add(plan, owner, op));
}

function keyText({ key }: Element): string {
  return key.length === 1 ? key[0]! : key.join(' . ');
}

function elementId(set: SetSpec, element: Element): string {
  return `${set.name}|${keyText(element)}`;
}

/** What a key leads to, with its comment, as text: to tell whether it must be written again. */
export function valueText(value: { verdict?: Verdict | undefined; target?: NetworkTarget | undefined; comment?: string | undefined }): string {
  const { verdict, target, comment } = value;
  if (target !== undefined) return `${target.address} . ${target.port}`;
  const fate = verdict === undefined ? '' : verdict.kind === 'drop' ? 'drop' : `${verdict.kind} ${verdict.chain}`;
  return comment === undefined ? fate : `${fate} # ${comment}`;
}

function without(claims: Claims | null, port: string): Claims | null {
  if (claims === null) return null;
  if (isAlone(claims)) return claims.port === port ? null : claims;
  const others = claims.filter((claim) => claim.port !== port);
  return others.length > 1 ? others : (others[0] ?? null);
}

/** Claims of the keys in `touched` as they will be after `changes`; other keys stay as they are. */
function nextClaims(state: TableState, changes: ReadonlyMap<string, PortObjects | null>): NextClaims {
  const touched = new Map<string, Claims | null>();
  const othersOf = (id: string, port: string): Claims | null => {
    const known = touched.get(id);
    return without(known === undefined ? (state.claims.get(id) ?? null) : known, port);
  };
  changes.forEach((_, port) => {
    state.ports.get(port)?.elements.forEach(({ set, element }) => {
      const id = elementId(set, element);
      touched.set(id, othersOf(id, port));
    });
  });
  changes.forEach((objects, port) => {
    objects?.elements.forEach(({ set, element }) => {
      const id = elementId(set, element);
      const claim = { port, set, element };
      const others = othersOf(id, port);
      touched.set(id, others === null ? claim : [...(isAlone(others) ? [others] : others), claim].sort((a, b) => (a.port < b.port ? -1 : 1)));
    });
  });
  return touched;
}

function sameRules(a: readonly Rule[] | undefined, b: readonly Rule[]): boolean {
  return a !== undefined && JSON.stringify(a) === JSON.stringify(b);
}

/**
 * The transaction that takes the table from `state` to `state` with `changes` (null removes a port). The order
 * matters to the kernel: chains exist before anything goes to them, nothing refers to a set that is deleted,
 * and a key is deleted before it is added with another verdict.
 */
export function planChanges(state: TableState, changes: ReadonlyMap<string, PortObjects | null>): Plan {
  const plan = emptyPlan();
  const rules = emptyPlan();
  const setDeletes = emptyPlan();
  const setAdds = emptyPlan();
  changes.forEach((objects, port) => {
    const before = state.ports.get(port);
    objects?.chains.forEach((chainRules, chain) => {
      const known = before?.chains.get(chain);
      if (sameRules(known, chainRules)) return;
      add(plan, port, known === undefined ? { op: 'add-chain', chain } : { op: 'flush-chain', chain });
      addRules(rules, port, chain, chainRules);
    });
    before?.chains.forEach((_, chain) => {
      if (objects?.chains.has(chain) === true) return;
      add(plan, port, { op: 'flush-chain', chain });
      plan.stale.push(chain);
    });
    const had = before?.affinitySets ?? NO_SETS;
    const wanted = objects?.affinitySets ?? NO_SETS;
    if (had.length + wanted.length > 0) planAffinity(port, had, wanted, setDeletes, setAdds);
  });
  planMaps(changes, state.maps, setAdds);
  // A set whose timeout changes is referred to by chains that did not change: write those again.
  const replaced = new Set(setAdds.ops.flatMap((op) => (op.op === 'add-set' ? [op.set.name] : [])));
  if (setDeletes.ops.some((op) => op.op === 'delete-set' && replaced.has(op.set.name))) rewriteChains(plan, rules, state, changes);

  const deletes = emptyPlan();
  const adds = emptyPlan();
  const next = nextClaims(state, changes);
  next.forEach((claims, id) => {
    const known = state.claims.get(id);
    const old = known === undefined ? undefined : holder(known);
    const first = claims === null ? undefined : holder(claims);
    if (old !== undefined && first !== undefined && valueText(old.element) === valueText(first.element)) return;
    if (old !== undefined) add(deletes, first?.port ?? old.port, { op: 'delete-element', set: old.set, element: old.element });
    if (first !== undefined) add(adds, first.port, { op: 'add-element', set: first.set, element: first.element });
  });
  changes.forEach((objects, port) => planDrawn(port, state.ports.get(port), objects, deletes, adds));
  return { ...concat(plan, deletes, setDeletes, setAdds, rules, adds), claims: next };
}

const NO_SETS: readonly SetSpec[] = [];

function planAffinity(port: string, before: readonly SetSpec[], after: readonly SetSpec[], deletes: Plan, adds: Plan): void {
  const known = new Map(before.map((set) => [set.name, set]));
  for (const set of after) {
    const old = known.get(set.name);
    known.delete(set.name);
    if (old?.timeoutSeconds === set.timeoutSeconds) continue;
    if (old !== undefined) add(deletes, port, { op: 'delete-set', set: old });
    add(adds, port, { op: 'add-set', set });
  }
  for (const set of known.values()) add(deletes, port, { op: 'delete-set', set });
}

/** Maps that the ports draw from and that are not there. */
function planMaps(ports: ReadonlyMap<string, PortObjects | null>, there: ReadonlySet<string>, adds: Plan): void {
  const added = new Set<string>();
  ports.forEach((objects, port) => {
    objects?.drawn.forEach(({ set }) => {
      if (there.has(set.name) || added.has(set.name)) return;
      added.add(set.name);
      add(adds, port, { op: 'add-set', set });
    });
  });
}

/** Endpoints under a port's own numbers. A rule need not be written again while their number stays the same. */
function planDrawn(port: string, before: PortObjects | undefined, after: PortObjects | null, deletes: Plan, adds: Plan): void {
  const known = new Map<string, { set: SetSpec; element: Element }>();
  if (before !== undefined) for (const drawn of drawnElements(before.drawn)) known.set(elementId(drawn.set, drawn.element), drawn);
  after?.drawn.forEach((drawn) => {
    if (known.size === 0) {
      add(adds, port, { op: 'add-targets', ...drawn });
      return;
    }
    for (const { set, element } of drawnElements([drawn])) {
      const id = elementId(set, element);
      const old = known.get(id);
      if (old !== undefined && valueText(old.element) === valueText(element)) known.delete(id);
      else add(adds, port, { op: 'add-element', set, element });
    }
  });
  known.forEach(({ set, element }) => add(deletes, port, { op: 'delete-element', set, element }));
}

function rewriteChains(plan: Plan, rules: Plan, state: TableState, changes: ReadonlyMap<string, PortObjects | null>): void {
  for (const [port, objects] of changes) {
    const before = state.ports.get(port);
    for (const [chain, chainRules] of objects?.chains ?? []) {
      if (!sameRules(before?.chains.get(chain), chainRules)) continue;
      push(plan, port, { op: 'flush-chain', chain });
      push(rules, port, ...chainRules.map((rule): Op => ({ op: 'add-rule', chain, rule })));
    }
  }
}

export function concat(...plans: readonly Plan[]): Plan {
  const whole = emptyPlan();
  return {
    ops: whole.ops.concat(...plans.map((plan) => plan.ops)),
    owners: whole.owners.concat(...plans.map((plan) => plan.owners)),
    stale: whole.stale.concat(...plans.map((plan) => plan.stale)),
  };
}

/** Takes over what a successful `planChanges` wrote. */
export function acceptChanges(
  state: TableState,
  changes: ReadonlyMap<string, PortObjects | null>,
  { stale, claims: next = nextClaims(state, changes) }: Pick<Plan, 'stale' | 'claims'>,
  nowMs: number,
): void {
  next.forEach((claims, id) => {
    if (claims === null) state.claims.delete(id);
    else state.claims.set(id, claims);
  });
  changes.forEach((objects, port) => {
    if (objects === null) {
      state.ports.delete(port);
      return;
    }
    state.ports.set(port, objects);
    if (state.stale.size > 0) for (const chain of objects.chains.keys()) state.stale.delete(chain);
    objects.drawn.forEach(({ set }) => state.maps.add(set.name));
  });
  for (const chain of stale) state.stale.set(chain, nowMs);
}

/** The fixed part of the table: chains with their rules and sets without the Services' elements. */
function planFixed(settings: RuleSettings, table: 'new' | 'existing'): Plan {
  const { chains, baseChains, sets: allSets, absentSets, nodePortElements, counters } = fixedTable(settings);
  const plan = emptyPlan();
  const add = (op: Op & { op: 'add-chain' }): void =>
    push(plan, undefined, op, ...(table === 'new' ? [] : ([{ op: 'flush-chain', chain: op.chain }] as const)));
  push(plan, undefined, { op: 'add-table', comment: TABLE_COMMENT });
  if (table === 'existing') {
    // Hook and priority of a chain cannot be changed, and another version may have chosen others.
    for (const { name } of baseChains) push(plan, undefined, { op: 'add-chain', chain: name }, { op: 'delete-chain', chain: name });
  }
  for (const { name, base } of baseChains) push(plan, undefined, { op: 'add-chain', chain: name, base });
  for (const { name, comment } of chains) add({ op: 'add-chain', chain: name, ...(comment === undefined ? {} : { comment }) });
  for (const set of allSets) push(plan, undefined, { op: 'add-set', set });
  if (table === 'existing') {
    for (const set of absentSets) push(plan, undefined, { op: 'add-set', set }, { op: 'delete-set', set });
    if (allSets.includes(sets.nodePortIPs)) push(plan, undefined, { op: 'flush-set', set: sets.nodePortIPs });
  }
  for (const counter of counters) push(plan, undefined, { op: 'add-counter', counter });
  for (const element of nodePortElements) push(plan, undefined, { op: 'add-element', set: sets.nodePortIPs, element });
  for (const { name, rules } of [...chains, ...baseChains]) push(plan, undefined, ...rules.map((rule): Op => ({ op: 'add-rule', chain: name, rule })));
  return plan;
}

/** Throws the whole table away and writes it new, in one transaction. */
export function planReplace(settings: RuleSettings, ports: ReadonlyMap<string, PortObjects>): Plan {
  const plan = emptyPlan();
  push(plan, undefined, { op: 'add-table', comment: TABLE_COMMENT }, { op: 'delete-table' });
  const services = planChanges(emptyState(), ports);
  return { ...services, ...concat(plan, planFixed(settings, 'new'), services) };
}

/** A chain of a Service has a slash in its name; the fixed ones have none. */
export function isServiceChain(name: string): boolean {
  return name.includes('/');
}

export function isAffinitySet(name: string): boolean {
  return name.startsWith('affinity-');
}

/** The keys that all ports together want, by set name and key text; the first port by its key has one that several want. */
export type WantedKeys = ReadonlyMap<string, ReadonlyMap<string, Claim>>;

export function wantedKeys(ports: ReadonlyMap<string, PortObjects>): WantedKeys {
  const wanted = new Map<string, Map<string, Claim>>();
  for (const [port, objects] of ports) {
    for (const { set, element } of elementsOf(objects)) {
      const keys = wanted.get(set.name) ?? new Map<string, Claim>();
      wanted.set(set.name, keys);
      const key = element.key.join(' . ');
      const other = keys.get(key);
      if (other === undefined || port < other.port) keys.set(key, { port, set, element });
    }
  }
  return wanted;
}

/** The beginning of a repair: the fixed part of a table that is there already is written again. */
export function planRepairFixed(settings: RuleSettings): Plan {
  return planFixed(settings, 'existing');
}

/**
 * Repairs some ports of a table that is there already: their rules are written again, but only those keys that differ,
 * and clients keep the endpoints they stick to.
 */
export function planRepairPorts(ports: ReadonlyMap<string, PortObjects>, wanted: WantedKeys, observed: Observed): Plan {
  const chains = emptyPlan();
  const setDeletes = emptyPlan();
  const setAdds = emptyPlan();
  const rules = emptyPlan();
  const deletes = emptyPlan();
  const adds = emptyPlan();
  for (const [port, objects] of ports) {
    for (const [chain, chainRules] of objects.chains) {
      push(chains, port, { op: 'add-chain', chain }, { op: 'flush-chain', chain });
      push(rules, port, ...chainRules.map((rule): Op => ({ op: 'add-rule', chain, rule })));
    }
    for (const set of objects.affinitySets) {
      const timeout = observed.affinitySets.get(set.name);
      if (timeout !== undefined && timeout !== set.timeoutSeconds) push(setDeletes, port, { op: 'delete-set', set });
      push(setAdds, port, { op: 'add-set', set });
    }
    for (const { set, element } of elementsOf(objects)) {
      const key = element.key.join(' . ');
      const claim = wanted.get(set.name)?.get(key);
      // What is drawn nobody else can claim.
      if (set.targets === undefined && (claim?.port !== port || claim.element !== element)) continue;
      const there = observed.elements.get(set.name)?.get(key);
      if (there === valueText(element)) continue;
      if (there !== undefined) push(deletes, port, { op: 'delete-element', set, element: observedElement(set, key, there) });
      push(adds, port, { op: 'add-element', set, element });
    }
  }
  planMaps(ports, new Set(), setAdds);
  return concat(chains, deletes, setDeletes, setAdds, rules, adds);
}

/** Maps of endpoints that are there. */
export function endpointMapsIn(observed: Observed): SetSpec[] {
  return [...observed.elements.keys()].flatMap((name) => {
    const map = endpointMapOf(name);
    return map === null ? [] : [endpointMap(map.protocol, map.number)];
  });
}

/** The end of a repair: what no port wants goes. */
export function planRepairStrays(ports: ReadonlyMap<string, PortObjects>, wanted: WantedKeys, observed: Observed, settings: RuleSettings): Plan {
  const plan = emptyPlan();
  for (const set of SERVICE_SETS) {
    for (const [key, value] of observed.elements.get(set.name) ?? []) {
      if (wanted.get(set.name)?.has(key) !== true) push(plan, undefined, { op: 'delete-element', set, element: observedElement(set, key, value) });
    }
  }
  const left = localhostRejectsLeft(settings, observed.chains);
  if (left.isMapLeft) push(plan, undefined, { op: 'delete-set', set: sets.localhostRejects });
  for (const protocol of left.protocols) {
    const [chain, counter] = [localhostRejectChain(protocol), localhostRejectCounter(protocol)];
    push(plan, undefined, { op: 'flush-chain', chain }, { op: 'delete-chain', chain }, { op: 'delete-counter', counter });
  }
  const objects = [...ports.values()];
  const maps = new Set(objects.flatMap((port) => port.drawn.map(({ set }) => set.name)));
  const chains = new Set(objects.flatMap((port) => [...port.chains.keys()]));
  for (const chain of observed.chains) {
    if (!isServiceChain(chain) || chains.has(chain)) continue;
    push(plan, undefined, { op: 'flush-chain', chain });
    plan.stale.push(chain);
  }
  for (const set of endpointMapsIn(observed)) {
    if (!maps.has(set.name)) push(plan, undefined, { op: 'delete-set', set });
    else
      for (const [key, value] of observed.elements.get(set.name)!)
        if (wanted.get(set.name)?.has(key) !== true) push(plan, undefined, { op: 'delete-element', set, element: observedElement(set, key, value) });
  }
  const affinitySets = new Set(objects.flatMap((port) => port.affinitySets.map((set) => set.name)));
  for (const name of observed.affinitySets.keys()) {
    if (!affinitySets.has(name)) push(plan, undefined, { op: 'delete-set', set: { name, key: ['address'] } });
  }
  return plan;
}

/** nft wants the value named when a key of a map is deleted. */
function observedElement(set: SetSpec, text: string, value: string): Element {
  const key = text.split(' . ');
  if (set.targets !== undefined) {
    const [address = '', port = ''] = value.split(' . ');
    return { key, target: { address, port: Number(port) } };
  }
  if (set.verdicts !== true) return { key };
  const verdict = value.split(' # ')[0]!;
  return { key, verdict: verdict.startsWith('goto ') ? { kind: 'goto', chain: verdict.slice(5) } : { kind: 'drop' } };
}

/** Deletes chains that were emptied at or before `beforeMs`; some kernels call them busy right after the flush. */
export function planCleanup(state: TableState, beforeMs: number): Plan {
  const plan = emptyPlan();
  for (const [chain, sinceMs] of state.stale) if (sinceMs <= beforeMs) push(plan, undefined, { op: 'delete-chain', chain });
  return plan;
}

export function acceptCleanup(state: TableState, plan: Plan): void {
  for (const op of plan.ops) if (op.op === 'delete-chain') state.stale.delete(op.chain);
}
