import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../base/clock.ts';
import { hasCode, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Family } from './core/ip.ts';
import { portKey } from './core/names.ts';
import type { NodePortAddresses, RuleSettings } from './core/settings.ts';
import type { PortRules } from './core/ruleset.ts';
import type { Topology } from './core/topology.ts';
import { localEndpoints, rulesFor, type HealthCheckPort, type World } from './core/world.ts';
import type { IPFamily, ProxyHealth } from './health.ts';
import type { Metrics } from './io/metrics.ts';

/**
 * Keeps one family's table equal to the world: gathers changes, writes at most once per minSyncPeriod, retries,
 * and looks from time to time whether somebody else changed the table. Each family runs by itself.
 */

/** Chains wait this long between being emptied and being deleted: kernels before 6.2 call them busy for a moment. */
export const STALE_MS = 1000;
/** Upstream rewrites everything about hourly. */
const FULL_SYNC_PERIOD_MS = 3_600_000;
const FIRST_RETRY_MS = 1000;
/** How many Services are worked out before the event loop gets its turn. */
const CHUNK = 50;

/** All rules by port, in parts, so that what is worked out already can be written while the rest is. */
export type RulesInParts = AsyncIterable<ReadonlyMap<string, PortRules>> | Iterable<ReadonlyMap<string, PortRules>>;

export async function gathered(rules: RulesInParts): Promise<ReadonlyMap<string, PortRules>> {
  const all = new Map<string, PortRules>();
  for await (const part of rules) for (const [port, one] of part) all.set(port, one);
  return all;
}

export type WriteResult = { ok: true; refused: readonly string[] } | { ok: false; error: OpError };

/** The one owner of a family's rules in the kernel. */
export interface ServiceTable {
  readonly portCount: number;
  /** So many endpoints that nothing is written whole without a reason, as upstream in iptables mode. */
  readonly isLarge: boolean;
  /** Chains that are empty and wait for their deletion. */
  readonly staleCount: number;
  /** Names of the counters of failed writes; `partial` where those of a part are counted by themselves. */
  readonly failureMetrics: { any: string; partial?: string };
  /** Writes changed ports only (null takes one out). On a failure nothing is lost that a whole write does not bring back. */
  writeChanges(family: Family, changes: ReadonlyMap<string, PortRules | null>, nowMs: number, signal?: AbortSignal): Promise<WriteResult>;
  /** Makes all rules right, whatever is there. Ports that the kernel refuses are left out and named. */
  writeWhole(settings: RuleSettings, rules: RulesInParts, nowMs: number, signal?: AbortSignal): Promise<WriteResult>;
  deleteStale(family: Family, beforeMs: number, signal?: AbortSignal): Promise<{ ok: true; deleted: number } | { ok: false; error: OpError }>;
  /** Whether the kernel still has what was written. */
  isIntact(settings: RuleSettings, signal?: AbortSignal): Promise<boolean>;
}

export interface FamilySyncOptions {
  world: World;
  table: ServiceTable;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  health: ProxyHealth;
  minSyncPeriodMs: number;
  syncPeriodMs: number;
  /** Default STALE_MS. */
  staleMs?: number;
  /** After the first failure; each further one doubles it. Default 1 s. */
  firstRetryMs?: number;
  /** Runs after each successful write; conntrack and the health ports follow the rules, never precede them. */
  afterSync: (result: SyncResult, signal?: AbortSignal) => Promise<void>;
}

export interface SyncResult {
  full: boolean;
  /** Whether any UDP port may have changed. */
  udp: boolean;
  /** The health-check node ports of the Services as they were written, and the addresses that take node ports. */
  healthChecks: readonly HealthCheckPort[];
  nodePorts: NodePortAddresses;
}

/** Why the next sync is due, as monotonic times. Infinity: not. */
interface Due {
  requestMs: number;
  retryMs: number;
  staleMs: number;
  checkMs: number;
}

export class FamilySync {
  readonly #options: FamilySyncOptions;
  #settings: RuleSettings;
  #topology: Topology;
  /** Of the settings by which was written last. */
  #nodePorts: NodePortAddresses;
  #ready = false;
  #dirty = new Set<string>();
  #needFull = true;
  #lastEndMs = -Infinity;
  #lastFullMs = -Infinity;
  #failures = 0;
  #busy = false;
  #due: Due = { requestMs: Infinity, retryMs: Infinity, staleMs: Infinity, checkMs: Infinity };
  #wake: () => void = () => {};
  /** What was worked out per Service port: which Service it is of, and whether policy Local leaves it without endpoints. */
  readonly #facts = new Facts();

