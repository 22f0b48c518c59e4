import type { Node, Pod } from '../../proto/kube/types.ts';
import { isTerminalPhase } from './status-phase.ts';
import { matchesTerm } from './node-selector.ts';
import type { Verdict } from './status.ts';
import { podRequests } from './qos.ts';
import { milliValueOf, valueOf } from './quantity.ts';

export interface AdmitInput {
  readonly pod: Pod;
  readonly node: Node;
  /** Every other pod that holds something of the node. */
  readonly others: readonly Pod[];
  /** Unsafe sysctls that this node allows, with `*` at the end for a prefix. */
  readonly allowedUnsafeSysctls: readonly string[];
}

/**
 * Whether the node takes the pod: null, or the reason and text that its Failed status gets. The scheduler has asked
 * the same; this is for what it could not know and for pods that were bound without it.
 */
export function admit(input: AdmitInput): Verdict | null {
  const { pod, node } = input;
  if (pod.spec.os !== undefined && pod.spec.os.name !== 'linux')
    return refuse('PodOSNotSupported', "Failed to admit pod as the OS field doesn't match node OS");
  const wantedOs = pod.metadata.labels?.['kubernetes.io/os'];
  if (wantedOs !== undefined && wantedOs !== 'linux')
    return refuse('PodOSSelectorNodeLabelDoesNotMatch', "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label");
  if (pod.spec.securityContext?.supplementalGroupsPolicy === 'Strict' && node.status?.features?.supplementalGroupsPolicy !== true) {
    return refuse('SupplementalGroupsPolicyNotSupported', 'SupplementalGroupsPolicy=Strict is not supported in this node');
  }
  return sysctlProblem(input) ?? resourceProblem(input) ?? placeProblem(pod, node) ?? portProblem(input) ?? taintProblem(pod, node);
}

function refuse(reason: string, message: string): Verdict {
  return { reason, message };
}

function predicate(name: string, why: string): Verdict {
  return refuse(name, `Predicate ${name} failed: ${why}`);
}

function resourceProblem(input: AdmitInput): Verdict | null {
  const { pod, node } = input;
  const others = input.others.filter((other) => !isTerminalPhase(other.status?.phase));
  const allocatable = node.status?.allocatable ?? {};
  const podsAllowed = Number(valueOf(allocatable['pods']));
  const lacking = (name: string, requested: bigint | number, used: bigint | number, capacity: bigint | number): Verdict =>
    refuse(`OutOf${name}`, `Node didn't have enough resource: ${name}, requested: ${requested}, used: ${used}, capacity: ${capacity}`);
  if (others.length + 1 > podsAllowed) return lacking('pods', 1, others.length, podsAllowed);
  const wanted = podRequests(pod);
  for (const name of inOrder([...wanted.keys()])) {
    const requested = amountOf(name, wanted.get(name)!.nano);
    if (requested === 0n) continue;
    // A resource the node does not know is a cluster-level one, and none of its business.
    if (allocatable[name] === undefined && name.includes('/')) continue;
    const used = others.reduce((sum, other) => sum + amountOf(name, podRequests(other).get(name)?.nano ?? 0n), 0n);
    const capacity = name === 'cpu' ? milliValueOf(allocatable[name]) : valueOf(allocatable[name]);
    if (requested > capacity - used) return lacking(name, requested, used, capacity);
  }
  return null;
}

function inOrder(names: readonly string[]): string[] {
  const first = ['cpu', 'memory', 'ephemeral-storage'];
  const place = (name: string): number => (first.includes(name) ? first.indexOf(name) : first.length);
  return names.toSorted((left, right) => place(left) - place(right) || (left < right ? -1 : 1));
}

function amountOf(name: string, nano: bigint): bigint {
  const unit = name === 'cpu' ? 1_000_000n : 1_000_000_000n;
  return (nano + unit - 1n) / unit;
}

/** nodeSelector and required node affinity, as they are now: both only count before a pod starts. */
function placeProblem(pod: Pod, node: Node): Verdict | null {
  const labels = node.metadata.labels ?? {};
  const selected = Object.entries(pod.spec.nodeSelector ?? {}).every(([key, value]) => labels[key] === value);
  const required = pod.spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  const affine = required === undefined || (required.nodeSelectorTerms ?? []).some((term) => matchesTerm(term, labels, node.metadata.name ?? ''));
  return selected && affine ? null : predicate('NodeAffinity', "node(s) didn't match Pod's node affinity/selector");
}

