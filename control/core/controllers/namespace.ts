import type { Namespace, NamespaceCondition } from '../../../proto/kube/types.ts';
import { semanticEqual } from './equal.ts';

/** What one pass over a namespace's content found. */
export interface NamespaceSweep {
  /** Message when not all kinds could be found out. */
  discoveryFailure: string | undefined;
  deletionFailures: readonly string[];
  /** By `resource.group`: how many are left. */
  remaining: ReadonlyMap<string, number>;
  /** By finalizer: how many objects wait for it. */
  finalizers: ReadonlyMap<string, number>;
}

const FINE: readonly [type: string, reason: string, message: string][] = [
  ['NamespaceDeletionDiscoveryFailure', 'ResourcesDiscovered', 'All resources successfully discovered'],
  ['NamespaceDeletionGroupVersionParsingFailure', 'ParsedGroupVersions', 'All legacy kube types successfully parsed'],
  ['NamespaceDeletionContentFailure', 'ContentDeleted', 'All content successfully deleted, may be waiting on finalization'],
  ['NamespaceContentRemaining', 'ContentRemoved', 'All content successfully removed'],
  ['NamespaceFinalizersRemaining', 'ContentHasNoFinalizers', 'All content-preserving finalizers finished'],
];

export function isSwept(sweep: NamespaceSweep): boolean {
  return sweep.discoveryFailure === undefined && sweep.deletionFailures.length === 0 && sweep.remaining.size === 0;
}

/** The conditions a namespace shows after a pass; undefined when it shows them already. */
export function namespaceConditions(namespace: Namespace, sweep: NamespaceSweep, now: string): NamespaceCondition[] | undefined {
  const troubles = new Map<string, { reason: string; message: string }>();
  if (sweep.discoveryFailure !== undefined) troubles.set('NamespaceDeletionDiscoveryFailure', { reason: 'DiscoveryFailed', message: sweep.discoveryFailure });
  if (sweep.deletionFailures.length > 0) {
    troubles.set('NamespaceDeletionContentFailure', {
      reason: 'ContentDeletionFailed',
      message: `Failed to delete all resource types, ${sweep.deletionFailures.length} remaining: ${sweep.deletionFailures.toSorted().join(', ')}`,
    });
  }
  if (sweep.remaining.size > 0) {
    const parts = [...sweep.remaining].map(([resource, count]) => `${resource} has ${count} resource instances`).toSorted();
    troubles.set('NamespaceContentRemaining', { reason: 'SomeResourcesRemain', message: `Some resources are remaining: ${parts.join(', ')}` });
  }
  if (sweep.finalizers.size > 0) {
    const parts = [...sweep.finalizers].map(([finalizer, count]) => `${finalizer} in ${count} resource instances`).toSorted();
    troubles.set('NamespaceFinalizersRemaining', {
      reason: 'SomeFinalizersRemain',
      message: `Some content in the namespace has finalizers remaining: ${parts.join(', ')}`,
    });
  }
  const before = namespace.status?.conditions ?? [];
  const conditions = FINE.map(([type, reason, message]): NamespaceCondition => {
    const trouble = troubles.get(type);
    const known = before.find((condition) => condition.type === type);
    const fresh = { type, status: trouble === undefined ? 'False' : 'True', ...(trouble ?? { reason, message }) };
    const same = known !== undefined && known.status === fresh.status && known.reason === fresh.reason && known.message === fresh.message;
    return { ...fresh, lastTransitionTime: same || known?.status === fresh.status ? known.lastTransitionTime : now };
  });
  const others = before.filter((condition) => !FINE.some(([type]) => type === condition.type));
  const all = [...others, ...conditions];
  return semanticEqual(all, before) ? undefined : all;
}