  constructor(options: FamilySyncOptions, settings: RuleSettings, topology: Topology) {
    this.#options = options;
    this.#settings = settings;
    this.#topology = topology;
    this.#nodePorts = settings.nodePorts;
  }

  get family(): IPFamily {
    return this.#settings.family === 'ip' ? 'IPv4' : 'IPv6';
  }

  /** Whether everything heard so far is written, and what follows a write is done. */
  get isIdle(): boolean {
    return this.#ready && !this.#busy && this.#due.requestMs === Infinity && this.#failures === 0;
  }

  /** Services and slices have been heard in full: nothing is written before. */
  setReady(): void {
    this.#ready = true;
    this.request();
  }

  get #staleMs(): number {
    return this.#options.staleMs ?? STALE_MS;
  }

  /** Something about these Services may have changed. */
  changed(keys: readonly string[], triggerMs: number | null = null): void {
    if (keys.length === 0) return;
    for (const key of keys) this.#dirty.add(key);
    if (triggerMs !== null) this.#facts.triggers.push(triggerMs);
    if (this.#ready) this.request();
  }

  /** The node itself changed: every rule may have to change. */
  reconfigure(settings: RuleSettings, topology: Topology): void {
    this.#settings = settings;
    this.#topology = topology;
    this.#needFull = true;
    if (this.#ready) this.request();
  }

  request(): void {
    const { clock, metrics, health, minSyncPeriodMs } = this.#options;
    health.queued(this.family);
    metrics.set('kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds', clock.nowMs() / 1000, { ip_family: this.family });
    if (this.#due.requestMs !== Infinity) return;
    this.#due.requestMs = Math.max(clock.monoMs(), this.#lastEndMs + minSyncPeriodMs);
    this.#wake();
  }

  /** Syncs whenever something is due, until aborted. */
  async run(signal: AbortSignal): Promise<void> {
    this.#options.health.updated(this.family);
    const stop = (): void => this.#wake();
    signal.addEventListener('abort', stop);
    try {
      while (!signal.aborted) {
        const waitMs = Math.min(...Object.values(this.#due)) - this.#options.clock.monoMs();
        this.#busy = waitMs <= 0;
        if (waitMs > 0) await this.#waitFor(waitMs, signal);
        else await this.#runDue(signal);
      }
    } catch (error) {
      if (!hasCode(error, 'aborted')) throw error;
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }

  async #waitFor(ms: number, signal: AbortSignal): Promise<void> {
    if (signal.aborted) return;
    await new Promise<void>((resolve) => {
      const timer = ms === Infinity ? undefined : this.#options.clock.after(ms, resolve);
      this.#wake = () => {
        timer?.[Symbol.dispose]();
        resolve();
      };
    });
    this.#wake = () => {};
  }

  async #runDue(signal: AbortSignal): Promise<void> {
    const { clock, table, log } = this.#options;
    const now = clock.monoMs();
    const only = (name: keyof Due): boolean =>
      (Object.keys(this.#due) as (keyof Due)[]).every((other) => (other === name ? this.#due[other] <= now : this.#due[other] > now));
    if (this.#due.checkMs <= now) {
      const isAlone = only('checkMs');
      this.#due.checkMs = now + this.#options.syncPeriodMs;
      // What is due to be written whole will be right after that.
      if (this.#needFull || (await table.isIntact(this.#settings, signal))) {
        if (isAlone) return;
      } else {
        log.warn('Somebody else changed the table, it is repaired');
        this.#needFull = true;
        return await this.sync(signal);
      }
    }
    if (only('staleMs')) {
      await this.#deleteStale(signal);
      return;
    }
    await this.sync(signal);
  }

  /** One round, whether due or not. */
  async sync(signal?: AbortSignal): Promise<void> {
    if (!this.#ready) {
      this.#due.requestMs = Infinity;
      return;
    }
    const { clock, log, metrics, health } = this.#options;
    const startMs = clock.monoMs();
    this.#due.requestMs = Infinity;
    this.#due.retryMs = Infinity;
    await this.#deleteStale(signal);
    const dirty = this.#dirty;
    this.#dirty = new Set();
    for (const kind of ['service', 'endpoint']) metrics.set(`kubeproxy_sync_proxy_rules_${kind}_changes_pending`, 0);
    const triggers = this.#facts.triggers.splice(0);
    const full = this.#needFull || (startMs - this.#lastFullMs > FULL_SYNC_PERIOD_MS && !this.#options.table.isLarge);
    // Cleared before the write: what changes meanwhile asks for the next one.
    this.#needFull = false;
    const labels = { ip_family: this.family };
    const outcome = full ? await this.#writeWhole(signal) : await this.#writeChanges(dirty, signal);
    this.#lastEndMs = clock.monoMs();
    // What was asked for meanwhile waits its time from now on.
    if (this.#due.requestMs !== Infinity) this.#due.requestMs = this.#lastEndMs + this.#options.minSyncPeriodMs;
    const seconds = (this.#lastEndMs - startMs) / 1000;
    metrics.observe('kubeproxy_sync_proxy_rules_duration_seconds', seconds, labels);
    metrics.observe(`kubeproxy_sync_${full ? 'full' : 'partial'}_proxy_rules_duration_seconds`, seconds, labels);
    // Not after each: whoever always has something to write would never look.
    if (full || this.#due.checkMs === Infinity) this.#due.checkMs = this.#lastEndMs + this.#options.syncPeriodMs;
    if (this.#options.table.staleCount > 0) this.#due.staleMs = this.#lastEndMs + this.#staleMs;

    if (!outcome.ok) {
      if (hasCode(outcome.error, 'aborted')) throw outcome.error;
      for (const key of dirty) this.#dirty.add(key);
      this.#facts.triggers.unshift(...triggers);
      this.#failed(outcome.error);
      return;
    }
    this.#failures = 0;
    if (full) this.#lastFullMs = this.#lastEndMs;
    if (outcome.refused.length > 0) this.#due.retryMs = this.#lastEndMs + this.#options.syncPeriodMs;
    // The key of a port begins with that of its Service.
    for (const port of outcome.refused) this.#dirty.add(port.slice(0, port.indexOf(':')));
    for (const atMs of triggers) metrics.observe('kubeproxy_network_programming_duration_seconds', (clock.nowMs() - atMs) / 1000, labels);
    for (const policy of ['internal', 'external'] as const)
      metrics.set('kubeproxy_sync_proxy_rules_no_local_endpoints_total', this.#facts.withoutLocal(policy), { traffic_policy: policy, ...labels });
    health.updated(this.family);
    if (this.#due.requestMs !== Infinity) health.queued(this.family);
    metrics.set('kubeproxy_sync_proxy_rules_last_timestamp_seconds', clock.nowMs() / 1000, labels);
    log.debug(2, 'SyncProxyRules complete', { ipFamily: this.family, full, ports: this.#options.table.portCount, seconds: Number(seconds.toFixed(4)) });
    const udp = this.#facts.takeUdp();
    await this.#options.afterSync({ full, udp: full || udp, healthChecks: this.#facts.healthChecks, nodePorts: this.#nodePorts }, signal);
  }

  #failed(error: OpError): void {
    const { clock, log, metrics, syncPeriodMs, table } = this.#options;
    this.#failures += 1;
    this.#needFull = true;
    const delayMs = Math.min(syncPeriodMs, (this.#options.firstRetryMs ?? FIRST_RETRY_MS) * 2 ** (this.#failures - 1));
    this.#due.retryMs = clock.monoMs() + delayMs;
    metrics.add(table.failureMetrics.any, 1, { ip_family: this.family });
    log.error('Sync failed', { ipFamily: this.family, retryMs: delayMs, error });
  }

  async #deleteStale(signal?: AbortSignal): Promise<void> {
    const { clock, table, log, metrics } = this.#options;
    const now = clock.monoMs();
    this.#due.staleMs = Infinity;
    if (table.staleCount === 0) return;
    const result = await table.deleteStale(this.#settings.family, now - this.#staleMs, signal);
    if (!result.ok) {
      log.error('Unable to delete stale chains; will retry later', { ipFamily: this.family, error: result.error });
      metrics.add('kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total', 1, { ip_family: this.family });
    } else if (result.deleted > 0) {
      log.debug(2, 'Deleted stale chains', { ipFamily: this.family, chains: result.deleted });
    }
    if (table.staleCount > 0) this.#due.staleMs = clock.monoMs() + (result.ok ? this.#staleMs : this.#options.syncPeriodMs);
  }

  async #writeWhole(signal?: AbortSignal): Promise<WriteResult> {
    const { table, clock } = this.#options;
    this.#facts.clear();
    this.#nodePorts = this.#settings.nodePorts;
    return await table.writeWhole(this.#settings, this.#allRules(signal), clock.monoMs(), signal);
  }

  async *#allRules(signal?: AbortSignal): AsyncGenerator<ReadonlyMap<string, PortRules>> {
    let part = new Map<string, PortRules>();
    let count = 0;
    for (const key of this.#options.world.services.keys()) {
      this.#addRules(key, part);
      if (++count % CHUNK > 0) continue;
      yield part;
      part = new Map();
      await turn();
      if (signal?.aborted === true) throw new OpError('aborted', 'work the rules out', 'stopped by the caller');
    }
    yield part;
  }

  async #writeChanges(keys: ReadonlySet<string>, signal?: AbortSignal): Promise<WriteResult> {
    const { table, clock } = this.#options;
    const changes = new Map<string, PortRules | null>();
    let count = 0;
    for (const key of keys) {
      for (const port of this.#facts.portsOf(key)) changes.set(port, null);
      this.#addRules(key, changes);
      if (++count % CHUNK === 0) await turn();
    }
    const result = await table.writeChanges(this.#settings.family, changes, clock.monoMs(), signal);
    if (result.ok || hasCode(result.error, 'aborted')) return result;
    this.#options.log.warn('A partial write was refused, all is written again', { ipFamily: this.family, error: result.error });
    const { any, partial } = table.failureMetrics;
    for (const name of partial === undefined ? [any] : [any, partial]) this.#options.metrics.add(name, 1, { ip_family: this.family });
    return await this.#writeWhole(signal);
  }

  /** Works out the rules of one Service. */
  #addRules(key: string, to: Map<string, PortRules | null>): void {
    const { world } = this.#options;
    const rules = rulesFor(world, key, this.#settings.family, this.#topology);
    const ports = rules.map((rule) => portKey(rule.id));
    ports.forEach((port, index) => to.set(port, rules[index]!));
    this.#facts.note(key, ports, rules);
    const port = rules[0]?.healthCheckNodePort ?? 0;
    this.#facts.noteHealth(key, port === 0 ? null : { key, port, localEndpoints: localEndpoints(world, key, this.#topology.nodeName, this.#settings.family) });
  }
}

const NO_PORTS: readonly string[] = [];

/** Facts about Services that were worked out on the way to the rules. */
class Facts {
  readonly #ports = new Map<string, readonly string[]>();
  readonly #dropped = { internal: new Set<string>(), external: new Set<string>() };
  readonly #health = new Map<string, HealthCheckPort>();
  #udp = false;
  /** Wall-clock times of changes that await their sync. */
  readonly triggers: number[] = [];

  clear(): void {
    this.#ports.clear();
    this.#dropped.internal.clear();
    this.#dropped.external.clear();
    this.#health.clear();
  }

  noteHealth(key: string, check: HealthCheckPort | null): void {
    if (check === null) this.#health.delete(key);
    else this.#health.set(key, check);
  }

  get healthChecks(): readonly HealthCheckPort[] {
    return [...this.#health.values()];
  }

  note(key: string, ports: readonly string[], rules: readonly PortRules[]): void {
    this.portsOf(key).forEach((port) => {
      this.#dropped.internal.delete(port);
      this.#dropped.external.delete(port);
      if (port.endsWith('/udp')) this.#udp = true;
    });
    if (ports.length === 0) this.#ports.delete(key);
    else this.#ports.set(key, ports);
    ports.forEach((port, index) => {
      const rule = rules[index]!;
      if (rule.id.protocol === 'udp') this.#udp = true;
      if (rule.internal === 'drop') this.#dropped.internal.add(port);
      if (rule.external === 'drop') this.#dropped.external.add(port);
    });
  }

  portsOf(key: string): readonly string[] {
    return this.#ports.get(key) ?? NO_PORTS;
  }

  withoutLocal(policy: 'internal' | 'external'): number {
    return this.#dropped[policy].size;
  }

  takeUdp(): boolean {
    const udp = this.#udp;
    this.#udp = false;
    return udp;
  }
}
