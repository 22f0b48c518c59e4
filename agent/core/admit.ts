import type { Container, Node, Pod } from '../../proto/kube/types.ts';
import { apparmorProblem } from './admit-apparmor.ts';
import { sysctlProblem } from './admit-sysctls.ts';
import { isCritical } from './evict-storage.ts';
import type { PressureCondition } from './evict-thresholds.ts';
import { matchesTerm } from './node-selector.ts';
import type { Requirement } from './preempt.ts';
import { hasPodLevelResources, podRequests, qosClassOf } from './qos.ts';
import { canRestartAll } from './restart-all.ts';
import { isStatic } from './static-pod.ts';
import type { Verdict } from './status.ts';
import { isTerminalPhase } from './status-phase.ts';
import { milliValueOf, valueOf } from './quantity.ts';

export interface AdmitInput {
  readonly pod: Pod;
  readonly node: Node;
  /** Every other pod that holds something of the node. */
  readonly others: readonly Pod[];
  /** Unsafe sysctls that this node allows, with `*` at the end for a prefix. */
  readonly allowedUnsafeSysctls: readonly string[];
  /** What the node is short of. */
  readonly pressures: readonly PressureCondition[];
  readonly hasApparmor: boolean;
  /** Features that this node declares. */
  readonly declaredFeatures: readonly string[];
  /** `TaintTolerationComparisonOperators`. */
  readonly comparesTaints?: boolean;
  /** `PodLevelResources` is off: what a pod asks for as a whole is not known here. */
  readonly refusesPodResources?: boolean;
}

/** Why a pod is refused. `missing` where a resource is short, and by how much: what preemption for a critical pod must free. */
export interface Refusal extends Verdict {
  readonly missing?: Requirement;
}

/**
 * Whether the node takes the pod: null, or the reason and text that its Failed status gets. The scheduler has asked
 * the same; this is for what it could not know and for pods that were bound without it.
 */
export function admit(input: AdmitInput): Verdict | null {
  return earlyProblem(input) ?? verdictOf(generalProblems(input)[0]) ?? lateProblem(input);
}

/** What no preemption would help with, asked for first. */
export function earlyProblem(input: AdmitInput): Verdict | null {
  const { pod, node } = input;
  const pressure = pressureProblem(input);
  if (pressure !== null) return pressure;
  const sysctls = sysctlProblem(pod, input.allowedUnsafeSysctls);
  if (sysctls !== null) return refuse('SysctlForbidden', sysctls);
  const wantedOs = pod.metadata.labels?.['kubernetes.io/os'];
  if (wantedOs !== undefined && wantedOs !== 'linux')
    return refuse('PodOSSelectorNodeLabelDoesNotMatch', "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label");
  if (pod.spec.os !== undefined && pod.spec.os.name !== 'linux')
    return refuse('PodOSNotSupported', "Failed to admit pod as the OS field doesn't match node OS");
  if (pod.spec.securityContext?.supplementalGroupsPolicy === 'Strict' && node.status?.features?.supplementalGroupsPolicy !== true) {
    return refuse('SupplementalGroupsPolicyNotSupported', 'SupplementalGroupsPolicy=Strict is not supported in this node');
  }
  return null;
}

/** All that the scheduler's filters have against the pod, in their order. */
export function generalProblems(input: AdmitInput): Refusal[] {
  const { pod, node } = input;
  return [...resourceProblems(input), placeProblem(pod, node), portProblem(input), taintProblem(pod, node, input.comparesTaints)].filter(
    (each) => each !== null,
  );
}

/** Asked for last, and only of pods that have not run. */
export function lateProblem({ pod, hasApparmor, declaredFeatures, refusesPodResources }: AdmitInput): Verdict | null {
  const phase = pod.status?.phase ?? 'Pending';
  const problem = phase === 'Pending' ? apparmorProblem(pod, hasApparmor) : null;
  if (problem !== null) return refuse('AppArmor', problem);
  if (refusesPodResources === true && hasPodLevelResources(pod)) return refuse('PodLevelResourcesNotSupported', 'PodLevelResources feature gate is disabled');
  const missing = neededFeatures(pod).filter((feature) => !declaredFeatures.includes(feature));
  return missing.length === 0 ? null : refuse('PodFeatureUnsupported', `Pod requires node features that are not available: ${missing.join(', ')}`);
}

/** What a pod needs that a node may lack (KEP-5328), by upstream's names. */
function neededFeatures(pod: Pod): string[] {
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  const hasMountOptions = containers.some((container) => (container.volumeMounts ?? []).some((mount) => (mount.bindMountOptions ?? []).length > 0));
  return [
    ...(canRestartAll(pod) ? ['RestartAllContainersOnContainerExits'] : []),
    ...(pod.spec.hostNetwork === true && pod.spec.hostUsers === false ? ['UserNamespacesHostNetworkSupport'] : []),
    ...(hasMountOptions ? ['VolumeBindMountOptions'] : []),
  ];
}

const countedReasons = new Set([
  'AppArmor',
  'PodOSSelectorNodeLabelDoesNotMatch',
  'PodOSNotSupported',
  'InvalidNodeInfo',
  'SupplementalGroupsPolicyNotSupported',
  'UnexpectedAdmissionError',
  'UnknownReason',
  'OutOfcpu',
  'OutOfmemory',
  'OutOfephemeral-storage',
  'OutOfpods',
  'PodFeatureUnsupported',
  'Evicted',
  'SysctlForbidden',
  'TopologyAffinityError',
  'NodeShutdown',
  'VolumeAttachmentLimitExceeded',
]);

