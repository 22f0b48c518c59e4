import type { PodCondition, PodStatus } from '../../proto/kube/types.ts';
import { ownConditions } from './status-conditions.ts';
import { isTerminalPhase } from './status-phase.ts';

/** Fields of a PodStatus that the agent writes; what is absent from a wish is taken away from the API's copy. */
const ownFields = [
  'observedGeneration',
  'phase',
  'message',
  'reason',
  'hostIP',
  'hostIPs',
  'podIP',
  'podIPs',
  'startTime',
  'qosClass',
  'initContainerStatuses',
  'containerStatuses',
  'ephemeralContainerStatuses',
  'resources',
  'allocatedResources',
  'extendedResourceClaimStatus',
  'resourceClaimStatuses',
  'volumeHealth',
] as const;

/** Absent from a wish they stay: another writer (a scheduler, an earlier agent) may have set them. */
const sticky: ReadonlySet<string> = new Set([
  'observedGeneration',
  'startTime',
  'qosClass',
  'resources',
  'allocatedResources',
  'resourceClaimStatuses',
  'extendedResourceClaimStatus',
  'volumeHealth',
]);

/** Lists whose merge key may change its value: sent as a whole with the directive that says so. */
const replacedLists: ReadonlySet<string> = new Set(['hostIPs', 'podIPs', 'volumeHealth']);

/** Maps that are merged key by key: what is gone must be named. */
const mergedMaps: ReadonlySet<string> = new Set(['resources', 'allocatedResources']);

function mapPatch(before: unknown, after: unknown): Record<string, unknown> {
  const isMap = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
  const patch: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(after as object)) patch[key] = isMap(value) ? mapPatch(isMap(before) ? before[key] : undefined, value) : value;
  for (const key of Object.keys(isMap(before) ? before : {})) if (!(key in patch)) patch[key] = null;
  return patch;
}

/**
 * The strategic-merge patch that makes the API's copy of a status into the wish, or null when it already is.
 * Conditions of others are never named, and neither is a field that is as it should be.
 */
export function podStatusPatch(uid: string, held: PodStatus, wish: PodStatus): { metadata: { uid: string }; status: Record<string, unknown> } | null {
  const next = forward(held, wish);
  const status: Record<string, unknown> = {};
  for (const field of ownFields) {
    const [before, after] = [held[field], next[field]];
    if (same(before, after)) continue;
    if (after === undefined) {
      if (!sticky.has(field)) status[field] = null;
    } else if (mergedMaps.has(field)) status[field] = mapPatch(before, after);
    else if (replacedLists.has(field)) status[field] = [...(after as object[]), { $patch: 'replace' }];
    else status[field] = after;
  }
  const conditions = conditionsPatch(held.conditions ?? [], next.conditions ?? []);
  if (conditions.length > 0) status['conditions'] = conditions;
  return Object.keys(status).length === 0 ? null : { metadata: { uid }, status };
}

/** A terminal phase is never left, nor exchanged for the other one: what the API server holds was told to controllers. */
function forward(held: PodStatus, wish: PodStatus): PodStatus {
  if (!isTerminalPhase(held.phase) || held.phase === wish.phase) return wish;
  return {
    ...wish,
    phase: held.phase,
    ...(held.reason === undefined ? {} : { reason: held.reason }),
    ...(held.message === undefined ? {} : { message: held.message }),
  };
}

function conditionsPatch(held: readonly PodCondition[], wished: readonly PodCondition[]): unknown[] {
  const patch: unknown[] = [];
  for (const condition of wished) {
    const before = held.find(({ type }) => type === condition.type);
    // The scheduler's word on PodScheduled stands; an agent says it only where nobody did.
    if (condition.type === 'PodScheduled' && before?.status === condition.status) {
      const { observedGeneration } = condition;
      if (observedGeneration !== undefined && before.observedGeneration !== observedGeneration) patch.push({ type: condition.type, observedGeneration });
      continue;
    }
    if (!ownConditions.has(condition.type) && condition.type !== 'DisruptionTarget') continue;
    if (before === undefined || !same(before, condition)) patch.push(fullCondition(before, condition));
  }
  for (const { type } of held) {
    if (ownConditions.has(type) && type !== 'PodScheduled' && !wished.some((condition) => condition.type === type)) patch.push({ type, $patch: 'delete' });
  }
  return patch;
}

/** Entries merge by type, so what the new one lacks must be taken away by name. */
function fullCondition(before: PodCondition | undefined, condition: PodCondition): unknown {
  const gone = ['reason', 'message'].filter(
    (field) => before?.[field as 'reason' | 'message'] !== undefined && condition[field as 'reason' | 'message'] === undefined,
  );
  return { ...condition, ...Object.fromEntries(gone.map((field) => [field, null])) };
}

/** Equal for the API: order of fields, nulls and empty lists do not count. */
function same(left: unknown, right: unknown): boolean {
  if (left === right) return true;
  if (isNothing(left) || isNothing(right)) return isNothing(left) && isNothing(right);
  if (Array.isArray(left) || Array.isArray(right))
    return Array.isArray(left) && Array.isArray(right) && left.length === right.length && left.every((each, at) => same(each, right[at]));
  if (typeof left !== 'object' || typeof right !== 'object') return false;
  const [one, other] = [left as Fields, right as Fields];
  for (const key in one) if (!sameField(key, one[key], other[key])) return false;
  for (const key in other) if (!(key in one) && !isAbsent(key, other[key])) return false;
  return true;
}

type Fields = Readonly<Record<string, unknown>>;

function sameField(key: string, left: unknown, right: unknown): boolean {
  if (isAbsent(key, left) || isAbsent(key, right)) return isAbsent(key, left) && isAbsent(key, right);
  return same(left, right);
}

function isNothing(value: unknown): boolean {
  return value === undefined || value === null || (Array.isArray(value) && value.length === 0);
}

/** A field that says nothing: a status has many that one side writes and the other leaves out. */
function isAbsent(key: string, value: unknown): boolean {
  return isNothing(value) || value === '' || (emptyMeansAbsent.has(key) && isEmpty(value));
}

const emptyMeansAbsent: ReadonlySet<string> = new Set(['lastState', 'state', 'resources', 'allocatedResources']);

function isEmpty(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  for (const key in value) if (!isAbsent(key, (value as Fields)[key])) return false;
  return true;
}
