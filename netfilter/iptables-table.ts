import { setImmediate as turn } from 'node:timers/promises';
import { hasCode, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Family } from './core/ip.ts';
import { applied, countRules, planChanges, planWhole, readSaved, WholePlan, type Restore, type RestoreInput, type SavedTable } from './core/iptables-plan.ts';
import { portChains, type IptablesOptions, type PortChains } from './core/iptables-service.ts';
import { CANARY, fixedRules, TABLES, type FixedRules } from './core/iptables-table.ts';
import type { PortRules } from './core/ruleset.ts';
import type { RuleSettings } from './core/settings.ts';
import type { Iptables } from './io/iptables.ts';
import type { Metrics } from './io/metrics.ts';
import { gathered, type RulesInParts, type ServiceTable, type WriteResult } from './sync.ts';

const MAX_ROUNDS = 20;
/** Transactions for which the program is started once. */
const PARTS_AT_ONCE = 8;
/** From this many endpoints on, their rules go without comments, as upstream's. */
export const BRIEF_FROM_ENDPOINTS = 1000;
/** Worked out before the event loop gets its turn. */
const PORTS_AT_A_STRETCH = 20;

export interface IptablesTableOptions extends IptablesOptions {
  iptables: Iptables;
  metrics: Metrics;
  log: Log;
}

/** @param culprits the ports whose lines were refused; undefined stands for lines of no port */
type Written = { ok: true } | { ok: false; error: OpError; culprits: ReadonlySet<string | undefined> };

/** Gives one input at a time to the program. After a failure nothing more is written. */
class Writer {
  readonly #iptables: Iptables;
  readonly #family: Family;
  readonly #signal: AbortSignal | undefined;
  #written: Promise<Written> = Promise.resolve({ ok: true });
  /** Whether an input is being written, or one was refused. */
  isBusy = false;

  constructor(iptables: Iptables, family: Family, signal: AbortSignal | undefined) {
    this.#iptables = iptables;
    this.#family = family;
    this.#signal = signal;
  }

  start(input: RestoreInput): void {
    this.isBusy = true;
    this.#written = this.#write(input);
    // Whoever waits for the end hears of it.
    this.#written.catch(() => {});
  }

  async #write({ text, owners }: RestoreInput): Promise<Written> {
    const result = await this.#iptables.restore(this.#family, text, this.#signal);
    if (!result.ok) return { ok: false, error: result.error, culprits: new Set(result.failedLines.map((line) => owners[line])) };
    this.isBusy = false;
    return { ok: true };
  }

  /** How what was started ended. Throws when aborted. */
  end(): Promise<Written> {
    return this.#written;
  }
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

  /** How a port's rules look depends on how many endpoints there are in all. */
  #count(changes: ReadonlyMap<string, PortRules | null>): void {
    for (const [port, rules] of changes) {
      if (rules === null) this.#endpoints.delete(port);
      else this.#endpoints.set(port, rules.endpointCount);
    }
    this.#endpointCount = 0;
    for (const count of this.#endpoints.values()) this.#endpointCount += count;
  }

  async #render(changes: ReadonlyMap<string, PortRules | null>, settings: RuleSettings): Promise<Map<string, PortChains | null>> {
    this.#count(changes);
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

  async writeWhole(settings: RuleSettings, rules: RulesInParts, _nowMs: number, signal?: AbortSignal): Promise<WriteResult> {
    const { iptables, log } = this.#options;
    // How each looks depends on all.
    const ports = await gathered(rules);
    const { family } = settings;
    this.#endpoints.clear();
    this.#count(ports);
    const fixed = fixedRules(settings, this.#options);
    const reading = this.#read(family, signal);
    // Heard of below; an end that comes before must not be one that nobody waits for.
    reading.catch(() => {});
    const plan = new WholePlan(fixed, iptables.linesAtOnce);
    const wanted = new Map<string, PortChains>();
    const writer = new Writer(iptables, family, signal);
    for (const [port, one] of ports) {
      const chains = portChains(one, settings, this.#options, this.isLarge);
      wanted.set(port, chains);
      plan.add(port, chains);
      if (wanted.size % PORTS_AT_A_STRETCH > 0) continue;
      await turn();
      // What is worked out already is written meanwhile.
      const ready = writer.isBusy ? null : plan.restore.take(PARTS_AT_ONCE);
      if (ready !== null) writer.start(ready);
    }
    const saved = await reading;
    if (!(saved instanceof OpError)) plan.finish(wanted, saved);
    const begun = await writer.end();
    if (saved instanceof OpError) return { ok: false, error: saved };
    let { restore } = plan;
    const refused: string[] = [];
    for (let round = 0; ; round++) {
      const result = round === 0 && !begun.ok ? begun : await this.#write(family, restore, signal);
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
      restore = planWhole(wanted, fixed, saved, iptables.linesAtOnce);
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

  async #write(family: Family, restore: Restore, signal?: AbortSignal): Promise<Written> {
    const { iptables } = this.#options;
    const writer = new Writer(iptables, family, signal);
    for (const input of restore.inputs(PARTS_AT_ONCE * iptables.linesAtOnce)) {
      writer.start(input);
      const result = await writer.end();
      if (!result.ok) return result;
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
