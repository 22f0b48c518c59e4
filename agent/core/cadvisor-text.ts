import type { Labels } from '../../base/metrics-text.ts';
import { groupMetrics, type DiskRow, type Group, type GroupFacts } from './cadvisor-groups.ts';
import type { DiskCounts } from './file-systems.ts';
import type { MachineFacts } from './node-status.ts';
import { family, podUsage, seconds, type NodeStatsFacts, type PodStatsFacts, type Row, type UsageFacts } from './stats.ts';

/** What the page tells beside what the runtime told: all of it was read from the kernel. */
export interface CadvisorFacts {
  /** By UID of a pod, id of a sandbox or container. */
  readonly groups: ReadonlyMap<string, GroupFacts>;
  /** The root, the cgroups above pods, and those of the node's own programs. */
  readonly above: readonly { readonly facts: GroupFacts; readonly madeAtMs: number }[];
  readonly fileSystems: readonly (Omit<DiskRow, 'labels'> & { readonly name: string; readonly counts: DiskCounts })[];
  readonly machine: MachineFacts;
  readonly cores: number;
  readonly sockets: number;
  /** Name of the image that sandboxes run; empty: not known. */
  readonly sandboxImage: string;
  readonly nowMs: number;
}

/** Something with series of its own: a cgroup, or a container of a runtime whose cgroups nobody knows. */
interface Subject {
  readonly labels: Labels;
  readonly facts: GroupFacts | undefined;
  /** From the runtime; null: it tells of no such thing. */
  readonly told: UsageFacts | null;
  readonly madeAtMs: number;
  readonly startedAtMs: number;
  readonly rootfsUsedBytes?: number | null;
}

/** Labels in the order of the alphabet, all of them always there. */
const labelsOf = (id: string, given: { container?: string; image?: string; name?: string; namespace?: string; pod?: string } = {}): Labels => ({
  container: given.container ?? '',
  id,
  image: given.image ?? '',
  name: given.name ?? '',
  namespace: given.namespace ?? '',
  pod: given.pod ?? '',
});

/** /metrics/cadvisor: the series that dashboards of pods are built on, under cAdvisor's names and labels. */
export function cadvisorMetrics(node: NodeStatsFacts, pods: readonly PodStatsFacts[], facts: CadvisorFacts): string {
  const { machine, nowMs } = facts;
  const subjects = [...above(node, facts), ...pods.flatMap((pod) => subjectsOf(pod, facts))];
  const groups = subjects.flatMap(({ labels, facts: own }): Group[] => (own === undefined ? [] : [{ labels, facts: own }]));
  const root = labelsOf('/');
  const each = (pick: (subject: Subject) => number | null | undefined): Row[] =>
    subjects.map((subject) => [subject.labels, pick(subject) ?? null, subject.facts?.atMs ?? subject.told?.atMs]);
  const plain = (pick: (subject: Subject) => number): Row[] => subjects.map((subject) => [subject.labels, Math.floor(pick(subject) / 1000)]);
  return [
    family(
      'cadvisor_version_info',
      'gauge',
      `A metric with a constant '1' value labeled by kernel version, OS version, docker version, cadvisor version & cadvisor revision.`,
      [[{ cadvisorRevision: '', cadvisorVersion: '', dockerVersion: '', kernelVersion: machine.kernelVersion, osVersion: machine.osImage }, 1]],
    ),
    family(
      'container_cpu_usage_seconds_total',
      'counter',
      'Cumulative cpu time consumed in seconds.',
      each(({ facts: own, told }) => seconds(own?.usage.cpuNanos ?? told?.cpuNanoSeconds ?? null)).map(([labels, value, atMs]) => [
        withLabel(labels, 'cpu', 'total'),
        value,
        atMs,
      ]),
    ),
    family(
      'container_memory_working_set_bytes',
      'gauge',
      'Current working set in bytes.',
      each(({ facts: own, told }) => own?.usage.workingSet ?? told?.memory.workingSetBytes),
    ),
    family(
      'container_memory_usage_bytes',
      'gauge',
      'Current memory usage in bytes, including all memory regardless of when it was accessed',
      each(({ facts: own, told }) => own?.usage.usage ?? told?.memory.usageBytes),
    ),
    family(
      'container_memory_rss',
      'gauge',
      'Size of RSS in bytes.',
      each(({ facts: own, told }) => own?.usage.rss ?? told?.memory.rssBytes),
    ),
    family(
      'container_memory_swap',
      'gauge',
      'Container swap usage in bytes.',
      each(({ facts: own, told }) => own?.usage.swap ?? told?.swapBytes),
    ),
    family(
      'container_creation_time_seconds',
      'gauge',
      'Container creation time since unix epoch in seconds.',
      plain(({ madeAtMs }) => madeAtMs),
    ),
    family(
      'container_start_time_seconds',
      'gauge',
      'Start time of the container since unix epoch in seconds.',
      plain(({ startedAtMs }) => startedAtMs),
    ),
    groupMetrics(
      groups,
      nowMs,
      [...facts.fileSystems.map(({ name, ...rest }) => ({ ...rest, labels: withLabel(root, 'device', name) }))],
      subjects.flatMap(({ labels, rootfsUsedBytes, told }): Row[] =>
        rootfsUsedBytes === undefined ? [] : [[withLabel(labels, 'device', ''), rootfsUsedBytes, told?.atMs]],
      ),
    ),
    family('container_scrape_error', 'gauge', '1 if there was an error while getting container metrics, 0 otherwise', [[{}, 0]]),
    machineMetrics(facts),
  ].join('');
}

