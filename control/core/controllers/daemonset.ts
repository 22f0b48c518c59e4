import type { DaemonSet, DaemonSetStatus, Node, NodeSelectorTerm, Pod, PodSpec, Toleration } from '../../../proto/kube/types.ts';
import { nodeAffinityMatches, untoleratedTaint } from '../scheduler/node-rules.ts';
import { semanticEqual } from './equal.ts';
import { templateHash } from './hash.ts';
import { scaled } from './intstr.ts';
import { controllerRef } from './owners.ts';
import { isPodAvailable, isPodReady } from './pods.ts';

export interface DaemonSetObserved {
  daemonSet: DaemonSet;
  nodes: readonly Node[];
  /** Pods the DaemonSet controls. */
  pods: readonly Pod[];
  nowMs: number;
}

export interface DaemonSetPlan {
  create: Pod[];
  remove: { pod: Pod; failed: boolean }[];
  /** Absent when the present status says the same. */
  status?: DaemonSetStatus;
}

const HASH_LABEL = 'controller-revision-hash';
const GENERATION_LABEL = 'pod-template-generation';

/** Daemons run on nodes that are in trouble too. */
const DAEMON_TOLERATIONS: readonly Toleration[] = [
  { key: 'node.kubernetes.io/not-ready', operator: 'Exists', effect: 'NoExecute' },
  { key: 'node.kubernetes.io/unreachable', operator: 'Exists', effect: 'NoExecute' },
  { key: 'node.kubernetes.io/disk-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/memory-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/pid-pressure', operator: 'Exists', effect: 'NoSchedule' },
  { key: 'node.kubernetes.io/unschedulable', operator: 'Exists', effect: 'NoSchedule' },
];
const NETWORK_TOLERATION: Toleration = { key: 'node.kubernetes.io/network-unavailable', operator: 'Exists', effect: 'NoSchedule' };

/** One pod for each node that may run it; those of an older template are replaced as the update strategy allows. */
export function planDaemonSet(observed: DaemonSetObserved): DaemonSetPlan {
  const { daemonSet, nodes, pods, nowMs } = observed;
  const hash = templateHash(daemonSet.spec.template, daemonSet.status?.collisionCount);
  const plan: DaemonSetPlan = { create: [], remove: [] };
  const wanted = nodes.filter((node) => mayRun(daemonSet, node));
  const names = new Set(wanted.map((node) => node.metadata.name));
  const byNode = new Map<string, Pod[]>();
  for (const pod of pods) byNode.set(nodeOf(pod), [...(byNode.get(nodeOf(pod)) ?? []), pod]);
  const ending = daemonSet.metadata.deletionTimestamp !== undefined;
  for (const node of wanted) {
    const here = byNode.get(node.metadata.name ?? '') ?? [];
    const alive = here.filter((pod) => !pod.metadata.deletionTimestamp);
    const failed = alive.filter((pod) => pod.status?.phase === 'Failed' || pod.status?.phase === 'Succeeded');
    for (const pod of failed) plan.remove.push({ pod, failed: true });
    const running = alive.filter((pod) => !failed.includes(pod));
    // The old one has to be gone before the next comes: they would fight for ports and files.
    if (here.length === 0 && !ending) plan.create.push(daemonPod(daemonSet, node, hash));
    const oldestFirst = running.toSorted((a, b) => ((a.metadata.creationTimestamp ?? '') < (b.metadata.creationTimestamp ?? '') ? -1 : 1));
    for (const pod of oldestFirst.slice(1)) plan.remove.push({ pod, failed: false });
  }
  for (const pod of pods) if (!names.has(nodeOf(pod)) && !pod.metadata.deletionTimestamp) plan.remove.push({ pod, failed: false });
  if (!ending) replaceOld(daemonSet, wanted, byNode, hash, nowMs, plan);
  const status = statusOf(daemonSet, wanted, nodes, byNode, hash, nowMs);
  if (!semanticEqual(counts(daemonSet.status), counts(status))) plan.status = { ...daemonSet.status, ...status };
  return plan;
}

/** The node a daemon's pod is for, also before it is bound. */
function nodeOf(pod: Pod): string {
  if (pod.spec.nodeName) return pod.spec.nodeName;
  const terms = pod.spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms ?? [];
  return terms[0]?.matchFields?.find((field) => field.key === 'metadata.name')?.values?.[0] ?? '';
}

function mayRun(daemonSet: DaemonSet, node: Node): boolean {
  const spec = daemonSpec(daemonSet);
  const pod: Pod = { metadata: {}, spec };
  if (spec.nodeName && spec.nodeName !== node.metadata.name) return false;
  return nodeAffinityMatches(pod, node) && untoleratedTaint(node, pod) === undefined;
}

