import { fixedTable, SERVICE_SETS, sets, TABLE_COMMENT } from './nft-table.ts';
import type { RuleSettings } from './settings.ts';
import type { PortObjects } from './nft-service.ts';
import type { Element, Op, Rule, SetSpec, Verdict } from './ops.ts';

/** What is in the table, what should be there, and the smallest change between them. */

/** What the last transactions left in the kernel, as far as it comes from Services. */
export interface TableState {
  /** By port key. */
  ports: Map<string, PortObjects>;
  /** Who wants a key of a set: several Services may name one address. The first by port key has it. */
  claims: Map<string, Map<string, Claim>>;
  /** Chains that are empty and unused, waiting to be deleted, with the time they were flushed. */
  stale: Map<string, number>;
}

export interface Claim {
  set: SetSpec;
  element: Element;
}

/** What was read back from the kernel. Elements by set name, then by key text. */
export interface Observed {
  chains: readonly string[];
  /** Sets whose elements packets add, by name, with their timeout. */
  affinitySets: ReadonlyMap<string, number>;
  elements: ReadonlyMap<string, ReadonlyMap<string, string>>;
}

/** Operations and, for each, the port that needs it; undefined for the fixed part. */
export interface Plan {
  ops: Op[];
  owners: (string | undefined)[];
  /** Chains that this plan empties and that are to be deleted later. */
  stale: string[];
}

export function emptyState(): TableState {
  return { ports: new Map(), claims: new Map(), stale: new Map() };
}

function emptyPlan(): Plan {
  return { ops: [], owners: [], stale: [] };
}

function push(plan: Plan, owner: string | undefined, ...ops: Op[]): void {
  for (const op of ops) {
    plan.ops.push(op);
    plan.owners.push(owner);
  }
}

function elementId(set: SetSpec, element: Element): string {
  return `${set.name}|${element.key.join(' . ')}`;
}

/** Verdict and comment as text, to tell whether a key must be written again. */
export function valueText(verdict: Verdict | undefined, comment: string | undefined): string {
  const fate = verdict === undefined ? '' : verdict.kind === 'drop' ? 'drop' : `${verdict.kind} ${verdict.chain}`;
  return comment === undefined ? fate : `${fate} # ${comment}`;
}

function holder(claims: ReadonlyMap<string, Claim> | undefined): { port: string; claim: Claim } | undefined {
  let first: { port: string; claim: Claim } | undefined;
  for (const [port, claim] of claims ?? []) if (first === undefined || port < first.port) first = { port, claim };
  return first;
}

