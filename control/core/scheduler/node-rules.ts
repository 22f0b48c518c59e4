import type { ContainerPort, Node, NodeSelector, NodeSelectorTerm, Pod, Taint, Toleration } from '../../../proto/kube/types.ts';
import { mapMatches } from '../controllers/selector.ts';

/** Whether the toleration covers the taint. Lt and Gt compare whole numbers. */
export function tolerates(toleration: Toleration, taint: Taint): boolean {
  if (toleration.effect && toleration.effect !== taint.effect) return false;
  if (toleration.key && toleration.key !== taint.key) return false;
  switch (toleration.operator ?? 'Equal') {
    case '':
    case 'Equal':
      return Boolean(toleration.key) && (toleration.value ?? '') === (taint.value ?? '');
    case 'Exists':
      return true;
    case 'Lt':
      return Number(taint.value) < Number(toleration.value);
    case 'Gt':
      return Number(taint.value) > Number(toleration.value);
    default:
      return false;
  }
}

export function isTolerated(taint: Taint, tolerations: readonly Toleration[] | undefined): boolean {
  return (tolerations ?? []).some((toleration) => tolerates(toleration, taint));
}

/** The first taint that keeps the pod away. */
export function untoleratedTaint(node: Node, pod: Pod): Taint | undefined {
  return node.spec.taints?.find((taint) => (taint.effect === 'NoSchedule' || taint.effect === 'NoExecute') && !isTolerated(taint, pod.spec.tolerations));
}

/** How many of the node's soft taints the pod does not tolerate. */
export function softTaints(node: Node, pod: Pod): number {
  return (node.spec.taints ?? []).filter((taint) => taint.effect === 'PreferNoSchedule' && !isTolerated(taint, pod.spec.tolerations)).length;
}

export function termMatches(term: NodeSelectorTerm, node: Node): boolean {
  const expressions = term.matchExpressions ?? [];
  const fields = term.matchFields ?? [];
  if (expressions.length === 0 && fields.length === 0) return false;
  const matches = (operator: string, values: readonly string[] | undefined, actual: string | undefined): boolean => {
    switch (operator) {
      case 'In':
        return actual !== undefined && (values ?? []).includes(actual);
      case 'NotIn':
        return actual === undefined || !(values ?? []).includes(actual);
      case 'Exists':
        return actual !== undefined;
      case 'DoesNotExist':
        return actual === undefined;
      case 'Gt':
        return actual !== undefined && /^-?\d+$/.test(actual) && Number(actual) > Number(values?.[0]);
      case 'Lt':
        return actual !== undefined && /^-?\d+$/.test(actual) && Number(actual) < Number(values?.[0]);
      default:
        return false;
    }
  };
  return (
    expressions.every((rule) => matches(rule.operator, rule.values, node.metadata.labels?.[rule.key])) &&
    fields.every((rule) => matches(rule.operator, rule.values, rule.key === 'metadata.name' ? node.metadata.name : undefined))
  );
}

export function nodeSelectorMatches(selector: NodeSelector | undefined, node: Node): boolean {
  return selector === undefined || selector.nodeSelectorTerms.some((term) => termMatches(term, node));
}

/** nodeSelector and required node affinity together. */
export function nodeAffinityMatches(pod: Pod, node: Node): boolean {
  if (!mapMatches(pod.spec.nodeSelector, node.metadata.labels)) return false;
  return nodeSelectorMatches(pod.spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution, node);
}

/** The weights of the preferred terms that the node fulfils. */
export function preferredNodeWeight(pod: Pod, node: Node): number {
  const preferred = pod.spec.affinity?.nodeAffinity?.preferredDuringSchedulingIgnoredDuringExecution ?? [];
  return preferred.reduce((sum, term) => sum + (termMatches(term.preference, node) ? term.weight : 0), 0);
}

/** Ports a pod takes on its node. */
export function hostPorts(pod: Pod): ContainerPort[] {
  const sidecars = (pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
  return [...pod.spec.containers, ...sidecars].flatMap((container) => container.ports ?? []).filter((port) => (port.hostPort ?? 0) > 0);
}

export function portsConflict(wanted: ContainerPort, taken: ContainerPort): boolean {
  if (wanted.hostPort !== taken.hostPort || (wanted.protocol ?? 'TCP') !== (taken.protocol ?? 'TCP')) return false;
  const any = (port: ContainerPort): boolean => !port.hostIP || port.hostIP === '0.0.0.0' || port.hostIP === '::';
  return any(wanted) || any(taken) || wanted.hostIP === taken.hostIP;
}
