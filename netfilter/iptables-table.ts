import { setImmediate as turn } from 'node:timers/promises';
import { hasCode, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Family } from './core/ip.ts';
import { applied, countRules, planChanges, planWhole, readSaved, type Restore, type SavedTable } from './core/iptables-plan.ts';
import { portChains, type IptablesOptions, type PortChains } from './core/iptables-service.ts';
import { CANARY, fixedRules, TABLES, type FixedRules } from './core/iptables-table.ts';
import type { PortRules } from './core/ruleset.ts';
import type { RuleSettings } from './core/settings.ts';
import type { Iptables } from './io/iptables.ts';
import type { Metrics } from './io/metrics.ts';
import type { ServiceTable, WriteResult } from './sync.ts';

const MAX_ROUNDS = 20;
/** Transactions for which the program is started once. */
const PARTS_AT_ONCE = 8;
/** From this many endpoints on, their rules go without comments, as upstream's. */
export const BRIEF_FROM_ENDPOINTS = 1000;
const PORTS_AT_A_STRETCH = 100;

export interface IptablesTableOptions extends IptablesOptions {
  iptables: Iptables;
  metrics: Metrics;
  log: Log;
}

/** The one owner of a family's rules in iptables: knows what it wrote and writes only the chains that change. */
export class IptablesTable implements ServiceTable {
  readonly failureMetrics = {
    any: 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total',
    partial: 'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total',
  };
  /** Chains that go are deleted in the same write. */
  readonly staleCount = 0;
  readonly #options: IptablesTableOptions;
  #ports = new Map<string, PortChains>();
  readonly #endpoints = new Map<string, number>();
  #endpointCount = 0;
  #settings: RuleSettings | null = null;
  #fixed: FixedRules = { chains: [], tails: new Map() };
  /** Ports the kernel refused in the last whole write. */
  #refused = new Set<string>();

  constructor(options: IptablesTableOptions) {
    this.#options = options;
  }

  get isLarge(): boolean {
    return this.#endpointCount > BRIEF_FROM_ENDPOINTS;
  }

  get portCount(): number {
    return this.#ports.size;
  }

  /** How a port's rules look depends on how many there are in all. */
  async #render(changes: ReadonlyMap<string, PortRules | null>, settings: RuleSettings): Promise<Map<string, PortChains | null>> {
    for (const [port, rules] of changes) {
      if (rules === null) this.#endpoints.delete(port);
      else this.#endpoints.set(port, rules.endpointCount);
    }
    this.#endpointCount = [...this.#endpoints.values()].reduce((sum, count) => sum + count, 0);
    const rendered = new Map<string, PortChains | null>();
    for (const [port, rules] of changes) {
      rendered.set(port, rules === null ? null : portChains(rules, settings, this.#options, this.isLarge));
      if (rendered.size % PORTS_AT_A_STRETCH === 0) await turn();
    }
    return rendered;
  }

  async writeChanges(family: Family, changes: ReadonlyMap<string, PortRules | null>, _nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    if (this.#settings === null) return { ok: false, error: new OpError('failed', 'write iptables rules', 'nothing is written yet') };
    const wanted = await this.#render(changes, this.#settings);
    const refused: string[] = [];
    for (;;) {
      const restore = planChanges(this.#ports, wanted, this.#fixed, this.#options.iptables.linesAtOnce);
      const result = await this.#write(family, restore, signal);
      if (result.ok) {
        this.#accept(family, applied(this.#ports, wanted), restore);
        for (const port of wanted.keys()) this.#refused.delete(port);
        return { ok: true, refused };
      }
      const { culprits } = result;
      if (culprits.size === 0 || ![...culprits].every((port) => port !== undefined && this.#refused.has(port) && wanted.has(port))) return result;
      for (const port of culprits) {
        wanted.delete(port!);
        refused.push(port!);
      }
    }
  }

  async writeWhole(settings: RuleSettings, ports: ReadonlyMap<string, PortRules>, _nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const { iptables, log } = this.#options;
    const { family } = settings;
    this.#endpoints.clear();
    const [rendered, saved] = await Promise.all([this.#render(ports, settings), this.#read(family, signal)]);
    if (saved instanceof OpError) return { ok: false, error: saved };
    const wanted = rendered as Map<string, PortChains>;
    const fixed = fixedRules(settings, this.#options);
    const refused: string[] = [];
    for (let round = 0; ; round++) {
      const restore = planWhole(wanted, fixed, saved, iptables.linesAtOnce);
      const result = await this.#write(family, restore, signal);
      if (result.ok) {
        this.#settings = settings;
        this.#fixed = fixed;
        this.#refused = new Set(refused);
        this.#accept(family, wanted, restore);
        return { ok: true, refused };
      }
      const { culprits } = result;
      if (round === MAX_ROUNDS || culprits.size === 0 || culprits.has(undefined)) return result;
      for (const port of culprits) {
        wanted.delete(port!);
        refused.push(port!);
        log.error('The kernel refuses the rules of a Service port; it is left out', { port, error: result.error });
      }
    }
  }

  /** What is there, as far as a whole write needs it. */
  async #read(family: Family, signal?: AbortSignal): Promise<Record<'filter' | 'nat', SavedTable> | OpError> {
    const { iptables } = this.#options;
    try {
      const [filter, nat] = await Promise.all([iptables.save(family, 'filter', signal), iptables.save(family, 'nat', signal)]);
      return { filter: readSaved(filter), nat: readSaved(nat) };
    } catch (error) {
      if (!(error instanceof OpError) || hasCode(error, 'aborted')) throw error;
      return error;
    }
  }

  async #write(
    family: Family,
    restore: Restore,
    signal?: AbortSignal,
  ): Promise<{ ok: true } | { ok: false; error: OpError; culprits: ReadonlySet<string | undefined> }> {
    const { iptables } = this.#options;
    for (const { text, owners } of restore.inputs(PARTS_AT_ONCE * iptables.linesAtOnce)) {
      const result = await iptables.restore(family, text, signal);
      if (!result.ok) return { ok: false, error: result.error, culprits: new Set(result.failedLines.map((line) => owners[line])) };
    }
    return { ok: true };
  }

  #accept(family: Family, ports: Map<string, PortChains>, written: Restore): void {
    this.#ports = ports;
    const counts = countRules(ports, this.#fixed);
    for (const table of ['filter', 'nat'] as const) {
      const labels = { ip_family: family === 'ip' ? 'IPv4' : 'IPv6', table };
      this.#options.metrics.set('kubeproxy_sync_proxy_rules_iptables_total', counts[table], labels);
      this.#options.metrics.set('kubeproxy_sync_proxy_rules_iptables_last', written.ruleCount(table), labels);
    }
  }

  async deleteStale(): Promise<{ ok: true; deleted: number }> {
    return { ok: true, deleted: 0 };
  }

  /** Whether nobody emptied one of the tables: the canary in it would be gone. */
  async isIntact(settings: RuleSettings, signal?: AbortSignal): Promise<boolean> {
    for (const table of TABLES) {
      if ((await this.#options.iptables.hasChain(settings.family, table, CANARY, signal)) === false) return false;
    }
    return true;
  }
}