/** What a refusal is counted as: names of resources are the cluster's to choose, and must not fill the memory. */
export function countedReason(reason: string): string {
  if (countedReasons.has(reason)) return reason;
  return reason.startsWith('OutOf') ? 'OutOfExtendedResources' : 'Other';
}

/** Without what is for the node alone. */
export function verdictOf(refusal: Refusal | undefined): Verdict | null {
  return refusal === undefined ? null : refuse(refusal.reason, refusal.message);
}

/** Under pressure only critical pods come in; under that of memory alone also those that ask for some, and those that tolerate it. */
function pressureProblem({ pod, pressures, comparesTaints }: AdmitInput): Verdict | null {
  if (pressures.length === 0 || isCritical(pod)) return null;
  if (pressures.every((condition) => condition === 'MemoryPressure')) {
    if (qosClassOf(pod) !== 'BestEffort') return null;
    const taint = { key: 'node.kubernetes.io/memory-pressure', effect: 'NoSchedule' };
    if ((pod.spec.tolerations ?? []).some((toleration) => tolerates(toleration, taint, comparesTaints))) return null;
  }
  return refuse('Evicted', `The node had condition: [${pressures.join(' ')}]. `);
}

function refuse(reason: string, message: string): Verdict {
  return { reason, message };
}

function predicate(name: string, why: string): Verdict {
  return refuse(name, `Predicate ${name} failed: ${why}`);
}

function resourceProblems(input: AdmitInput): Refusal[] {
  const { pod, node } = input;
  const others = input.others.filter((other) => !isTerminalPhase(other.status?.phase));
  const allocatable = node.status?.allocatable ?? {};
  const podsAllowed = Number(valueOf(allocatable['pods']));
  const problems: Refusal[] = [];
  const lacks = (name: string, requested: bigint | number, used: bigint | number, capacity: bigint | number): void => {
    const message = `Node didn't have enough resource: ${name}, requested: ${requested}, used: ${used}, capacity: ${capacity}`;
    problems.push({ reason: `OutOf${name}`, message, missing: { resource: name, amount: BigInt(requested) - (BigInt(capacity) - BigInt(used)) } });
  };
  if (others.length + 1 > podsAllowed) lacks('pods', 1, others.length, podsAllowed);
  const wanted = podRequests(withoutClaimed(pod));
  for (const name of inOrder([...wanted.keys()])) {
    const requested = amountOf(name, wanted.get(name)!.nano);
    if (requested === 0n) continue;
    // A resource the node does not know is a cluster-level one, and none of its business.
    if (allocatable[name] === undefined && name.includes('/')) continue;
    const used = others.reduce((sum, other) => sum + amountOf(name, podRequests(other).get(name)?.nano ?? 0n), 0n);
    const capacity = name === 'cpu' ? milliValueOf(allocatable[name]) : valueOf(allocatable[name]);
    if (requested > capacity - used) lacks(name, requested, used, capacity);
  }
  return problems;
}

/** Without what a claim made for the pod stands in for (DRAExtendedResource): a device plugin of the same name need not have it. */
function withoutClaimed(pod: Pod): Pod {
  const mappings = pod.status?.extendedResourceClaimStatus?.requestMappings ?? [];
  if (mappings.length === 0) return pod;
  const plain = (containers: readonly Container[]): Container[] =>
    containers.map((container) => {
      const claimed = new Set(mappings.filter((each) => each.containerName === container.name).map((each) => each.resourceName));
      const requests = Object.fromEntries(Object.entries(container.resources?.requests ?? {}).filter(([name]) => !claimed.has(name)));
      return { ...container, resources: { ...container.resources, requests } };
    });
  return { ...pod, spec: { ...pod.spec, containers: plain(pod.spec.containers), initContainers: plain(pod.spec.initContainers ?? []) } };
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

/** Only NoExecute counts here, and not for static pods: the others keep new pods away by way of the scheduler. */
function taintProblem(pod: Pod, node: Node, comparesTaints: boolean | undefined): Verdict | null {
  if (isStatic(pod)) return null;
  const untolerated = (node.spec?.taints ?? []).some(
    (taint) => taint.effect === 'NoExecute' && !(pod.spec.tolerations ?? []).some((toleration) => tolerates(toleration, taint, comparesTaints)),
  );
  return untolerated ? predicate('TaintToleration', "node(s) had taints that the pod didn't tolerate") : null;
}

type Taint = { readonly key: string; readonly value?: string; readonly effect: string };
type Toleration = NonNullable<Pod['spec']['tolerations']>[number];

/** Whole numbers of 64 bits without signs before zeros; what is none matches nothing (KEP-5471). */
function compares(operator: 'Lt' | 'Gt', tolerated: string, actual: string): boolean {
  const plain = /^(0|-?[1-9]\d{0,18})$/;
  if (!plain.test(tolerated) || !plain.test(actual)) return false;
  return operator === 'Lt' ? BigInt(actual) < BigInt(tolerated) : BigInt(actual) > BigInt(tolerated);
}

function tolerates(toleration: Toleration, taint: Taint, comparesTaints: boolean | undefined): boolean {
  if (toleration.effect !== undefined && toleration.effect !== '' && toleration.effect !== taint.effect) return false;
  const { key = '', operator = '' } = toleration;
  if (key !== '' && key !== taint.key) return false;
  if (operator === 'Exists') return true;
  if (operator === 'Lt' || operator === 'Gt') return comparesTaints === true && compares(operator, toleration.value ?? '', taint.value ?? '');
  return (operator === '' || operator === 'Equal') && (toleration.value ?? '') === (taint.value ?? '');
}
