import type { PersistentVolume, PersistentVolumeClaim, Pod, StorageClass } from '../../../proto/kube/types.ts';
import { hostPorts, nodeAffinityMatches, nodeSelectorMatches, portsConflict, tolerates, untoleratedTaint } from './node-rules.ts';
import { affinityRefusal, affinityRules } from './pod-affinity.ts';
import { podRequests, shortages } from './resources.ts';
import { type ScoringView, scoreNodes } from './score.ts';
import { hardConstraints, spreadRefusal } from './spread.ts';
import type { NodeInfo } from './state.ts';

export interface SchedulingView extends Omit<ScoringView, 'all'> {
  nodes: readonly NodeInfo[];
  claim(namespace: string, name: string): PersistentVolumeClaim | undefined;
  volume(name: string): PersistentVolume | undefined;
  storageClass(name: string): StorageClass | undefined;
}

export type Decision =
  /** `claims` must be told the node first, and be bound, before the pod may be bound. */
  { kind: 'fits'; node: string; claims: readonly PersistentVolumeClaim[] } | { kind: 'unschedulable'; message: string };

interface Refusal {
  reasons: string[];
  /** Taking pods off the node would not help. */
  hopeless: boolean;
}

const SELECTED_NODE = 'volume.kubernetes.io/selected-node';

/**
 * Which node runs the pod, or why none can, in upstream's words. `tie` in [0, 1) chooses among the best.
 */
export function schedule(pod: Pod, view: SchedulingView, tie: number): Decision {
  const { nodes } = view;
  if (nodes.length === 0) return { kind: 'unschedulable', message: 'no nodes available to schedule pods' };
  const claims = claimsOf(pod, view);
  if (typeof claims === 'string')
    return {
      kind: 'unschedulable',
      message: failureMessage(
        nodes.length,
        claims,
        nodes.map(() => ({ reasons: [], hopeless: true })),
      ),
    };
  const ask = questionsAbout(pod, view, claims);
  const refusals: Refusal[] = [];
  const feasible: NodeInfo[] = [];
  for (const info of nodes) {
    const refusal = ask(info);
    if (refusal === undefined) feasible.push(info);
    else refusals.push(refusal);
  }
  if (feasible.length === 0) return { kind: 'unschedulable', message: failureMessage(nodes.length, undefined, refusals) };
  const unbound = claims.filter((claim) => !isBound(claim));
  if (feasible.length === 1) return { kind: 'fits', node: feasible[0]?.node.metadata.name ?? '', claims: unbound };
  const scores = scoreNodes(pod, feasible, { ...view, all: nodes });
  const highest = Math.max(...scores.values());
  const best = feasible.filter((info) => scores.get(info) === highest);
  const chosen = best[Math.floor(tie * best.length)] ?? best[0];
  return { kind: 'fits', node: chosen?.node.metadata.name ?? '', claims: unbound };
}

/** Builds what a decision asks of each node; stops at the first rule that refuses, as upstream's plugins do. */
function questionsAbout(pod: Pod, view: SchedulingView, claims: readonly PersistentVolumeClaim[]): (info: NodeInfo) => Refusal | undefined {
  const requests = podRequests(pod);
  const ports = hostPorts(pod);
  const rules = affinityRules(pod, view.nodes, view.namespaces);
  const hard = hardConstraints(pod, view.nodes);
  const one = (reason: string, hopeless: boolean): Refusal => ({ reasons: [reason], hopeless });
  return (info) => {
    const { node } = info;
    const cordoned = { key: 'node.kubernetes.io/unschedulable', effect: 'NoSchedule' };
    if (node.spec.unschedulable === true && !(pod.spec.tolerations ?? []).some((toleration) => tolerates(toleration, cordoned)))
      return one('node(s) were unschedulable', true);
    if (pod.spec.nodeName && pod.spec.nodeName !== node.metadata.name) return one("node(s) didn't match the requested node name", true);
    const taint = untoleratedTaint(node, pod);
    if (taint !== undefined) return one(`node(s) had untolerated taint {${taint.key}: ${taint.value ?? ''}}`, true);
    if (!nodeAffinityMatches(pod, node)) return one("node(s) didn't match Pod's node affinity/selector", true);
    const taken = ports.length === 0 ? [] : [...info.pods.values()].flatMap(hostPorts);
    if (ports.some((port) => taken.some((other) => portsConflict(port, other))))
      return one("node(s) didn't have free ports for the requested pod ports", false);
    const short = shortages(requests, info.taken, info.pods.size, info.capacity);
    if (short.length > 0) return { reasons: short.map((shortage) => shortage.reason), hopeless: short.some((shortage) => shortage.hopeless) };
    const volume = volumeRefusal(claims, info, view);
    if (volume !== undefined) return one(volume, true);
    const refusal = spreadRefusal(hard, info) ?? affinityRefusal(rules, info);
    return refusal === undefined ? undefined : one(refusal.reason, refusal.hopeless);
  };
}

