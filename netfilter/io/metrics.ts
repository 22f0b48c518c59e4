/** Prometheus metrics, text format 0.0.4. Only what the proxy exports. */

export type Labels = Readonly<Record<string, string>>;

interface Family {
  name: string;
  help: string;
  type: 'counter' | 'gauge' | 'histogram';
  buckets: readonly number[];
  series: Map<string, Series>;
}

interface Series {
  labels: Labels;
  value: number;
  counts: number[];
  sum: number;
}

function labelText(labels: Labels, extra = ''): string {
  const parts = Object.entries(labels).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  if (extra !== '') parts.push(extra);
  return parts.length === 0 ? '' : `{${parts.join(',')}}`;
}

function familyText(family: Family): string {
  const lines = [`# HELP ${family.name} [ALPHA] ${family.help}`, `# TYPE ${family.name} ${family.type}`];
  for (const { labels, value, counts, sum } of family.series.values()) {
    if (family.type !== 'histogram') {
      lines.push(`${family.name}${labelText(labels)} ${value}`);
      continue;
    }
    let total = 0;
    for (const [index, bucket] of family.buckets.entries()) {
      total += counts[index] ?? 0;
      lines.push(`${family.name}_bucket${labelText(labels, `le="${bucket}"`)} ${total}`);
    }
    lines.push(
      `${family.name}_bucket${labelText(labels, 'le="+Inf"')} ${value}`,
      `${family.name}_sum${labelText(labels)} ${sum}`,
      `${family.name}_count${labelText(labels)} ${value}`,
    );
  }
  return `${lines.join('\n')}\n`;
}

export class Metrics {
  readonly #families = new Map<string, Family>();

  #series(name: string, labels: Labels): Series {
    const family = this.#families.get(name);
    if (family === undefined) throw new Error(`metric ${name} is not declared`);
    const key = JSON.stringify(labels);
    let series = family.series.get(key);
    if (series === undefined) {
      series = { labels, value: 0, counts: family.buckets.map(() => 0), sum: 0 };
      family.series.set(key, series);
    }
    return series;
  }

  declare(type: Family['type'], name: string, help: string, buckets: readonly number[] = []): void {
    this.#families.set(name, { name, help, type, buckets, series: new Map() });
  }

  set(name: string, value: number, labels: Labels = {}): void {
    this.#series(name, labels).value = value;
  }

  add(name: string, value = 1, labels: Labels = {}): void {
    this.#series(name, labels).value += value;
  }

  observe(name: string, value: number, labels: Labels = {}): void {
    const series = this.#series(name, labels);
    series.value += 1;
    series.sum += value;
    const bucket = this.#families.get(name)!.buckets.findIndex((limit) => value <= limit);
    if (bucket >= 0) series.counts[bucket]! += 1;
  }

  value(name: string, labels: Labels = {}): number {
    return this.#families.get(name)?.series.get(JSON.stringify(labels))?.value ?? 0;
  }

  text(): string {
    return [...this.#families.values()]
      .filter((family) => family.series.size > 0)
      .sort((a, b) => (a.name < b.name ? -1 : 1))
      .map(familyText)
      .join('');
  }
}

function exponential(start: number, factor: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => start * factor ** index);
}

function linear(start: number, width: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => start + width * index);
}

/** What the kernel's named counters say, asked when somebody looks. */
export const DROPPED_INVALID = 'kubeproxy_iptables_ct_state_invalid_dropped_packets_total';
export const ACCEPTED_LOCALHOST = 'kubeproxy_iptables_localhost_nodeports_accepted_packets_total';

/** Of node ports on loopback addresses in nftables mode. */
export const LISTENERS = 'kubeproxy_nftables_localhost_nodeport_listeners';
export const LISTENER_FAILURES = 'kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total';
export const REJECTED_LOCALHOST = 'kubeproxy_nftables_localhost_nodeport_rejected_packets_total';