/** Claims of the keys in `touched` as they will be after `changes`; other keys stay as they are. */
function nextClaims(state: TableState, changes: ReadonlyMap<string, PortObjects | null>): Map<string, Map<string, Claim>> {
  const touched = new Map<string, Map<string, Claim>>();
  const open = (id: string): Map<string, Claim> => {
    let claims = touched.get(id);
    if (claims === undefined) touched.set(id, (claims = new Map(state.claims.get(id))));
    return claims;
  };
  for (const port of changes.keys()) {
    for (const { set, element } of state.ports.get(port)?.elements ?? []) open(elementId(set, element)).delete(port);
  }
  for (const [port, objects] of changes) {
    for (const { set, element } of objects?.elements ?? []) open(elementId(set, element)).set(port, { set, element });
  }
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
  for (const [port, objects] of changes) {
    const before = state.ports.get(port);
    for (const [chain, chainRules] of objects?.chains ?? []) {
      const known = before?.chains.get(chain);
      if (sameRules(known, chainRules)) continue;
      push(plan, port, known === undefined ? { op: 'add-chain', chain } : { op: 'flush-chain', chain });
      push(rules, port, ...chainRules.map((rule): Op => ({ op: 'add-rule', chain, rule })));
    }
    for (const chain of before?.chains.keys() ?? []) {
      if (objects?.chains.has(chain) === true) continue;
      push(plan, port, { op: 'flush-chain', chain });
      plan.stale.push(chain);
    }
    const known = new Map(before?.affinitySets.map((set) => [set.name, set]));
    for (const set of objects?.affinitySets ?? []) {
      const old = known.get(set.name);
      known.delete(set.name);
      if (old?.timeoutSeconds === set.timeoutSeconds) continue;
      if (old !== undefined) push(setDeletes, port, { op: 'delete-set', set: old });
      push(setAdds, port, { op: 'add-set', set });
    }
    for (const set of known.values()) push(setDeletes, port, { op: 'delete-set', set });
  }
  // A set whose timeout changes is referred to by chains that did not change: write those again.
  const replaced = new Set(setAdds.ops.flatMap((op) => (op.op === 'add-set' ? [op.set.name] : [])));
  if (setDeletes.ops.some((op) => op.op === 'delete-set' && replaced.has(op.set.name))) rewriteChains(plan, rules, state, changes);

  const deletes = emptyPlan();
  const adds = emptyPlan();
  for (const [id, claims] of nextClaims(state, changes)) {
    const old = holder(state.claims.get(id));
    const next = holder(claims);
    if (
      old !== undefined &&
      next !== undefined &&
      valueText(old.claim.element.verdict, old.claim.element.comment) === valueText(next.claim.element.verdict, next.claim.element.comment)
    )
      continue;
    if (old !== undefined) push(deletes, next?.port ?? old.port, { op: 'delete-element', set: old.claim.set, element: old.claim.element });
    if (next !== undefined) push(adds, next.port, { op: 'add-element', set: next.claim.set, element: next.claim.element });
  }
  return concat(plan, deletes, setDeletes, setAdds, rules, adds);
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

function concat(...plans: readonly Plan[]): Plan {
  return { ops: plans.flatMap((plan) => plan.ops), owners: plans.flatMap((plan) => plan.owners), stale: plans.flatMap((plan) => plan.stale) };
}

/** Takes over what a successful `planChanges` wrote. */
export function acceptChanges(state: TableState, changes: ReadonlyMap<string, PortObjects | null>, stale: readonly string[], nowMs: number): void {
  for (const [id, claims] of nextClaims(state, changes)) {
    if (claims.size === 0) state.claims.delete(id);
    else state.claims.set(id, claims);
  }
  for (const [port, objects] of changes) {
    if (objects === null) state.ports.delete(port);
    else state.ports.set(port, objects);
    for (const chain of objects?.chains.keys() ?? []) state.stale.delete(chain);
  }
  for (const chain of stale) state.stale.set(chain, nowMs);
}

/** The fixed part of the table: chains with their rules and sets without the Services' elements. */
function planFixed(settings: RuleSettings, table: 'new' | 'existing'): Plan {
  const { chains, baseChains, sets: allSets, absentSets, nodePortElements } = fixedTable(settings);
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
  for (const element of nodePortElements) push(plan, undefined, { op: 'add-element', set: sets.nodePortIPs, element });
  for (const { name, rules } of [...chains, ...baseChains]) push(plan, undefined, ...rules.map((rule): Op => ({ op: 'add-rule', chain: name, rule })));
  return plan;
}

/** Throws the whole table away and writes it new, in one transaction. */
export function planReplace(settings: RuleSettings, ports: ReadonlyMap<string, PortObjects>): Plan {
  const plan = emptyPlan();
  push(plan, undefined, { op: 'add-table', comment: TABLE_COMMENT }, { op: 'delete-table' });
  return concat(plan, planFixed(settings, 'new'), planChanges(emptyState(), ports));
}

/** A chain of a Service has a slash in its name; the fixed ones have none. */
export function isServiceChain(name: string): boolean {
  return name.includes('/');
}

export function isAffinitySet(name: string): boolean {
  return name.startsWith('affinity-');
}

/**
 * Repairs a table that is there already: all rules are written again, but only those keys that differ, and
 * clients keep the endpoints they stick to.
 */
export function planRepair(settings: RuleSettings, ports: ReadonlyMap<string, PortObjects>, observed: Observed): Plan {
  const fixed = planFixed(settings, 'existing');
  const chains = emptyPlan();
  const setDeletes = emptyPlan();
  const setAdds = emptyPlan();
  const rules = emptyPlan();
  const wanted = new Set<string>();
  const wantedSets = new Set<string>();
  const wantedElements = new Map<string, Map<string, { port: string; claim: Claim }>>();
  for (const [port, objects] of ports) {
    for (const [chain, chainRules] of objects.chains) {
      wanted.add(chain);
      push(chains, port, { op: 'add-chain', chain }, { op: 'flush-chain', chain });
      push(rules, port, ...chainRules.map((rule): Op => ({ op: 'add-rule', chain, rule })));
    }
    for (const set of objects.affinitySets) {
      wantedSets.add(set.name);
      const timeout = observed.affinitySets.get(set.name);
      if (timeout !== undefined && timeout !== set.timeoutSeconds) push(setDeletes, port, { op: 'delete-set', set });
      push(setAdds, port, { op: 'add-set', set });
    }
    for (const { set, element } of objects.elements) {
      const keys = wantedElements.get(set.name) ?? new Map<string, { port: string; claim: Claim }>();
      wantedElements.set(set.name, keys);
      const key = element.key.join(' . ');
      const other = keys.get(key);
      if (other === undefined || port < other.port) keys.set(key, { port, claim: { set, element } });
    }
  }
  for (const chain of observed.chains) {
    if (!isServiceChain(chain) || wanted.has(chain)) continue;
    push(chains, undefined, { op: 'flush-chain', chain });
    chains.stale.push(chain);
  }
  for (const name of observed.affinitySets.keys()) {
    if (!wantedSets.has(name)) push(setDeletes, undefined, { op: 'delete-set', set: { name, key: ['address'] } });
  }
  return concat(fixed, chains, repairElements(wantedElements, observed, 'delete'), setDeletes, setAdds, rules, repairElements(wantedElements, observed, 'add'));
}

function repairElements(wanted: ReadonlyMap<string, ReadonlyMap<string, { port: string; claim: Claim }>>, observed: Observed, phase: 'delete' | 'add'): Plan {
  const plan = emptyPlan();
  for (const set of SERVICE_SETS) {
    const keys = wanted.get(set.name);
    const there = observed.elements.get(set.name);
    if (phase === 'delete') {
      for (const [key, value] of there ?? []) {
        const want = keys?.get(key)?.claim.element;
        if (want !== undefined && valueText(want.verdict, want.comment) === value) continue;
        push(plan, keys?.get(key)?.port, { op: 'delete-element', set, element: { key: key.split(' . '), ...deletedVerdict(set, value) } });
      }
    } else {
      for (const [key, { port, claim }] of keys ?? []) {
        if (there?.get(key) !== valueText(claim.element.verdict, claim.element.comment)) push(plan, port, { op: 'add-element', set, element: claim.element });
      }
    }
  }
  return plan;
}

/** nft wants the verdict named when a key of a map is deleted. */
function deletedVerdict(set: SetSpec, value: string): { verdict?: Verdict } {
  if (set.verdicts !== true) return {};
  const text = value.split(' # ')[0]!;
  return text.startsWith('goto ') ? { verdict: { kind: 'goto', chain: text.slice(5) } } : { verdict: { kind: 'drop' } };
}

/** The state after a successful repair or replacement. */
export function acceptWhole(ports: ReadonlyMap<string, PortObjects>, stale: readonly string[], nowMs: number): TableState {
  const state = emptyState();
  acceptChanges(state, ports, stale, nowMs);
  return state;
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
