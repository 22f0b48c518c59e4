import { metricText, type Labels } from '../../base/metrics-text.ts';
import { buildInfoText } from '../../base/process-metrics.ts';
import { featureGates, gateEnabled } from '../../base/feature-gates.ts';

const one = (name: string, kind: 'counter' | 'gauge', help: string, value: number, labels: Labels = {}): string =>
  metricText(name, kind, help, [{ labels, value }]);

const stageLabels = { Alpha: 'ALPHA', Beta: 'BETA', GA: '', Deprecated: 'DEPRECATED' } as const;

/** What every component of Kubernetes tells of itself: its version, its gates, how many metrics it has. */
export function componentText(wanted: Readonly<Record<string, boolean>>): string {
  const gates = [...featureGates].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return [
    buildInfoText(),
    metricText(
      'kubernetes_feature_enabled',
      'gauge',
      '[BETA] This metric records the data about the stage and enablement of a k8s feature.',
      gates.map(([name, { stage }]) => ({ labels: { name, stage: stageLabels[stage] }, value: gateEnabled(wanted, name) ? 1 : 0 })),
    ),
    one('kubelet_metrics_provider', 'gauge', "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'", 1, {
      provider: gateEnabled(wanted, 'PodAndContainerStatsFromCRI') ? 'cri' : 'cadvisor',
    }),
    one(
      'rest_client_exec_plugin_ttl_seconds',
      'gauge',
      '[ALPHA] Gauge of the shortest TTL (time-to-live) of the client certificate(s) managed by the auth exec plugin. The value is in seconds until certificate expiry (negative if already expired). If auth exec plugins are unused or manage no TLS certificates, the value will be +INF.',
      Number.POSITIVE_INFINITY,
    ),
    one('disabled_metrics_total', 'counter', '[BETA] The count of disabled metrics.', 0),
    one('hidden_metrics_total', 'counter', '[BETA] The count of hidden metrics.', 0),
  ].join('');
}

/** How many metrics a page shows, by what is promised of them. */
export function registeredText(page: string): string {
  const counts: Record<string, number> = {};
  for (const [, level = ''] of page.matchAll(/^# HELP \S+ \[([A-Z]+)\]/gm)) counts[level] = (counts[level] ?? 0) + 1;
  const samples = Object.entries(counts).map(([level, value]) => ({ labels: { deprecated_version: '', stability_level: level }, value }));
  return metricText(
    'registered_metrics_total',
    'counter',
    '[BETA] The count of registered metrics broken by stability level and deprecation version.',
    samples,
  );
}
