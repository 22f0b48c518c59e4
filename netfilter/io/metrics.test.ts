import assert from 'node:assert/strict';
import { test } from 'node:test';
import { proxyMetrics } from './metrics.ts';

/** What kube-proxy 1.37.2 has on Linux. */
const UPSTREAM = `
  conntrack_reconciler_deleted_entries_total conntrack_reconciler_sync_duration_seconds iptables_ct_state_invalid_dropped_packets_total
  iptables_localhost_nodeports_accepted_packets_total network_programming_duration_seconds
  nftables_localhost_nodeport_listener_creation_failures_total nftables_localhost_nodeport_listeners
  nftables_localhost_nodeport_rejected_packets_total proxy_healthz_total proxy_livez_total sync_full_proxy_rules_duration_seconds
  sync_partial_proxy_rules_duration_seconds sync_proxy_rules_duration_seconds sync_proxy_rules_endpoint_changes_pending
  sync_proxy_rules_endpoint_changes_total sync_proxy_rules_iptables_last sync_proxy_rules_iptables_partial_restore_failures_total
  sync_proxy_rules_iptables_restore_failures_total sync_proxy_rules_iptables_total sync_proxy_rules_last_queued_timestamp_seconds
  sync_proxy_rules_last_timestamp_seconds sync_proxy_rules_nftables_cleanup_failures_total sync_proxy_rules_nftables_sync_failures_total
  sync_proxy_rules_no_local_endpoints_total sync_proxy_rules_service_changes_pending sync_proxy_rules_service_changes_total
`;

test('every metric of upstream has its name here', () => {
  const metrics = proxyMetrics();
  const names = UPSTREAM.trim()
    .split(/\s+/)
    .map((name) => `kubeproxy_${name}`);
  for (const name of names) metrics.add(name, 1, { ip_family: 'IPv4' });
  const told = new Set([...metrics.text().matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name ?? ''));
  assert.deepEqual([...told].toSorted(), names.toSorted());
});
