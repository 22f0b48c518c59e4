import { groupMetrics, type GroupFacts } from './cadvisor-groups.ts';
import { family, podUsage, seconds, type NodeStatsFacts, type PodStatsFacts, type Row, type UsageFacts } from './stats.ts';

/** /metrics/cadvisor: the series that dashboards of pods are built on, under cAdvisor's names and labels. */
export function cadvisorMetrics(
  node: NodeStatsFacts,
  pods: readonly PodStatsFacts[],
  groups: ReadonlyMap<string, GroupFacts> = new Map(),
  nowMs = node.atMs,
): string {
  const podPath = (pod: PodStatsFacts): string => groups.get(pod.uid)?.path ?? `/kubepods/pod${pod.uid}`;
  const containers = pods.flatMap((pod) =>
    pod.containers.map((container) => ({
      labels: {
        container: container.name,
        id: groups.get(container.id)?.path ?? `/kubepods/pod${pod.uid}/${container.id}`,
        image: container.image,
        name: container.id,
        namespace: pod.namespace,
        pod: pod.name,
      },
      facts: container,
    })),
  );
  const wholes = pods.flatMap((pod) => {
    const total = podUsage(pod);
    return total === null ? [] : [{ labels: { container: '', id: podPath(pod), image: '', name: '', namespace: pod.namespace, pod: pod.name }, facts: total }];
  });
  const grouped = [
    ...pods.map((pod) => ({
      labels: { container: '', id: podPath(pod), image: '', name: '', namespace: pod.namespace, pod: pod.name },
      facts: groups.get(pod.uid),
    })),
    ...containers.map(({ labels, facts }) => ({ labels, facts: groups.get(facts.id) })),
  ].flatMap(({ labels, facts }) => (facts === undefined ? [] : [{ labels, facts }]));
  const root = { labels: { container: '', id: '/', image: '', name: '', namespace: '', pod: '' }, facts: node };
  const all: { labels: Record<string, string>; facts: UsageFacts }[] = [root, ...wholes, ...containers];
  const each = (pick: (facts: UsageFacts) => number | null): Row[] => all.map(({ labels, facts }) => [labels, pick(facts), facts.atMs]);
  const nets = pods.flatMap((pod) =>
    pod.interfaces.map((net) => ({
      labels: { container: '', id: podPath(pod), image: '', interface: net.name, name: '', namespace: pod.namespace, pod: pod.name },
      net,
    })),
  );
  return [
    family(
      'container_cpu_usage_seconds_total',
      'counter',
      'Cumulative cpu time consumed in seconds.',
      all.map(({ labels, facts }) => [{ ...labels, cpu: 'total' }, seconds(facts.cpuNanoSeconds), facts.atMs]),
    ),
    family(
      'container_memory_working_set_bytes',
      'gauge',
      'Current working set in bytes.',
      each((facts) => facts.memory.workingSetBytes),
    ),
    family(
      'container_memory_usage_bytes',
      'gauge',
      'Current memory usage in bytes, including all memory regardless of when it was accessed',
      each((facts) => facts.memory.usageBytes),
    ),
    family(
      'container_memory_rss',
      'gauge',
      'Size of RSS in bytes.',
      each((facts) => facts.memory.rssBytes),
    ),
    family(
      'container_memory_swap',
      'gauge',
      'Container swap usage in bytes.',
      // A runtime tells of swap only where the machine has some.
      all.map(({ labels, facts }) => [labels, facts.swapBytes ?? groups.get(labels['name'] ?? '')?.usage.swap ?? null, facts.atMs]),
    ),
    family(
      'container_start_time_seconds',
      'gauge',
      'Start time of the container since unix epoch in seconds.',
      containers.map(({ labels, facts }) => [labels, facts.startedAtMs / 1000]),
    ),
    family(
      'container_fs_usage_bytes',
      'gauge',
      'Number of bytes that are consumed by the container on this filesystem.',
      containers.map(({ labels, facts }) => [labels, facts.rootfsUsedBytes, facts.atMs]),
    ),
    family(
      'container_network_receive_bytes_total',
      'counter',
      'Cumulative count of bytes received',
      nets.map(({ labels, net }) => [labels, net.rxBytes]),
    ),
    family(
      'container_network_receive_errors_total',
      'counter',
      'Cumulative count of errors encountered while receiving',
      nets.map(({ labels, net }) => [labels, net.rxErrors]),
    ),
    family(
      'container_network_transmit_bytes_total',
      'counter',
      'Cumulative count of bytes transmitted',
      nets.map(({ labels, net }) => [labels, net.txBytes]),
    ),
    family(
      'container_network_transmit_errors_total',
      'counter',
      'Cumulative count of errors encountered while transmitting',
      nets.map(({ labels, net }) => [labels, net.txErrors]),
    ),
    groupMetrics(grouped, nowMs),
    family('machine_cpu_cores', 'gauge', 'Number of logical CPU cores.', [[{}, node.cpus]]),
    family('machine_memory_bytes', 'gauge', 'Amount of memory installed on the machine.', [[{}, node.memoryBytes]]),
  ].join('');
}
