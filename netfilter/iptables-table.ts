import { text as textOf } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { hasCode, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Family } from './core/ip.ts';
import { applied, countRules, planChanges, planWhole, readSaved, WholePlan, type Restore, type SavedTable } from './core/iptables-plan.ts';
import { portChains, type IptablesOptions, type PortChains } from './core/iptables-service.ts';
import { CANARY, fixedRules, TABLES, type FixedRules } from './core/iptables-table.ts';
import type { PortRules } from './core/ruleset.ts';
import type { RuleSettings } from './core/settings.ts';
import type { Iptables } from './io/iptables.ts';
import type { Metrics } from './io/metrics.ts';
import type { RulesInParts, ServiceTable, WriteResult } from './sync.ts';

const MAX_ROUNDS = 20;
/** Transactions whose text is there at once: that of a large table is never there in whole. */
const PARTS_AT_ONCE = 8;
/** From this many endpoints on, their rules go without comments, as upstream's. */
export const BRIEF_FROM_ENDPOINTS = 1000;
/** What is shorter goes as one text. */
const AS_STREAM_FROM_LINES = 5000;
/** Worked out before the event loop gets its turn. */
const PORTS_AT_A_STRETCH = 20;

export interface IptablesTableOptions extends IptablesOptions {
  iptables: Iptables;
  metrics: Metrics;
  log: Log;
}

/** @param culprits the ports whose lines were refused; undefined stands for lines of no port */
type Written = { ok: true } | { ok: false; error: OpError; culprits: ReadonlySet<string | undefined> };

/** What one start of the program reads: planned while it runs, and a text only when it asks for more. */
class Feed implements AsyncIterable<string> {
  readonly #restore: Restore;
  /** Of each line that was read. */
  readonly #owners: (string | undefined)[] = [];
  #isWhole = false;
  /** Whether somebody asked for more than there is. */
  isRead = false;
  #more = Promise.withResolvers<void>();

  constructor(restore: Restore) {
    this.#restore = restore;
  }

  /** More may be complete. */
  planned(): void {
    this.#more.resolve();
  }

  /** Nothing more is planned. */
  end(): void {
    this.#restore.cut();
    this.#isWhole = true;
    this.planned();
  }

  ownersOf(lines: readonly number[]): ReadonlySet<string | undefined> {
    return new Set(lines.map((line) => this.#owners[line]));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string> {
    for (;;) {
      const input = this.#restore.take(PARTS_AT_ONCE);
      if (input !== null) {
        for (const owner of input.owners) this.#owners.push(owner);
        yield input.text;
      } else if (this.#isWhole) {
        this.isRead = true;
        return;
      } else {
        await this.#more.promise;
        this.#more = Promise.withResolvers();
      }
    }
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
      this.#endpointCount += (rules?.endpointCount ?? 0) - (this.#endpoints.get(port) ?? 0);
      if (rules === null) this.#endpoints.delete(port);
      else this.#endpoints.set(port, rules.endpointCount);
    }
  }

  /** All rules anew, as soon as it is known how those of any port look: when there are many endpoints, or all were seen. */
  async *#counted(rules: RulesInParts): AsyncGenerator<ReadonlyMap<string, PortRules>> {
    this.#endpoints.clear();
    this.#endpointCount = 0;
    let held: ReadonlyMap<string, PortRules>[] = [];
    for await (const part of rules) {
      this.#count(part);
      held.push(part);
      if (!this.isLarge) continue;
      yield* held;
      held = [];
    }
    yield* held;
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
    const { family } = settings;
    const fixed = fixedRules(settings, this.#options);
    const reading = this.#read(family, signal);
    const plan = new WholePlan(fixed, iptables.linesAtOnce);
    const wanted = new Map<string, PortChains>();
    const feed = new Feed(plan.restore);
    const writing = this.#feed(family, feed, feed, signal);
    // Heard of below; an end that comes before must not be one that nobody waits for.
    for (const begun of [reading, writing]) begun.catch(() => {});
    let saved: Awaited<typeof reading>;
    try {
      for await (const part of this.#counted(rules)) await this.#planPart(part, settings, plan, wanted, feed);
      saved = await reading;
      if (!(saved instanceof OpError)) plan.finish(wanted, saved);
    } finally {
      feed.end();
      // Nobody goes on, or ends, while the program still writes.
      await writing.catch(() => {});
    }
    const begun = await writing;
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

  async #planPart(part: ReadonlyMap<string, PortRules>, settings: RuleSettings, plan: WholePlan, wanted: Map<string, PortChains>, feed: Feed): Promise<void> {
    let count = 0;
    for (const [port, rules] of part) {
      const chains = portChains(rules, settings, this.#options, this.isLarge);
      wanted.set(port, chains);
      plan.add(port, chains);
      if (++count % PORTS_AT_A_STRETCH > 0) continue;
      // What is worked out already is written meanwhile.
      feed.planned();
      await turn();
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
    if (restore.isEmpty) return { ok: true };
    const isShort = restore.lineCount <= AS_STREAM_FROM_LINES;
    const feed = new Feed(restore);
    feed.end();
    return await this.#feed(family, feed, isShort ? await textOf(feed) : feed, signal);
  }

  /** @param input the feed, or all of it */
  async #feed(family: Family, feed: Feed, input: Feed | string, signal?: AbortSignal): Promise<Written> {
    const result = await this.#options.iptables.restore(family, input, signal);
    // It can end well when its input ends too soon, as when there was no descriptor left for it.
    if (result.ok && !feed.isRead) return { ok: false, error: new OpError('failed', 'write iptables rules', 'not all of it was read'), culprits: new Set() };
    return result.ok ? result : { ok: false, error: result.error, culprits: feed.ownersOf(result.failedLines) };
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