/** All metrics of the proxy under upstream's names. */
export function proxyMetrics(): Metrics {
  const metrics = new Metrics();
  const sync = exponential(0.001, 2, 15);
  metrics.declare('histogram', 'kubeproxy_sync_proxy_rules_duration_seconds', 'SyncProxyRules latency in seconds', sync);
  metrics.declare('histogram', 'kubeproxy_sync_full_proxy_rules_duration_seconds', 'SyncProxyRules latency in seconds for full resyncs', sync);
  metrics.declare('histogram', 'kubeproxy_sync_partial_proxy_rules_duration_seconds', 'SyncProxyRules latency in seconds for partial resyncs', sync);
  metrics.declare('gauge', 'kubeproxy_sync_proxy_rules_last_timestamp_seconds', 'The last time proxy rules were successfully synced');
  metrics.declare('gauge', 'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds', 'The last time a sync of proxy rules was queued');
  metrics.declare('histogram', 'kubeproxy_network_programming_duration_seconds', 'In Cluster Network Programming Latency in seconds', [
    ...linear(0.25, 0.25, 2),
    ...linear(1, 1, 59),
    ...linear(60, 5, 12),
    ...linear(120, 30, 7),
  ]);
  for (const kind of ['endpoint', 'service']) {
    const word = kind === 'endpoint' ? 'Endpoint' : 'Service';
    metrics.declare('gauge', `kubeproxy_sync_proxy_rules_${kind}_changes_pending`, `Pending proxy rules ${word} changes`);
    metrics.declare('counter', `kubeproxy_sync_proxy_rules_${kind}_changes_total`, `Cumulative proxy rules ${word} changes`);
    metrics.set(`kubeproxy_sync_proxy_rules_${kind}_changes_pending`, 0);
    metrics.add(`kubeproxy_sync_proxy_rules_${kind}_changes_total`, 0);
  }
  metrics.declare('counter', 'kubeproxy_sync_proxy_rules_nftables_sync_failures_total', 'Cumulative proxy nftables sync failures');
  metrics.declare('counter', 'kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total', 'Cumulative proxy nftables cleanup failures');
  metrics.declare('counter', 'kubeproxy_sync_proxy_rules_iptables_restore_failures_total', 'Cumulative proxy iptables restore failures');
  metrics.declare('counter', 'kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total', 'Cumulative proxy iptables partial restore failures');
  metrics.declare('gauge', 'kubeproxy_sync_proxy_rules_iptables_last', 'Number of iptables rules written by kube-proxy in last sync');
  metrics.declare('gauge', 'kubeproxy_sync_proxy_rules_iptables_total', 'Total number of iptables rules owned by kube-proxy');
  metrics.declare('gauge', 'kubeproxy_sync_proxy_rules_no_local_endpoints_total', 'Number of services with a Local traffic policy and no endpoints');
  metrics.declare('counter', DROPPED_INVALID, 'packets dropped by iptables to work around conntrack problems');
  metrics.declare('counter', ACCEPTED_LOCALHOST, 'Number of packets accepted on nodeports of loopback interface');
  metrics.declare('gauge', LISTENERS, 'Number of active localhost NodePort userspace proxy listeners.');
  metrics.declare('counter', LISTENER_FAILURES, 'Number of localhost NodePort userspace proxy listener creation failures.');
  metrics.declare(
    'counter',
    REJECTED_LOCALHOST,
    'Number of packets rejected on localhost NodePorts. UDP and SCTP are always rejected; TCP is rejected when the localhost NodePort proxy is not running',
  );
  metrics.declare('counter', 'kubeproxy_proxy_healthz_total', 'Cumulative proxy healthz HTTP status');
  metrics.declare('counter', 'kubeproxy_proxy_livez_total', 'Cumulative proxy livez HTTP status');
  metrics.declare('histogram', 'kubeproxy_conntrack_reconciler_sync_duration_seconds', 'ReconcileConntrackFlowsLatency latency in seconds', sync);
  metrics.declare('counter', 'kubeproxy_conntrack_reconciler_deleted_entries_total', 'Cumulative conntrack flows deleted by conntrack reconciler');
  return metrics;
}
