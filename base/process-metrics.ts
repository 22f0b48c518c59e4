import { readdir, readFile } from 'node:fs/promises';
import { metricText, type Labels } from './metrics-text.ts';
import { kubernetesVersion } from './version.ts';

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

/** Which version this is, as every component of Kubernetes tells it. */
export function buildInfoText(): string {
  const [major = '', minor = ''] = kubernetesVersion.slice(1).split('.');
  const build = {
    ...{ build_date: '', compiler: 'node', git_commit: '', git_tree_state: '', git_version: kubernetesVersion },
    ...{ go_version: process.version, major, minor, platform: `${process.platform}/${process.arch === 'x64' ? 'amd64' : process.arch}` },
  };
  return one(
    'kubernetes_build_info',
    'gauge',
    "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
    1,
    build,
  );
}
