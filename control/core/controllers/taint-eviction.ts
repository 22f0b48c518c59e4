import type { Node, Pod, Taint } from '../../../proto/kube/types.ts';
import { tolerates } from '../scheduler/node-rules.ts';

export function evictingTaints(node: Node | undefined): Taint[] {
  return (node?.spec.taints ?? []).filter((taint) => taint.effect === 'NoExecute');
}

/**
 * How long the pod may stay beside these NoExecute taints: milliseconds since it was first seen beside them, `forever`
 * when all are tolerated without limit.
 */
export function toleratedMs(pod: Pod, taints: readonly Taint[]): number | 'forever' {
  const used = taints.map((taint) => (pod.spec.tolerations ?? []).filter((toleration) => tolerates(toleration, taint)));
  if (used.some((matching) => matching.length === 0)) return 0;
  const limits = used.flat().flatMap((toleration) => toleration.tolerationSeconds ?? []);
  if (taints.length === 0 || limits.length === 0) return 'forever';
  return Math.max(0, Math.min(...limits)) * 1000;
}