/** The set with one more, still in the order of the alphabet. */
function withLabel(labels: Labels, name: string, value: string): Labels {
  return Object.fromEntries(Object.entries({ ...labels, [name]: value }).toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

function above(node: NodeStatsFacts, { above: found }: CadvisorFacts): Subject[] {
  const subject = ({ facts, madeAtMs }: CadvisorFacts['above'][number]): Subject => {
    const isRoot = facts.path === '/';
    const spec = { ...facts.usage.spec, memoryLimit: node.memoryBytes };
    const usage = {
      ...facts.usage,
      usage: facts.usage.usage ?? node.memory.usageBytes,
      workingSet: facts.usage.workingSet ?? node.memory.workingSetBytes,
      spec,
    };
    const startedAtMs = isRoot ? node.startedAtMs : madeAtMs;
    return { labels: labelsOf(facts.path), facts: isRoot ? { ...facts, usage } : facts, told: isRoot ? node : null, madeAtMs: startedAtMs, startedAtMs };
  };
  if (found.length > 0) return found.map(subject);
  return [{ labels: labelsOf('/'), facts: undefined, told: node, madeAtMs: node.startedAtMs, startedAtMs: node.startedAtMs }];
}

function subjectsOf(pod: PodStatsFacts, { groups, sandboxImage }: CadvisorFacts): Subject[] {
  const { namespace, name, sandboxId } = pod;
  const whole = groups.get(pod.uid);
  const path = whole?.path ?? `/kubepods/pod${pod.uid}`;
  const at = { madeAtMs: pod.startedAtMs, startedAtMs: pod.startedAtMs };
  const sandbox = groups.get(sandboxId);
  return [
    { labels: labelsOf(path, { namespace, pod: name }), facts: whole, told: podUsage(pod), ...at },
    ...(sandbox === undefined
      ? []
      : [{ labels: labelsOf(sandbox.path, { image: sandboxImage, name: sandboxId, namespace, pod: name }), facts: sandbox, told: null, ...at }]),
    ...pod.containers.map((container) => {
      const facts = groups.get(container.id);
      return {
        labels: labelsOf(facts?.path ?? `${path}/${container.id}`, {
          container: container.name,
          image: container.image,
          name: container.id,
          namespace,
          pod: name,
        }),
        facts,
        told: container,
        madeAtMs: container.createdAtMs,
        startedAtMs: container.startedAtMs,
        rootfsUsedBytes: container.rootfsUsedBytes,
      };
    }),
  ];
}

/** What cAdvisor tells of the machine itself. */
export function machineMetrics({ machine, cores, sockets }: Pick<CadvisorFacts, 'machine' | 'cores' | 'sockets'>): string {
  const labels = { boot_id: machine.bootID, machine_id: machine.machineID, system_uuid: machine.systemUUID };
  const one = (name: string, help: string, value: number): string => family(`machine_${name}`, 'gauge', help, [[labels, value]]);
  return [
    one('cpu_books', 'Number of CPU books.', 0),
    one('cpu_cores', 'Number of logical CPU cores.', machine.cpus),
    one('cpu_drawers', 'Number of CPU drawers.', 0),
    one('cpu_physical_cores', 'Number of physical CPU cores.', cores),
    one('cpu_sockets', 'Number of CPU sockets.', sockets),
    one('memory_bytes', 'Amount of memory installed on the machine.', machine.memoryBytes),
    one('nvm_avg_power_budget_watts', 'NVM power budget.', 0),
    family('machine_nvm_capacity', 'gauge', 'NVM capacity value labeled by NVM mode (memory mode or app direct mode).', [
      [withLabel(labels, 'mode', 'app_direct_mode'), 0],
      [withLabel(labels, 'mode', 'memory_mode'), 0],
    ]),
    family('machine_scrape_error', 'gauge', '1 if there was an error while getting machine metrics, 0 otherwise.', [[{}, 0]]),
    one('swap_bytes', 'Amount of swap memory available on the machine.', machine.swapBytes),
  ].join('');
}
