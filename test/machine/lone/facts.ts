import { readdir, readFile } from 'node:fs/promises';
import { exec } from '../../../base/exec.ts';
import type { Pod } from '../../../proto/kube/types.ts';
import type { Driver } from './node.ts';

const ROOT = '/sys/fs/cgroup';
/** What of a cgroup says what was made of a pod's resources, as far as the kernel has it. */
const FILES = [
  ...['cpu.weight', 'cpu.max', 'cpu.idle', 'memory.max', 'memory.high', 'memory.min', 'memory.low', 'memory.oom.group', 'memory.swap.max'],
  ...['pids.max', 'hugetlb.2MB.max', 'cgroup.subtree_control'],
];
/** What systemd knows of a slice. */
const PROPERTIES = [
  ...['Slice', 'Transient', 'DefaultDependencies', 'Wants', 'Delegate', 'CPUAccounting', 'MemoryAccounting', 'TasksAccounting', 'IOAccounting'],
  ...['CPUWeight', 'CPUQuotaPerSecUSec', 'CPUQuotaPeriodUSec', 'MemoryMax', 'TasksMax'],
];

/** Of one folder of cgroups and those below it: path from the hierarchy's root → file → contents. */
export type CgroupFacts = Record<string, Record<string, string>>;

/** Ids and UIDs that were made up for this run, and what stands for them. */
export type Stands = ReadonlyMap<string, string>;

async function below(path: string): Promise<string[]> {
  const entries = await readdir(`${ROOT}${path}`, { withFileTypes: true }).catch(() => []);
  const inner = await Promise.all(entries.filter((entry) => entry.isDirectory()).map((entry) => below(`${path}/${entry.name}`)));
  return [path, ...inner.flat()];
}

async function filesOf(path: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const name of FILES) {
    const text = await readFile(`${ROOT}${path}/${name}`, 'utf8').catch(() => null);
    if (text !== null) found[name] = text.trim();
  }
  return found;
}

function named(path: string, stands: Stands): string {
  let out = path;
  for (const [from, to] of stands) out = out.replaceAll(from, to);
  // The one that no status names.
  return out.replaceAll(/[0-9a-f]{64}/g, '<sandbox>');
}

/** The names that stand for what was made up for a pod. */
export function standsFor(pod: Pod): Stands {
  const uid = pod.metadata.uid ?? '';
  const { initContainerStatuses = [], containerStatuses = [] } = pod.status ?? {};
  const ids = [...initContainerStatuses, ...containerStatuses].flatMap(({ name, containerID = '', lastState }): [string, string][] => [
    [containerID.replace(/^.*:\/\//, ''), `<container ${name}>`],
    [lastState?.terminated?.containerID?.replace(/^.*:\/\//, '') ?? '', `<container ${name}>`],
  ]);
  return new Map<string, string>([[uid, '<pod uid>'], [uid.replaceAll('-', '_'), '<pod_uid>'], ...ids.filter(([id]) => id !== '')]);
}

/** The cgroup that all pods stand in. */
const podsRoot = (driver: Driver): string => (driver === 'systemd' ? '/kubepods.slice' : '/kubepods');

/** The cgroups of a pod and all in it, by names. */
export async function podFacts(driver: Driver, pod: Pod): Promise<CgroupFacts> {
  const uid = pod.metadata.uid ?? '';
  const stands = standsFor(pod);
  const paths = (await below(podsRoot(driver))).filter((path) => path.includes(uid) || path.includes(uid.replaceAll('-', '_')));
  const facts: CgroupFacts = {};
  for (const path of paths.sort()) facts[named(path, stands)] = await filesOf(path);
  return facts;
}

/** The cgroups of the classes of pods. */
export async function classFacts(driver: Driver): Promise<CgroupFacts> {
  const facts: CgroupFacts = {};
  for (const path of (await below(podsRoot(driver))).sort()) if (!/pod[0-9a-f]{8}[-_]/.test(path)) facts[path] = await filesOf(path);
  return facts;
}

/** What systemd says of slices, those named as podFacts or classFacts name them. */
export async function unitFacts(paths: readonly string[], pod: Pod | null): Promise<Record<string, Record<string, string>>> {
  const uid = (pod?.metadata.uid ?? '').replaceAll('-', '_');
  const found: Record<string, Record<string, string>> = {};
  for (const path of paths) {
    const unit = path.split('/').at(-1) ?? '';
    if (!unit.endsWith('.slice')) continue;
    const { stdout } = await exec(['systemctl', 'show', `--property=${PROPERTIES.join(',')}`, unit.replaceAll('<pod_uid>', uid)], {});
    const lines = stdout.split('\n').filter((line) => line.includes('='));
    found[unit] = Object.fromEntries(lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]));
  }
  return found;
}
