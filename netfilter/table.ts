import { hasCode, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import {
  acceptChanges,
  acceptCleanup,
  acceptWhole,
  emptyState,
  isServiceChain,
  planChanges,
  planCleanup,
  planRepair,
  planReplace,
  valueText,
  type Observed,
  type Plan,
  type TableState,
} from './core/diff.ts';
import { fixedTable, SERVICE_SETS } from './core/nft-table.ts';
import type { RuleSettings } from './core/settings.ts';
import { portObjects, type PortObjects } from './core/nft-service.ts';
import type { PortRules } from './core/ruleset.ts';
import type { NftKernel } from './io/kernel.ts';
import type { ServiceTable, WriteResult } from './sync.ts';

/** How many rounds of setting bad ports aside one write makes before it gives up. */
const MAX_ROUNDS = 20;

export interface TableOptions {
  kernel: NftKernel;
  /** Another way to write, for a kernel that does not take the first one's messages. */
  fallback: NftKernel | null;
  log: Log;
}

/**
 * The one owner of what is in a family's table: knows what it wrote, writes differences, repairs, and keeps one
 * port that the kernel refuses from holding up all others.
 */
export class Table implements ServiceTable<PortObjects> {
  readonly failureMetrics = { any: 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total' };
  readonly #options: TableOptions;
  #state: TableState = emptyState();
  /** Ports the kernel refused in the last whole write. They are tried again without making the others wait. */
  #refused = new Set<string>();
  /** The kernel's generation after our last write, while nobody else wrote since. */
  #generation: number | null = null;

  constructor(options: TableOptions) {
    this.#options = options;
  }

  get portCount(): number {
    return this.#state.ports.size;
  }

  get staleCount(): number {
    return this.#state.stale.size;
  }

  compile(rules: PortRules, settings: RuleSettings): PortObjects {
    return portObjects(rules, settings);
  }

  /** Writes changed ports only. When the kernel refuses one it took before, nothing is changed and a whole write is due. */
  async writeChanges(
    family: RuleSettings['family'],
    changes: ReadonlyMap<string, PortObjects | null>,
    nowMs: number,
    signal?: AbortSignal,
  ): Promise<WriteResult> {
    const wanted = new Map(changes);
    const refused: string[] = [];
    for (;;) {
      const plan = planChanges(this.#state, wanted);
      const result = await this.#options.kernel.commit(family, plan.ops, signal);
      if (result.ok) {
        acceptChanges(this.#state, wanted, plan.stale, nowMs);
        for (const port of wanted.keys()) this.#refused.delete(port);
        if (plan.ops.length > 0) await this.#noteGeneration(signal);
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

  /**
   * Makes the whole table right: repairs what can be read back, else replaces it in one transaction. Ports that
   * the kernel refuses are left out and named.
   */
  async writeWhole(settings: RuleSettings, ports: ReadonlyMap<string, PortObjects>, nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const { kernel, log } = this.#options;
    const observed = await this.#observe(settings, signal);
    if (typeof observed !== 'string') {
      const plan = planRepair(settings, ports, observed);
      const result = await kernel.commit(settings.family, plan.ops, signal);
      if (result.ok) return this.#accept(ports, plan, [], nowMs, signal);
      if (hasCode(result.error, 'aborted')) return result;
      log.warn('Repairing the table failed, it is written anew', { error: result.error });
    }
    const wanted = new Map(ports);
    const refused: string[] = [];
    for (let round = 0; ; round++) {
      const plan = planReplace(settings, wanted);
      const result = await kernel.commit(settings.family, plan.ops, signal);
      if (result.ok) return this.#accept(wanted, plan, refused, nowMs, signal);
      const other = round === 0 ? await this.#options.fallback?.commit(settings.family, plan.ops, signal) : undefined;
      if (other?.ok === true) {
        log.warn('The kernel refused the rules as netlink messages and took them as text', { error: result.error });
        return this.#accept(wanted, plan, refused, nowMs, signal);
      }
      const culprits = new Set(result.failedOps.map((index) => plan.owners[index]));
      if (round === MAX_ROUNDS || culprits.size === 0 || culprits.has(undefined)) return result;
      for (const port of culprits) {
        wanted.delete(port!);
        refused.push(port!);
        log.error('The kernel refuses the rules of a Service port; it is left out', { port, error: result.error });
      }
    }
  }

  async #accept(ports: ReadonlyMap<string, PortObjects>, plan: Plan, refused: readonly string[], nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    this.#state = acceptWhole(ports, plan.stale, nowMs);
    this.#refused = new Set(refused);
    this.#generation = null;
    await this.#noteGeneration(signal);
    return { ok: true, refused };
  }

  async #observe(settings: RuleSettings, signal?: AbortSignal): Promise<Observed | 'absent' | 'unknown'> {
    try {
      return await this.#options.kernel.observe(settings.family, signal);
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      this.#options.log.warn('The table cannot be read back', { error });
      return 'unknown';
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
    await this.#noteGeneration(signal);
    return { ok: true, deleted: plan.ops.length };
  }

  /** Each write of ours moves the generation by one; any other step was somebody else's. */
  async #noteGeneration(signal?: AbortSignal): Promise<void> {
    const before = this.#generation;
    const now = await this.#currentGeneration(signal);
    this.#generation = before === null || now === before + 1 ? now : null;
  }

  async #currentGeneration(signal?: AbortSignal): Promise<number | null> {
    try {
      return await this.#options.kernel.generation(signal);
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      this.#options.log.warn('The generation of the tables cannot be read', { error });
      return null;
    }
  }

  /** Whether the kernel still has what was written; costs one message while nobody else changes any table. */
  async isIntact(settings: RuleSettings, signal?: AbortSignal): Promise<boolean> {
    const now = await this.#currentGeneration(signal);
    if (now === null || now === this.#generation) return true;
    const observed = await this.#observe(settings, signal);
    if (observed === 'unknown') return true;
    if (observed === 'absent' || !this.#matches(settings, observed)) return false;
    this.#generation = now;
    return true;
  }

  #matches(settings: RuleSettings, observed: Observed): boolean {
    const chains = new Set(observed.chains);
    const fixed = fixedTable(settings);
    if (![...fixed.chains, ...fixed.baseChains].every(({ name }) => chains.has(name))) return false;
    for (const objects of this.#state.ports.values()) {
      for (const chain of objects.chains.keys()) if (!chains.has(chain)) return false;
      for (const set of objects.affinitySets) if (!observed.affinitySets.has(set.name)) return false;
    }
    const counts = new Map(SERVICE_SETS.map((set) => [set.name, 0]));
    for (const claims of this.#state.claims.values()) {
      const first = [...claims].reduce((a, b) => (b[0] < a[0] ? b : a))[1];
      const { set, element } = first;
      if (observed.elements.get(set.name)?.get(element.key.join(' . ')) !== valueText(element.verdict, element.comment)) return false;
      counts.set(set.name, (counts.get(set.name) ?? 0) + 1);
    }
    const strangers = observed.chains.filter((chain) => isServiceChain(chain) && !this.#state.stale.has(chain)).length;
    const ours = [...this.#state.ports.values()].reduce((sum, objects) => sum + objects.chains.size, 0);
    return strangers === ours && [...counts].every(([name, count]) => (observed.elements.get(name)?.size ?? 0) === count);
  }
}
