import type { PersistentVolume, PersistentVolumeClaim } from '../../../proto/kube/types.ts';
import { compareQuantities, formatQuantity, parseQuantity, valueOf } from '../quantity.ts';

/*
 * Growing a volume in use (KEP-284, KEP-1790): the controller has made the volume larger and written the size it is
 * to have into the claim; the node grows the file system and reports. RecoverVolumeExpansionFailure is locked on.
 */

/** What is to be done about the size of a volume on this node. */
export type Expansion =
  | { readonly kind: 'none' }
  /** Read-only: it cannot grow, and that is told. */
  | { readonly kind: 'refused' }
  | { readonly kind: 'expand'; readonly sizeBytes: bigint; readonly size: string; readonly recovers: boolean; readonly marks: boolean };

const notRequired = 'volume.kubernetes.io/node-expansion-not-required';
const none: Expansion = { kind: 'none' };

/** `readOnly`: of the claim as the pod uses it. `grown`: the size this node has already made of it, in bytes. */
export function expansionOf(pv: PersistentVolume, pvc: PersistentVolumeClaim, readOnly: boolean, grown: bigint | null): Expansion {
  const wanted = pv.spec.capacity?.['storage'];
  const have = pvc.status?.capacity?.['storage'];
  if (wanted === undefined || have === undefined) return none;
  const state = pvc.status?.allocatedResourceStatuses?.['storage'] ?? '';
  const allocated = pvc.status?.allocatedResources?.['storage'];
  const recovers = state !== '' || pvc.status?.allocatedResources !== undefined;
  const size = recovers && allocated !== undefined ? allocated : wanted;
  if (compareQuantities(parseQuantity(have), parseQuantity(size)) >= 0 && state === '') return sharedExpansion(pvc, size, grown);
  if (compareQuantities(parseQuantity(have), parseQuantity(wanted)) >= 0) return none;
  if (recovers && state !== 'NodeResizePending' && state !== 'NodeResizeInProgress') return none;
  if (readOnly) return { kind: 'refused' };
  return { kind: 'expand', sizeBytes: valueOf(size), size: formatQuantity(parseQuantity(size)), recovers, marks: true };
}

/** A volume of many nodes grows on each of them; the first has reported it. */
function sharedExpansion(pvc: PersistentVolumeClaim, size: string | number, grown: bigint | null): Expansion {
  if (grown === null || grown >= valueOf(size)) return none;
  if (pvc.spec?.accessModes?.includes('ReadWriteMany') !== true || pvc.metadata.annotations?.[notRequired] !== undefined) return none;
  return { kind: 'expand', sizeBytes: valueOf(size), size: formatQuantity(parseQuantity(size)), recovers: true, marks: false };
}

type Status = NonNullable<PersistentVolumeClaim['status']>;
export interface ClaimPatch {
  readonly metadata: { readonly resourceVersion?: string; readonly uid?: string };
  readonly status: Record<string, unknown>;
}

const resizeConditions = new Set(['FileSystemResizePending', 'Resizing', 'ControllerResizeError', 'NodeResizeError']);

/** The claim says that this node is growing the volume. */
export function inProgressPatch(pvc: PersistentVolumeClaim): ClaimPatch {
  return { metadata: versionOf(pvc), status: { allocatedResourceStatuses: { storage: 'NodeResizeInProgress' } } };
}

/** The claim has its new size, and says no more of growing. */
export function finishedPatch(pvc: PersistentVolumeClaim, size: string): ClaimPatch {
  const statuses = pvc.status?.allocatedResourceStatuses;
  return {
    metadata: versionOf(pvc),
    status: {
      capacity: { storage: size },
      ...(statuses?.['storage'] === undefined ? {} : { allocatedResourceStatuses: Object.keys(statuses).length === 1 ? null : { storage: null } }),
      ...removedConditions(pvc.status),
    },
  };
}

/** It failed. `infeasible`: trying again cannot help, and the controller may go back to a smaller size. */
export function failedPatch(pvc: PersistentVolumeClaim, message: string, infeasible: boolean, now: string): ClaimPatch {
  const condition = { type: 'NodeResizeError', status: 'True', lastTransitionTime: now, message: `failed to expand pvc with ${message}` };
  const has = pvc.status?.conditions?.some(({ type, status }) => type === 'NodeResizeError' && status === 'True') ?? false;
  return {
    metadata: {},
    status: {
      ...(infeasible ? { allocatedResourceStatuses: { storage: 'NodeResizeInfeasible' } } : {}),
      ...(has ? {} : { conditions: [condition] }),
    },
  };
}

function versionOf(pvc: PersistentVolumeClaim): { resourceVersion?: string; uid?: string } {
  const { resourceVersion, uid } = pvc.metadata;
  return { ...(resourceVersion === undefined ? {} : { resourceVersion }), ...(uid === undefined ? {} : { uid }) };
}

function removedConditions(status: Status | undefined): { conditions?: object[] } {
  const gone = (status?.conditions ?? []).filter(({ type }) => resizeConditions.has(type));
  return gone.length === 0 ? {} : { conditions: gone.map(({ type }) => ({ $patch: 'delete', type })) };
}
