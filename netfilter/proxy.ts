import type { Clock } from '../base/clock.ts';
import { hasCode } from '../base/errors.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { ProxyConfig } from './core/config.ts';
import type { Family } from './core/ip.ts';
import type { EndpointSliceObject, ServiceObject } from './core/model.ts';
import type { RuleSettings } from './core/settings.ts';
import { listensOnLoopback, settingsFor, TO_BE_DELETED_TAINT, topologyOf, type NodeObject } from './core/node.ts';
import { applyService, applySlice, emptyWorld, loopbackPorts, replaceServices, replaceSlices, udpPorts, type World } from './core/world.ts';
import type { ProxyHealth } from './health.ts';
import type { Conntrack } from './io/conntrack.ts';
import type { LoopbackPorts } from './io/loopback-ports.ts';
import type { Metrics } from './io/metrics.ts';
import type { HealthCheck, HealthPorts } from './io/servers.ts';
import { startWatching, TRIGGER_ANNOTATION, type Watching } from './io/watch.ts';
import { FamilySync, type ServiceTable, type SyncResult } from './sync.ts';

/** The Node and the ServiceCIDRs may be slow to appear or hidden from us; rules for Services do not wait longer for them. */
const NODE_WAIT_MS = 5000;

export interface ProxyOptions {
  config: ProxyConfig;
  nodeName: string;
  families: readonly Family[];
  /** The owner of a family's rules in the kernel, in the mode of the configuration. */
  createTable: (family: Family) => ServiceTable;
  conntrack: Conntrack;
  healthPorts: Pick<HealthPorts, 'update'>;
  /** Node ports on loopback addresses; absent where nobody serves them. */
  loopbackPorts?: LoopbackPorts;
  health: ProxyHealth;
  metrics: Metrics;
  clock: Clock;
  log: Log;
  /** Addresses of all interfaces, now. */
  machineAddresses: () => readonly string[];
  /** Runs once, when all families are written for the first time: what another mode left is in the way no longer. */
  afterFirstSync?: () => Promise<void>;
  /** How long emptied chains wait for their deletion; default 1 s. */
  staleMs?: number;
  /** How long after a failed write the next one follows; default 1 s, doubled each time. */
  firstRetryMs?: number;
}

/** Carries what the API server says to the families' tables. */
export class Proxy {
  readonly #options: ProxyOptions;
  readonly #world: World;
  readonly #families: readonly FamilySync[];
  readonly #startMs: number;
  #settings: RuleSettings[];
  #node: NodeObject | null = null;
  #serviceCIDRs: readonly string[] = [];
  #heard = { services: false, slices: false, node: false, cidrs: false };
  readonly #written = new Set<Family>();
  #isTakenOver = false;
  /** What each family serves by its last write: a load balancer that is told of endpoints finds the rules that lead there. */
  readonly #healthChecks = new Map<Family, readonly HealthCheck[]>();
  /** Health ports are opened and closed one update after the other. */
  #healthUpdates: Promise<void> = Promise.resolve();

