import { setImmediate as turn } from 'node:timers/promises';
import { hasCode, type OpCode, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import {
  acceptChanges,
  acceptCleanup,
  concat,
  emptyPlan,
  emptyState,
  endpointMapsIn,
  holder,
  isServiceChain,
  planChanges,
  planCleanup,
  planRepairFixed,
  planRepairPorts,
  planRepairStrays,
  planReplace,
  valueText,
  wantedKeys,
  type Observed,
  type Plan,
  type TableState,
} from './core/diff.ts';
import { endpointMapOf, fixedTable, SERVICE_SETS, sets } from './core/nft-table.ts';
import type { RuleSettings } from './core/settings.ts';
import { drawnElements, portObjects, releaseSlots, type PortObjects } from './core/nft-service.ts';
import type { Element, SetSpec } from './core/ops.ts';
import type { PortRules } from './core/ruleset.ts';
import { firstFreeMap, Slots } from './core/slots.ts';
import type { CommitResult, NftKernel } from './io/kernel.ts';
import { gathered, type RulesInParts, type ServiceTable, type WriteResult } from './sync.ts';

type Compiled<T extends PortRules | null> = T extends PortRules ? PortObjects : PortObjects | null;

/** About how many operations a port takes. */
function sizeOf(objects: PortObjects): number {
  let size = objects.elements.length + 3 * objects.chains.size + objects.affinitySets.length;
  objects.drawn.forEach(({ targets }) => (size += targets.length));
  return size;
}

/** With the ports at fault; undefined for the fixed part. */
type Refusal = { ok: false; error: OpError; culprits: readonly (string | undefined)[] };
type Part = ReadonlyMap<string, PortObjects>;

/** Ports, a few at a time, in parts for one transaction each: at least one, and all but the first have ports. */
async function* partsOf(ports: AsyncIterable<Part> | Iterable<Part>, opsAtOnce: number): AsyncGenerator<Part> {
  let part = new Map<string, PortObjects>();
  let size = 0;
  let before = 0;
  for await (const some of ports) {
    for (const [port, objects] of some) {
      part.set(port, objects);
      size += sizeOf(objects);
      if (size < opsAtOnce && (opsAtOnce === Infinity || size < Math.max(FIRST_OPS_AT_ONCE, before / 4))) continue;
      yield part;
      part = new Map();
      before += size;
      size = 0;
    }
  }
  if (part.size > 0 || before === 0) yield part;
}

/** Lets rules be worked out until something else is through; returns all of them, those that are there and those to come. */
async function drawUntil(through: Promise<unknown>, rules: RulesInParts): Promise<AsyncGenerator<ReadonlyMap<string, PortRules>>> {
  const other = { isThrough: false };
  const end = (): void => void (other.isThrough = true);
  through.then(end, end);
  const parts: ReadonlyMap<string, PortRules>[] = [];
  const source = (async function* () {
    yield* rules;
  })();
  while (!other.isThrough) {
    const next = await source.next();
    if (next.done === true) break;
    parts.push(next.value);
  }
  return (async function* () {
    yield* parts;
    yield* source;
  })();
}

/** Whether a write of all of it may have to be split; on the safe side. */
function isLarge(rules: ReadonlyMap<string, PortRules>, opsAtOnce: number): boolean {
  return 20 * rules.size + 10 * endpointsIn(rules) >= opsAtOnce;
}

function endpointsIn(rules: ReadonlyMap<string, PortRules>): number {
  let count = 0;
  for (const rule of rules.values()) count += rule.cluster.length + rule.local.length;
  return count;
}

/** How many rounds of setting bad ports aside one write makes before it gives up. */
const MAX_ROUNDS = 20;
/** A first write is split so that one transaction has about this many operations: the kernel holds its lock meanwhile. */
const OPS_AT_ONCE = 6000;
/** The first ones are smaller: while the kernel takes one, the next is worked out. */
const FIRST_OPS_AT_ONCE = 2000;
const PORTS_AT_A_STRETCH = 50;
/** sys answers in at most 64 MiB, and a rule with the longest names takes about 900 bytes. */
const RULES_READ_MAX = 50_000;

/** After these the kernel may have taken it, or be about to: a part that is written twice has its rules twice. */
const OPEN_ENDS: ReadonlySet<OpCode> = new Set<OpCode>(['aborted', 'unavailable', 'deadline']);

export interface TableOptions {
  kernel: NftKernel;
  /** Another way to write, for a kernel that does not take the first one's messages. */
  fallback: NftKernel | null;
  log: Log;
  /** Default OPS_AT_ONCE. */
  opsAtOnce?: number;
  /** Default RULES_READ_MAX. */
  rulesReadMax?: number;
}

/**
 * The one owner of what is in a family's table: knows what it wrote, writes differences, repairs, and keeps one
 * port that the kernel refuses from holding up all others.
 */
export class Table implements ServiceTable {
  readonly failureMetrics = { any: 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total' };
  readonly #options: TableOptions;
  #settings: RuleSettings | null = null;
  #state: TableState = emptyState();
  /** Null until it is known which numbers are taken. */
  #slots: Slots | null = null;
  /** Ports the kernel refused in the last whole write. They are tried again without making the others wait. */
  #refused = new Set<string>();
  /** The kernel's generation when the table was last read, and seen or made to be right; null when that is not known. */
  #generation: number | null = null;

  constructor(options: TableOptions) {
    this.#options = options;
  }

  /** A whole write is split: there is no size at which it would do harm. */
  readonly isLarge = false;

  get portCount(): number {
    return this.#state.ports.size;
  }

  get staleCount(): number {
    return this.#state.stale.size;
  }

  /** Writes changed ports only. When the kernel refuses one it took before, nothing is changed and a whole write is due. */
  async writeChanges(
    family: RuleSettings['family'],
    changes: ReadonlyMap<string, PortRules | null>,
    nowMs: number,
    signal?: AbortSignal,
  ): Promise<WriteResult> {
    if (this.#settings === null || this.#slots === null) return { ok: false, error: new OpError('failed', 'write nftables rules', 'nothing is written yet') };
    const wanted = await this.#compile(changes, this.#settings, this.#slots);
    const refused: string[] = [];
    for (;;) {
      const plan = planChanges(this.#state, wanted);
      const result = await this.#options.kernel.commit(family, plan.ops, signal);
      if (result.ok) {
        for (const [port, objects] of wanted) if (objects === null) this.#release(port);
        acceptChanges(this.#state, wanted, plan, nowMs);
        for (const port of wanted.keys()) this.#refused.delete(port);
        return { ok: true, refused };
      }
      const culprits = result.failedOps.map((index) => plan.owners[index]);
      if (culprits.length === 0 || !culprits.every((port) => port !== undefined && this.#refused.has(port) && wanted.has(port))) return result;
      for (const port of new Set(culprits)) {
        wanted.delete(port!);
        refused.push(port!);
      }
    }
  }

  #release(port: string): void {
    const objects = this.#state.ports.get(port);
    if (objects !== undefined) releaseSlots(objects, this.#slots!);
  }

  /** Works out what ports come to; the event loop gets its turn in between. */
  async #compile<T extends PortRules | null>(rules: ReadonlyMap<string, T>, settings: RuleSettings, slots: Slots): Promise<Map<string, Compiled<T>>> {
    const compiled = new Map<string, Compiled<T>>();
    for (const [port, rule] of rules) {
      compiled.set(port, (rule === null ? null : portObjects(rule, settings, slots)) as Compiled<T>);
      if (compiled.size % PORTS_AT_A_STRETCH === 0) await turn();
    }
    return compiled;
  }

  /**
   * Makes the whole table right: repairs what can be read back, else replaces it. Ports that the kernel refuses are
   * left out and named. A table that is there never lacks a Service that it had.
   */
  async writeWhole(settings: RuleSettings, all: RulesInParts, nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const looking = this.#look(settings, signal);
    const rest = await drawUntil(looking, all);
    const { generation, observed } = await looking;
    this.#settings = settings;
    this.#generation = null;
    const result = await (observed === 'absent' ? this.#writeFirst(settings, rest, nowMs, signal) : this.#rewrite(settings, rest, observed, nowMs, signal));
    // Of the look, so that what somebody else changed since is found by the next one.
    if (result.ok) this.#generation = generation;
    return result;
  }

  async #look(settings: RuleSettings, signal?: AbortSignal): Promise<{ generation: number | null; observed: Observed | 'absent' | 'unknown' }> {
    const generation = await this.#readGeneration(signal);
    return { generation, observed: await this.#observe(settings, signal) };
  }

  /** Repairs a table that is there, or throws it away. */
  async #rewrite(settings: RuleSettings, all: RulesInParts, observed: Observed | 'unknown', nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const { log } = this.#options;
    const rules = await gathered(all);
    if (typeof observed !== 'string') {
      // In a repair of several transactions no old rule may draw from where a new one does already.
      const slots = isLarge(rules, this.#opsAtOnce) ? null : this.#slots;
      if (slots !== null) this.#forgetAbsent(rules);
      this.#slots = slots ?? new Slots(firstFreeMap(endpointMapsIn(observed).map(({ name }) => endpointMapOf(name)!.number)));
      const ports = await this.#compile(rules, settings, this.#slots);
      const result = await this.#repair(settings, ports, observed, nowMs, signal);
      if (result.ok || hasCode(result.error, 'aborted')) return result;
      log.warn('Repairing the table failed, it is written anew', { error: result.error });
    }
    this.#slots = new Slots();
    const wanted = await this.#compile(rules, settings, this.#slots);
    return await this.#replace(settings, wanted, [wanted], Infinity, nowMs, signal);
  }

  /** Writes into an empty kernel what is worked out already, while the rest is. */
  async #writeFirst(settings: RuleSettings, rules: RulesInParts, nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const slots = new Slots();
    this.#slots = slots;
    const wanted = new Map<string, PortObjects>();
    const compile = async function* (): AsyncGenerator<Part> {
      for await (const part of rules) {
        const compiled = new Map<string, PortObjects>();
        part.forEach((rule, port) => {
          const objects = portObjects(rule, settings, slots);
          compiled.set(port, objects);
          wanted.set(port, objects);
        });
        yield compiled;
      }
    };
    return await this.#replace(settings, wanted, compile(), this.#opsAtOnce, nowMs, signal);
  }

  get #opsAtOnce(): number {
    return this.#options.opsAtOnce ?? OPS_AT_ONCE;
  }

  /** Takes back the numbers of ports that are gone. */
  #forgetAbsent(rules: ReadonlyMap<string, PortRules>): void {
    for (const port of this.#state.ports.keys()) if (!rules.has(port)) this.#release(port);
  }

  async #repair(settings: RuleSettings, ports: Map<string, PortObjects>, observed: Observed, nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const wanted = wantedKeys(ports);
    const state = emptyState();
    let plan = planRepairFixed(settings);
    let part = new Map<string, PortObjects>();
    const commit = async (): Promise<WriteResult> => {
      const whole = concat(plan, planRepairPorts(part, wanted, observed));
      const result = await this.#options.kernel.commit(settings.family, whole.ops, signal);
      if (!result.ok) return result;
      acceptChanges(state, part, emptyPlan(), nowMs);
      plan = emptyPlan();
      part = new Map();
      return { ok: true, refused: [] };
    };
    let size = 0;
    for (const [port, objects] of ports) {
      part.set(port, objects);
      size += sizeOf(objects);
      if (size < this.#opsAtOnce) continue;
      const result = await commit();
      if (!result.ok) return result;
      size = 0;
    }
    const strays = planRepairStrays(ports, wanted, observed, settings);
    plan = concat(plan, planRepairPorts(part, wanted, observed), strays);
    acceptChanges(state, part, strays, nowMs);
    part = new Map();
    const result = await commit();
    if (!result.ok) return result;
    return this.#accept(state, []);
  }

  /** @param first what is in `wanted`, or comes there on the way */
  async #replace(
    settings: RuleSettings,
    wanted: Map<string, PortObjects>,
    first: AsyncIterable<Part> | Iterable<Part>,
    opsAtOnce: number,
    nowMs: number,
    signal?: AbortSignal,
  ): Promise<WriteResult> {
    const { log } = this.#options;
    const refused: string[] = [];
    for (let round = 0; ; round++) {
      const result = await this.#replaceInParts(settings, round === 0 ? first : [wanted], opsAtOnce, nowMs, round === 0, signal);
      if (result.ok) return this.#accept(result.state, refused);
      const culprits = new Set(result.culprits);
      if (round === MAX_ROUNDS || culprits.size === 0 || culprits.has(undefined)) return result;
      for (const port of culprits) {
        wanted.delete(port!);
        refused.push(port!);
        log.error('The kernel refuses the rules of a Service port; it is left out', { port, error: result.error });
      }
    }
  }

  /**
   * The table is thrown away and written new; what does not fit into the first transaction follows in others. Each is
   * worked out while the kernel has the one before, and sent when that is through.
   */
  async #replaceInParts(
    settings: RuleSettings,
    ports: AsyncIterable<Part> | Iterable<Part>,
    opsAtOnce: number,
    nowMs: number,
    mayFallBack: boolean,
    signal?: AbortSignal,
  ): Promise<{ ok: true; state: TableState } | Refusal> {
    const { kernel, fallback, log } = this.#options;
    const state = emptyState();
    const through = async ({ ops, owners }: Plan, committed: Promise<CommitResult>): Promise<Refusal | null> => {
      const result = await committed;
      if (result.ok) return null;
      const other = mayFallBack && !OPEN_ENDS.has(result.error.code) ? await fallback?.commit(settings.family, ops, signal) : undefined;
      if (other?.ok !== true) return { ok: false, error: result.error, culprits: result.failedOps.map((index) => owners[index]) };
      log.warn('The kernel refused the rules as netlink messages and took them as text', { error: result.error });
      return null;
    };
    let isFirst = true;
    let last: Promise<Refusal | null> = Promise.resolve(null);
    let refusal: Refusal | null = null;
    try {
      for await (const part of partsOf(ports, opsAtOnce)) {
        // What is left is worked out all the same: without the culprits all are tried again.
        if (refusal !== null) continue;
        const plan = isFirst ? planReplace(settings, part) : planChanges(state, part);
        acceptChanges(state, part, plan, nowMs);
        isFirst = false;
        await kernel.prepare?.(settings.family, plan.ops);
        refusal = await last;
        if (refusal !== null) continue;
        last = through(plan, kernel.commit(settings.family, plan.ops, signal));
        // Heard of above or below.
        last.catch(() => {});
      }
    } catch (error) {
      // Nobody goes on, or ends, while the kernel still writes.
      await last.catch(() => {});
      throw error;
    }
    refusal ??= await last;
    return refusal ?? { ok: true, state };
  }

  #accept(state: TableState, refused: readonly string[]): WriteResult {
    this.#state = state;
    this.#refused = new Set(refused);
    return { ok: true, refused };
  }

  #observe(settings: RuleSettings, signal?: AbortSignal): Promise<Observed | 'absent' | 'unknown'> {
    return this.#readBack('The table cannot be read back', 'unknown', this.#options.kernel.observe(settings.family, signal));
  }

  /** What the kernel cannot tell is `unknown`, and a warning. */
  async #readBack<T>(warning: string, unknown: T, reading: Promise<T>): Promise<T> {
    try {
      return await reading;
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      this.#options.log.warn(warning, { error });
      return unknown;
    }
  }

  /** Deletes chains that were emptied at least a second ago. False when the kernel refused. */
  async deleteStale(
    family: RuleSettings['family'],
    beforeMs: number,
    signal?: AbortSignal,
  ): Promise<{ ok: true; deleted: number } | { ok: false; error: OpError }> {
    const plan = planCleanup(this.#state, beforeMs);
    if (plan.ops.length === 0) return { ok: true, deleted: 0 };
    const result = await this.#options.kernel.commit(family, plan.ops, signal);
    if (!result.ok) return result;
    acceptCleanup(this.#state, plan);
    return { ok: true, deleted: plan.ops.length };
  }

  #readGeneration(signal?: AbortSignal): Promise<number | null> {
    return this.#readBack('The generation of the tables cannot be read', null, this.#options.kernel.generation(signal));
  }

  /** Whether the kernel still has what was written; costs one message while nobody else changes any table. */
  async isIntact(settings: RuleSettings, signal?: AbortSignal): Promise<boolean> {
    const now = await this.#readGeneration(signal);
    if (now === null || now === this.#generation) return true;
    const observed = await this.#observe(settings, signal);
    if (observed === 'unknown') return true;
    if (observed === 'absent' || !this.#matches(settings, observed)) return false;
    if (!(await this.#hasAllRules(settings, signal))) return false;
    this.#generation = now;
    return true;
  }

  #ruleCounts(settings: RuleSettings, signal?: AbortSignal): Promise<ReadonlyMap<string, number> | null> {
    return this.#readBack('The rules cannot be read back', null, this.#options.kernel.ruleCounts(settings.family, signal));
  }

  /** Whether each chain has as many rules as were written, so that nobody emptied one; what they say is not read. */
  async #hasAllRules(settings: RuleSettings, signal?: AbortSignal): Promise<boolean> {
    const fixed = fixedTable(settings);
    const wanted = new Map([...fixed.chains, ...fixed.baseChains].map(({ name, rules }) => [name, rules.length]));
    for (const objects of this.#state.ports.values()) for (const [chain, rules] of objects.chains) wanted.set(chain, rules.length);
    let all = 0;
    wanted.forEach((count) => (all += count));
    const counts = all > (this.#options.rulesReadMax ?? RULES_READ_MAX) ? null : await this.#ruleCounts(settings, signal);
    return counts === null || [...wanted].every(([chain, count]) => (counts.get(chain) ?? 0) === count);
  }

  #matches(settings: RuleSettings, observed: Observed): boolean {
    const chains = new Set(observed.chains);
    const fixed = fixedTable(settings);
    if (![...fixed.chains, ...fixed.baseChains].every(({ name }) => chains.has(name))) return false;
    const addresses = observed.elements.get(sets.nodePortIPs.name);
    if ((addresses?.size ?? 0) !== fixed.nodePortElements.length || !fixed.nodePortElements.every(({ key }) => addresses?.has(key[0]!))) return false;
    for (const objects of this.#state.ports.values()) {
      for (const chain of objects.chains.keys()) if (!chains.has(chain)) return false;
      for (const set of objects.affinitySets) if (!observed.affinitySets.has(set.name)) return false;
    }
    const counts = new Map(SERVICE_SETS.map((set) => [set.name, 0]));
    const isThere = ({ set, element }: { set: SetSpec; element: Element }): boolean => {
      counts.set(set.name, (counts.get(set.name) ?? 0) + 1);
      return observed.elements.get(set.name)?.get(element.key.join(' . ')) === valueText(element);
    };
    for (const claims of this.#state.claims.values()) if (!isThere(holder(claims))) return false;
    for (const objects of this.#state.ports.values()) {
      for (const wanted of drawnElements(objects.drawn)) if (!isThere(wanted)) return false;
    }
    const strangers = observed.chains.filter((chain) => isServiceChain(chain) && !this.#state.stale.has(chain)).length;
    const ours = [...this.#state.ports.values()].reduce((sum, objects) => sum + objects.chains.size, 0);
    const maps = endpointMapsIn(observed).map(({ name }) => name);
    if (!maps.every((name) => this.#state.maps.has(name)) || maps.some((name) => !counts.has(name) && observed.elements.get(name)!.size > 0)) return false;
    return strangers === ours && [...counts].every(([name, count]) => (observed.elements.get(name)?.size ?? 0) === count);
  }
}