function portProblem(input: AdmitInput): Verdict | null {
  const taken = input.others.filter((other) => !isTerminalPhase(other.status?.phase)).flatMap(hostPorts);
  const clash = hostPorts(input.pod).some((own) =>
    taken.some(
      (other) => own.port === other.port && own.protocol === other.protocol && (own.ip === other.ip || own.ip === '0.0.0.0' || other.ip === '0.0.0.0'),
    ),
  );
  return clash ? predicate('NodePorts', "node(s) didn't have free ports for the requested pod ports") : null;
}

function hostPorts(pod: Pod): { port: number; protocol: string; ip: string }[] {
  const sidecars = (pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
  return [...pod.spec.containers, ...sidecars].flatMap((container) =>
    (container.ports ?? [])
      .filter((port) => (port.hostPort ?? 0) > 0)
      .map((port) => ({
        port: port.hostPort!,
        protocol: port.protocol ?? 'TCP',
        ip: port.hostIP === undefined || port.hostIP === '' ? '0.0.0.0' : port.hostIP,
      })),
  );
}

/** Only NoExecute counts here: the others keep new pods away by way of the scheduler. */
function taintProblem(pod: Pod, node: Node): Verdict | null {
  const untolerated = (node.spec?.taints ?? []).some(
    (taint) => taint.effect === 'NoExecute' && !(pod.spec.tolerations ?? []).some((toleration) => tolerates(toleration, taint)),
  );
  return untolerated ? predicate('TaintToleration', "node(s) had taints that the pod didn't tolerate") : null;
}

type Taint = NonNullable<NonNullable<Node['spec']>['taints']>[number];
type Toleration = NonNullable<Pod['spec']['tolerations']>[number];

function tolerates(toleration: Toleration, taint: Taint): boolean {
  if (toleration.effect !== undefined && toleration.effect !== '' && toleration.effect !== taint.effect) return false;
  const key = toleration.key ?? '';
  if (key === '') return toleration.operator === 'Exists';
  if (key !== taint.key) return false;
  return toleration.operator === 'Exists' || (toleration.value ?? '') === (taint.value ?? '');
}

const safeSysctls = new Set([
  'kernel.shm_rmid_forced',
  'net.ipv4.ip_local_port_range',
  'net.ipv4.tcp_syncookies',
  'net.ipv4.ping_group_range',
  'net.ipv4.ip_unprivileged_port_start',
  'net.ipv4.ip_local_reserved_ports',
  'net.ipv4.tcp_keepalive_time',
  'net.ipv4.tcp_fin_timeout',
  'net.ipv4.tcp_keepalive_intvl',
  'net.ipv4.tcp_keepalive_probes',
  'net.ipv4.tcp_rmem',
  'net.ipv4.tcp_wmem',
  'net.ipv4.tcp_slow_start_after_idle',
  'net.ipv4.tcp_notsent_lowat',
]);

function sysctlProblem(input: AdmitInput): Verdict | null {
  const { pod, allowedUnsafeSysctls } = input;
  for (const sysctl of pod.spec.securityContext?.sysctls ?? []) {
    const name = sysctl.name.replaceAll('/', '.');
    const allowed =
      safeSysctls.has(name) || allowedUnsafeSysctls.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name));
    if (!allowed) return refuse('SysctlForbidden', `forbidden sysctl: "${sysctl.name}" not allowlisted`);
    if (pod.spec.hostNetwork === true && name.startsWith('net.'))
      return refuse('SysctlForbidden', `forbidden sysctl: "${sysctl.name}" not allowed with host net enabled`);
    if (
      pod.spec.hostIPC === true &&
      (name.startsWith('kernel.shm') || name.startsWith('kernel.msg') || name === 'kernel.sem' || name.startsWith('fs.mqueue.'))
    ) {
      return refuse('SysctlForbidden', `forbidden sysctl: "${sysctl.name}" not allowed with host ipc enabled`);
    }
  }
  return null;
}