  constructor(options: ProxyOptions) {
    this.#options = options;
    this.#world = emptyWorld(options.config);
    this.#startMs = options.clock.nowMs();
    this.#settings = this.#currentSettings();
    this.#families = this.#settings.map((settings) => {
      const { createTable, clock, log, metrics, health, config } = options;
      const syncOptions = {
        world: this.#world,
        table: createTable(settings.family),
        clock,
        log,
        metrics,
        health,
        minSyncPeriodMs: config.minSyncPeriodMs,
        syncPeriodMs: config.syncPeriodMs,
        ...(options.staleMs === undefined ? {} : { staleMs: options.staleMs }),
        ...(options.firstRetryMs === undefined ? {} : { firstRetryMs: options.firstRetryMs }),
        afterSync: (result: SyncResult) => this.#afterSync(settings.family, result),
      };
      return new FamilySync(syncOptions, settings, topologyOf(null, options.nodeName));
    });
  }

  #currentSettings(): RuleSettings[] {
    const { config, families, machineAddresses } = this.#options;
    const facts = { config, node: this.#node, machineAddresses: machineAddresses(), serviceCIDRs: this.#serviceCIDRs };
    return families.map((family) => settingsFor(family, facts));
  }

  /**
   * Runs until `signal` is aborted; leaves all rules in place.
   * @param watching where the API server is watched already
   */
  async run(api: KubeApi, signal: AbortSignal, watching?: Watching): Promise<void> {
    const { nodeName, log, clock } = this.#options;
    const nodeWait = clock.after(NODE_WAIT_MS, () => {
      this.#hear('node');
      this.#hear('cidrs');
    });
    const ending = new AbortController();
    const either = AbortSignal.any([signal, ending.signal]);
    const heard = watching ?? startWatching(api, nodeName, log, either);
    const parts: Promise<void>[] = [];
    try {
      const watched = heard.listen({
        services: (change, services) => this.#servicesChanged(change, services),
        slices: (change, slices) => this.#slicesChanged(change, slices),
        node: (node) => this.#nodeChanged(node),
        serviceCIDRs: (cidrs) => {
          this.#serviceCIDRs = cidrs;
          this.#reconfigure(false);
          this.#hear('cidrs');
        },
      });
      parts.push(watched, this.#watchAddresses(either), ...this.#families.map((family) => family.run(either)));
      await Promise.all(parts);
    } catch (error) {
      if (!hasCode(error, 'aborted')) throw error;
    } finally {
      nodeWait[Symbol.dispose]();
      // What is being written when all ends is still written, or given up, before those go who carry it. A part that
      // would go on after another's defect keeps the process, and with it whoever starts it again, waiting.
      ending.abort();
      heard[Symbol.dispose]();
      await Promise.allSettled(parts);
      await this.#healthUpdates;
    }
  }

  /** Whether all that was heard is in the kernel. */
  get isIdle(): boolean {
    return this.#families.every((family) => family.isIdle);
  }

  #hear(what: 'services' | 'slices' | 'node' | 'cidrs'): void {
    const before = Object.values(this.#heard).every(Boolean);
    this.#heard[what] = true;
    if (!before && Object.values(this.#heard).every(Boolean)) for (const family of this.#families) family.setReady();
  }

  #servicesChanged(change: 'all' | 'one' | 'gone', services: readonly ServiceObject[]): void {
    const keys = change === 'all' ? replaceServices(this.#world, services) : services.map((service) => applyService(this.#world, service, change === 'gone'));
    this.#count('service', services.length);
    for (const family of this.#families) family.changed(keys);
    if (change === 'all') this.#hear('services');
  }

  #slicesChanged(change: 'all' | 'one' | 'gone', slices: readonly EndpointSliceObject[]): void {
    this.#count('endpoint', slices.length);
    if (change === 'all') {
      const keys = replaceSlices(this.#world, slices);
      for (const family of this.#families) family.changed(keys);
      this.#hear('slices');
      return;
    }
    for (const slice of slices) {
      const keys = applySlice(this.#world, slice, change === 'gone');
      const triggerMs = Date.parse(slice.metadata.annotations?.[TRIGGER_ANNOTATION] ?? '');
      // What changed before we started was programmed late for reasons of its own.
      const known = change === 'one' && triggerMs >= this.#startMs;
      for (const family of this.#families) {
        const concerns = slice.addressType === family.family;
        if (concerns) family.changed(keys, known ? triggerMs : null);
      }
    }
  }

  #count(kind: 'service' | 'endpoint', count: number): void {
    this.#options.metrics.add(`kubeproxy_sync_proxy_rules_${kind}_changes_total`, count);
    this.#options.metrics.add(`kubeproxy_sync_proxy_rules_${kind}_changes_pending`, count);
  }

  #nodeChanged(node: NodeObject | null): void {
    const zoneBefore = topologyOf(this.#node, this.#options.nodeName).zone;
    // A Node object that is deleted and made anew does not take the node ports away meanwhile.
    this.#node = node ?? this.#node;
    this.#options.health.nodeChanged({
      exists: node !== null,
      deleting: node?.metadata.deletionTimestamp !== undefined,
      toBeDeleted: node?.spec?.taints?.some((taint) => taint.key === TO_BE_DELETED_TAINT) === true,
    });
    this.#reconfigure(zoneBefore !== topologyOf(this.#node, this.#options.nodeName).zone);
    this.#hear('node');
  }

  /** Works the settings out anew; a family whose settings changed is written anew. */
  #reconfigure(topologyChanged: boolean): void {
    const next = this.#currentSettings();
    for (const [index, settings] of next.entries()) {
      if (!topologyChanged && JSON.stringify(settings) === JSON.stringify(this.#settings[index])) continue;
      this.#options.log.debug(2, 'Settings of the rules changed', {
        ipFamily: settings.family,
        nodeIP: settings.nodeIP,
        nodePorts: settings.nodePorts,
        detector: settings.detector,
      });
      this.#settings[index] = settings;
      this.#families[index]!.reconfigure(settings, topologyOf(this.#node, this.#options.nodeName));
    }
  }

  /** Addresses come and go without any event that reaches us. */
  async #watchAddresses(signal: AbortSignal): Promise<void> {
    for (;;) {
      await this.#options.clock.sleep(this.#options.config.syncPeriodMs, signal);
      this.#reconfigure(false);
    }
  }

  async #afterSync(family: Family, result: SyncResult): Promise<void> {
    const { nodePorts } = result;
    const hosts = nodePorts.kind === 'all' ? [family === 'ip' ? '0.0.0.0' : '::'] : nodePorts.addresses;
    this.#healthChecks.set(
      family,
      result.healthChecks.map((check) => ({ ...check, hosts })),
    );
    this.#healthUpdates = this.#healthUpdates.then(() => this.#options.healthPorts.update([...this.#healthChecks.values()].flat()));
    await this.#healthUpdates;
    if (listensOnLoopback(this.#options.config, family))
      await this.#options.loopbackPorts?.update(family, loopbackPorts(this.#world, family, topologyOf(this.#node, this.#options.nodeName)));
    if (result.udp) await this.#cleanConntrack(family);
    this.#written.add(family);
    if (this.#written.size < this.#families.length || this.#isTakenOver) return;
    this.#isTakenOver = true;
    await this.#options.afterFirstSync?.();
  }

  async #cleanConntrack(family: Family): Promise<void> {
    const { conntrack, metrics, clock, log, machineAddresses } = this.#options;
    const ipFamily = family === 'ip' ? 'IPv4' : 'IPv6';
    const nodePorts = this.#settings.find((settings) => settings.family === family)!.nodePorts;
    const startMs = clock.monoMs();
    try {
      const deleted = await conntrack.deleteStale(
        family,
        udpPorts(this.#world, family),
        new Set(nodePorts.kind === 'all' ? machineAddresses() : nodePorts.addresses),
      );
      if (deleted > 0) log.info('Deleted stale UDP flows', { ipFamily, flows: deleted });
      metrics.add('kubeproxy_conntrack_reconciler_deleted_entries_total', deleted, { ip_family: ipFamily });
    } catch (error) {
      log.error('Failed to clear all conntrack entries', { ipFamily, error });
    }
    metrics.observe('kubeproxy_conntrack_reconciler_sync_duration_seconds', (clock.monoMs() - startMs) / 1000, { ip_family: ipFamily });
  }
}
