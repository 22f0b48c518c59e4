import { readdir, readFile } from 'node:fs/promises';
import { metricText, type Labels } from '../core/metrics-text.ts';
import { featureGates, gateEnabled } from '../core/feature-gates.ts';
import { kubernetesVersion } from '../../base/version.ts';

const one = (name: string, kind: 'counter' | 'gauge', help: string, value: number, labels: Labels = {}): string =>
  metricText(name, kind, help, [{ labels, value }]);

/** The process metrics that every Go program has. */
export async function processText(startedSeconds: number): Promise<string> {
  const usage = process.resourceUsage();
  const read = (name: string): Promise<string> => readFile(`/proc/self/${name}`, 'utf8').catch(() => '');
  const [statm, limits, netstat, descriptors] = await Promise.all([
    read('statm'),
    read('limits'),
    read('net/netstat'),
    readdir('/proc/self/fd').catch(() => [] as string[]),
  ]);
  const [virtualPages = 0, residentPages = 0] = statm.split(' ').map(Number);
  const octets = ipOctets(netstat);
  return [
    ...eventLoopTexts(),
    one('process_cpu_seconds_total', 'counter', 'Total user and system CPU time spent in seconds.', (usage.userCPUTime + usage.systemCPUTime) / 1e6),
    one('process_max_fds', 'gauge', 'Maximum number of open file descriptors.', Number(/Max open files\s+(\d+)/.exec(limits)?.[1] ?? 0)),
    one('process_network_receive_bytes_total', 'counter', 'Number of bytes received by the process over the network.', octets.in),
    one('process_network_transmit_bytes_total', 'counter', 'Number of bytes sent by the process over the network.', octets.out),
    one('process_open_fds', 'gauge', 'Number of open file descriptors.', descriptors.length),
    one('process_resident_memory_bytes', 'gauge', 'Resident memory size in bytes.', residentPages * 4096),
    startTimeText(startedSeconds),
    one('process_virtual_memory_bytes', 'gauge', 'Virtual memory size in bytes.', virtualPages * 4096),
    // Unlimited is the largest number that Go's kernel call knows.
    one(
      'process_virtual_memory_max_bytes',
      'gauge',
      'Maximum amount of virtual memory available in bytes.',
      Number(/Max address space\s+(\d+)/.exec(limits)?.[1] ?? 2 ** 64),
    ),
  ].join('');
}

/** Stands on every page that upstream makes of a registry of its own. */
export function startTimeText(startedSeconds: number): string {
  return one('process_start_time_seconds', 'gauge', '[ALPHA] Start time of the process since unix epoch in seconds.', startedSeconds);
}

/** Bytes of the network namespace, which is what Go's collector takes for the process's. */
function ipOctets(netstat: string): { in: number; out: number } {
  const [names = [], values = []] = netstat
    .split('\n')
    .filter((line) => line.startsWith('IpExt:'))
    .map((line) => line.split(' '));
  const of = (name: string): number => Number(values[names.indexOf(name)] ?? 0);
  return { in: of('InOctets'), out: of('OutOctets') };
}

/** What this process alone has of JavaScript, under the names that Node's Prometheus clients use. */
function eventLoopTexts(): string[] {
  const active: Record<string, number> = {};
  for (const type of process.getActiveResourcesInfo()) active[type] = (active[type] ?? 0) + 1;
  const samples = Object.entries(active).map(([type, value]) => ({ labels: { type }, value }));
  return [
    metricText(
      'nodejs_active_resources',
      'gauge',
      'Number of active resources that are currently keeping the event loop alive, grouped by async resource type.',
      samples,
    ),
    one('nodejs_heap_size_used_bytes', 'gauge', 'Process heap size used from Node.js in bytes.', process.memoryUsage().heapUsed),
  ];
}

const stageLabels = { Alpha: 'ALPHA', Beta: 'BETA', GA: '', Deprecated: 'DEPRECATED' } as const;

/** What every component of Kubernetes tells of itself: its version, its gates, how many metrics it has. */
export function componentText(wanted: Readonly<Record<string, boolean>>): string {
  const [major = '', minor = ''] = kubernetesVersion.slice(1).split('.');
  const build = {
    ...{ build_date: '', compiler: 'node', git_commit: '', git_tree_state: '', git_version: kubernetesVersion },
    ...{ go_version: process.version, major, minor, platform: `${process.platform}/${process.arch === 'x64' ? 'amd64' : process.arch}` },
  };
  const gates = [...featureGates].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return [
    one(
      'kubernetes_build_info',
      'gauge',
      "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
      1,
      build,
    ),
    metricText(
      'kubernetes_feature_enabled',
      'gauge',
      '[BETA] This metric records the data about the stage and enablement of a k8s feature.',
      gates.map(([name, { stage }]) => ({ labels: { name, stage: stageLabels[stage] }, value: gateEnabled(wanted, name) ? 1 : 0 })),
    ),
    one('kubelet_metrics_provider', 'gauge', "[ALPHA] Metrics provider used by kubelet to collect container stats. Values can be 'cadvisor' and 'cri'", 1, {
      provider: 'cadvisor',
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