function isBound(claim: PersistentVolumeClaim): boolean {
  return Boolean(claim.spec.volumeName) && claim.status?.phase === 'Bound';
}

/** The pod's claims, or the reason why no node can do with them. */
function claimsOf(pod: Pod, view: SchedulingView): PersistentVolumeClaim[] | string {
  const found: PersistentVolumeClaim[] = [];
  for (const volume of pod.spec.volumes ?? []) {
    const ephemeral = volume.ephemeral !== undefined;
    const name = volume.persistentVolumeClaim?.claimName ?? (ephemeral ? `${pod.metadata.name}-${volume.name}` : undefined);
    if (name === undefined) continue;
    const claim = view.claim(pod.metadata.namespace ?? '', name);
    if (claim === undefined)
      return ephemeral ? `waiting for ephemeral volume controller to create the persistentvolumeclaim "${name}"` : `persistentvolumeclaim "${name}" not found`;
    if (claim.status?.phase === 'Lost') return `persistentvolumeclaim "${name}" bound to non-existent persistentvolume "${claim.spec.volumeName}"`;
    if (claim.metadata.deletionTimestamp) return `persistentvolumeclaim "${name}" is being deleted`;
    found.push(claim);
  }
  const isDelayed = (claim: PersistentVolumeClaim): boolean =>
    view.storageClass(claim.spec.storageClassName ?? '')?.volumeBindingMode === 'WaitForFirstConsumer';
  if (found.some((claim) => !isBound(claim) && !isDelayed(claim))) return 'pod has unbound immediate PersistentVolumeClaims';
  return found;
}

function volumeRefusal(claims: readonly PersistentVolumeClaim[], info: NodeInfo, view: SchedulingView): string | undefined {
  for (const claim of claims) {
    if (isBound(claim)) {
      const volume = view.volume(claim.spec.volumeName ?? '');
      if (volume === undefined) return 'node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)';
      if (!nodeSelectorMatches(volume.spec.nodeAffinity?.required, info.node)) return "node(s) didn't match PersistentVolume's node affinity";
      continue;
    }
    const selected = claim.metadata.annotations?.[SELECTED_NODE];
    if (selected !== undefined && selected !== info.node.metadata.name) return "node(s) didn't find available persistent volumes to bind";
  }
  return undefined;
}

/** Upstream's sentence: each reason with the number of nodes that gave it, then what preemption would do. */
function failureMessage(nodeCount: number, prefilter: string | undefined, refusals: readonly Refusal[]): string {
  const head = `0/${nodeCount} nodes are available:`;
  const why = prefilter === undefined ? histogram(refusals.flatMap((refusal) => refusal.reasons)) : prefilter;
  const preemption = histogram(
    refusals.map((refusal) => (refusal.hopeless ? 'Preemption is not helpful for scheduling' : 'No preemption victims found for incoming pod')),
  );
  return `${head} ${why}. preemption: ${head} ${preemption}.`;
}

function histogram(reasons: readonly string[]): string {
  const counts = new Map<string, number>();
  for (const reason of reasons) counts.set(reason, (counts.get(reason) ?? 0) + 1);
  return [...counts]
    .map(([reason, count]) => `${count} ${reason}`)
    .toSorted()
    .join(', ');
}
