import type { Event, Pod } from '../../../proto/kube/types.ts';
import { readFile } from 'node:fs/promises';
import { NAMESPACE } from './pods.ts';
import type { Lab } from './lab.ts';

const lines = (text: string): string[] => text.split('\n').filter((line) => line !== '');

/** Names, kinds, modes and owners of everything below a folder; a link with where it leads. */
async function tree(lab: Lab, folder: string): Promise<string[]> {
  const text = await lab.inNode(`test ! -e ${folder} || find ${folder} -printf '%p %y %m %U:%G %l\\n'`);
  return lines(text)
    .map((line) => line.trimEnd())
    .sort();
}

/** What a kubelet keeps of itself on disk. */
const STATE_FILES = ['cpu_manager_state', 'memory_manager_state', 'dra_manager_state', 'allocated_pods_state', 'actuated_pods_state'];
/** What of a cgroup says what the kubelet made of the pod's resources. */
const CGROUP_FILES = [
  'cpu.shares',
  'cpu.cfs_quota_us',
  'cpu.cfs_period_us',
  'memory.limit_in_bytes',
  'memory.oom.group',
  'pids.max',
  'cpu.weight',
  'cpu.max',
  'memory.max',
  'memory.min',
  'hugetlb.2MB.limit_in_bytes',
];

async function cgroups(lab: Lab, uid: string): Promise<Record<string, string>> {
  const slashed = [uid, uid.replaceAll('-', '_')].map((text) => `-path "*pod${text}*"`).join(' -o ');
  const files = CGROUP_FILES.map((name) => `-name ${name}`).join(' -o ');
  const text = await lab.inNode(
    `find -L /sys/fs/cgroup -maxdepth 8 -type f \\( ${slashed} \\) \\( ${files} \\) 2>/dev/null | while read -r f; do echo "$f $(cat "$f" 2>/dev/null)"; done`,
  );
  const out: Record<string, string> = {};
  for (const line of lines(text).sort()) {
    const at = line.indexOf(' ');
    const [, , , , controller = '', ...rest] = line.slice(0, at).split('/');
    // The node's own cgroup stands before, and co-mounted controllers have two names.
    const path = rest.slice(rest.findIndex((part) => part.startsWith('kubepods'))).join('/');
    out[`${controller.split(',').sort()[0]}: ${path}`] = line.slice(at + 1);
  }
  return out;
}

async function inside(lab: Lab, name: string, container: string): Promise<Record<string, string[]>> {
  const read = async (path: string): Promise<string> => lab.kubectl(['exec', '-n', NAMESPACE, name, '-c', container, '--', 'cat', path]);
  return {
    environment: (await read('/proc/1/environ')).split('\0').filter((entry) => entry !== ''),
    hosts: lines(await read('/etc/hosts')),
    'resolv.conf': lines(await read('/etc/resolv.conf')),
    hostname: lines(await read('/etc/hostname')),
  };
}

/** What can be seen of a pod while it runs. */
export async function lookAtPod(lab: Lab, pod: Pod): Promise<Record<string, unknown>> {
  const { name = '', uid = '' } = pod.metadata;
  const root = `/var/lib/kubelet/pods/${uid}`;
  const running = (pod.status?.containerStatuses ?? []).find((status) => status.state?.running !== undefined && status.name === 'main');
  const state: Record<string, unknown> = {};
  for (const file of STATE_FILES) {
    const text = await lab.inNode(`cat /var/lib/kubelet/${file} 2>/dev/null || true`);
    if (text !== '') state[file] = unfold(JSON.parse(text), uid);
  }
  return {
    podDirectory: await tree(lab, root),
    logDirectory: await tree(lab, `/var/log/pods/${NAMESPACE}_${name}_${uid}`),
    logLinks: (await tree(lab, '/var/log/containers')).filter((line) => line.includes(`/${name}_${NAMESPACE}_`)),
    kubeletRoot: await lab
      .inNode(`cd /var/lib/kubelet && find . -maxdepth 2 ! -path './pods/*' ! -path './pki/*' -printf '%p %y %m %U:%G\\n' | sort`)
      .then(lines),
    state,
    cgroups: await cgroups(lab, uid),
    inside: running === undefined ? null : await inside(lab, name, 'main'),
  };
}

/** JSON within JSON, as checkpoints are: opened, and of many pods only this one. The checksum is over all of it, so it is only there. */
function unfold(value: unknown, uid: string): unknown {
  if (value === null || typeof value !== 'object') return value;
  const out: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    if (/checksum/i.test(key)) out[key] = typeof inner;
    else if (typeof inner === 'string' && /^[[{]/.test(inner)) out[key] = unfold(JSON.parse(inner), uid);
    else if (key === 'entries' && inner !== null && typeof inner === 'object' && uid in inner) out[key] = { [uid]: (inner as Record<string, unknown>)[uid] };
    else out[key] = inner;
  }
  return out;
}

interface AuditLine {
  readonly verb: string;
  readonly user?: { username?: string };
  readonly objectRef?: { resource?: string; subresource?: string; namespace?: string; name?: string };
  readonly requestObject?: unknown;
  readonly responseStatus?: { code?: number };
  readonly requestReceivedTimestamp: string;
}

/** What the kubelet wrote about one pod, in order. Needs the audit policy of `cluster up --audit`. */
export async function writesOf(auditLog: string, pod: string, uid: string): Promise<object[]> {
  const found: AuditLine[] = [];
  for (const line of (await readFile(auditLog, 'utf8')).split('\n')) {
    if (!line.includes('"system:node:') || !line.includes(`"name":"${pod}"`) || !line.includes(uid)) continue;
    const entry = JSON.parse(line) as AuditLine;
    const { resource, namespace, name } = entry.objectRef ?? {};
    if (resource !== 'pods' || namespace !== NAMESPACE || name !== pod || !/^(create|update|patch|delete)$/.test(entry.verb)) continue;
    found.push(entry);
  }
  return found
    .sort((a, b) => (a.requestReceivedTimestamp < b.requestReceivedTimestamp ? -1 : 1))
    .map(({ verb, objectRef, requestObject, responseStatus }) => ({
      verb,
      resource: [objectRef?.resource, objectRef?.subresource].filter((part) => part !== undefined).join('/'),
      code: responseStatus?.code ?? 0,
      body: requestObject ?? null,
    }));
}

/** The Events of one pod from its kubelet, in order; those that come again once, with their number left out. */
export async function eventsOf(lab: Lab, uid: string): Promise<object[]> {
  const { items } = await lab.get<{ items: Event[] }>(['events', '-n', NAMESPACE, '--field-selector', `involvedObject.uid=${uid}`]);
  return items
    .filter(({ source, reportingComponent }) => (source?.component ?? reportingComponent) === 'kubelet')
    .sort((a, b) => (Number(a.metadata.resourceVersion) < Number(b.metadata.resourceVersion) ? -1 : 1))
    .map(({ type, reason, message, involvedObject, source, reportingComponent, reportingInstance }) => ({
      type,
      reason,
      message,
      fieldPath: involvedObject?.fieldPath ?? '',
      source,
      reportingComponent,
      reportingInstance,
    }));
}