function daemonSpec(daemonSet: DaemonSet): PodSpec {
  const spec = daemonSet.spec.template.spec ?? { containers: [] };
  const tolerations = [...(spec.tolerations ?? []), ...DAEMON_TOLERATIONS, ...(spec.hostNetwork === true ? [NETWORK_TOLERATION] : [])];
  return { ...spec, tolerations };
}

function daemonPod(daemonSet: DaemonSet, node: Node, hash: string): Pod {
  const { template } = daemonSet.spec;
  const spec = daemonSpec(daemonSet);
  const field = { key: 'metadata.name', operator: 'In', values: [node.metadata.name ?? ''] };
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution?.nodeSelectorTerms;
  const nodeSelectorTerms: NodeSelectorTerm[] =
    required === undefined ? [{ matchFields: [field] }] : required.map((term) => ({ ...term, matchFields: [field] }));
  const generation = daemonSet.metadata.annotations?.['deprecated.daemonset.template.generation'] ?? String(daemonSet.metadata.generation ?? 1);
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      generateName: `${daemonSet.metadata.name}-`,
      namespace: daemonSet.metadata.namespace,
      labels: { ...template.metadata?.labels, [HASH_LABEL]: hash, [GENERATION_LABEL]: generation },
      ...(template.metadata?.annotations === undefined ? {} : { annotations: template.metadata.annotations }),
      ownerReferences: [controllerRef(daemonSet, 'apps/v1', 'DaemonSet')],
    },
    spec: {
      ...spec,
      affinity: { ...spec.affinity, nodeAffinity: { ...spec.affinity?.nodeAffinity, requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } },
    },
  };
}

/** Rolling update without surge: at most maxUnavailable nodes without an available pod. */
function replaceOld(
  daemonSet: DaemonSet,
  wanted: readonly Node[],
  byNode: ReadonlyMap<string, readonly Pod[]>,
  hash: string,
  nowMs: number,
  plan: DaemonSetPlan,
): void {
  const strategy = daemonSet.spec.updateStrategy;
  if ((strategy?.type ?? 'RollingUpdate') !== 'RollingUpdate') return;
  const allowed = Math.max(1, scaled(strategy?.rollingUpdate?.maxUnavailable ?? 1, wanted.length, true));
  const minReadySeconds = daemonSet.spec.minReadySeconds ?? 0;
  const current = wanted.map((node) => byNode.get(node.metadata.name ?? '')?.find((pod) => !pod.metadata.deletionTimestamp));
  const isDown = (pod: Pod | undefined): boolean => pod === undefined || !isPodAvailable(pod, minReadySeconds, nowMs);
  let room =
    allowed - current.filter((pod) => isDown(pod) && pod?.metadata.labels?.[HASH_LABEL] !== undefined && pod.metadata.labels[HASH_LABEL] === hash).length;
  room -= current.filter((pod) => pod === undefined).length;
  const old = current.filter((pod): pod is Pod => pod !== undefined && pod.metadata.labels?.[HASH_LABEL] !== hash);
  for (const pod of old.toSorted((a, b) => Number(isDown(b)) - Number(isDown(a)))) {
    if (!isDown(pod) && room <= 0) break;
    if (!isDown(pod)) room--;
    if (!plan.remove.some((removal) => removal.pod === pod)) plan.remove.push({ pod, failed: false });
  }
}

function statusOf(
  daemonSet: DaemonSet,
  wanted: readonly Node[],
  nodes: readonly Node[],
  byNode: ReadonlyMap<string, readonly Pod[]>,
  hash: string,
  nowMs: number,
): DaemonSetStatus {
  const minReadySeconds = daemonSet.spec.minReadySeconds ?? 0;
  const first = wanted.flatMap((node) => byNode.get(node.metadata.name ?? '')?.[0] ?? []);
  const available = first.filter((pod) => isPodAvailable(pod, minReadySeconds, nowMs)).length;
  return {
    currentNumberScheduled: first.length,
    desiredNumberScheduled: wanted.length,
    numberMisscheduled: nodes.filter((node) => !wanted.includes(node) && (byNode.get(node.metadata.name ?? '') ?? []).length > 0).length,
    numberReady: first.filter(isPodReady).length,
    updatedNumberScheduled: first.filter((pod) => pod.metadata.labels?.[HASH_LABEL] === hash).length,
    numberAvailable: available,
    numberUnavailable: wanted.length - available,
    observedGeneration: daemonSet.metadata.generation,
  };
}

function counts(status: DaemonSetStatus | undefined): number[] {
  return [
    status?.currentNumberScheduled ?? 0,
    status?.desiredNumberScheduled ?? 0,
    status?.numberMisscheduled ?? 0,
    status?.numberReady ?? 0,
    status?.updatedNumberScheduled ?? 0,
    status?.numberAvailable ?? 0,
    status?.numberUnavailable ?? 0,
    status?.observedGeneration ?? 0,
  ];
}
