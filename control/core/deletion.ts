import { Failure, badRequest, conflict, invalid } from './failure.ts';
import type { Obj } from './json.ts';

export interface DeleteRequest {
  gracePeriodSeconds?: number;
  propagationPolicy?: string;
  orphanDependents?: boolean;
  preconditions?: { uid?: string; resourceVersion?: string };
}

export type Deletion =
  /** The object goes now. */
  | { do: 'remove' }
  /** The object stays, marked, until finalizers are gone and the grace period is confirmed. */
  | { do: 'mark'; object: Obj }
  /** It is being deleted already and nothing about that changes. */
  | { do: 'nothing' };

export interface DeletionFacts {
  object: Obj;
  request: DeleteRequest;
  nowMs: number;
  /** undefined: this kind is not ended gracefully. */
  defaultGraceSeconds: number | undefined;
  time: (ms: number) => string;
}

/** What a DELETE does to one object. Throws 409 for preconditions that do not hold, 422 for options that make no sense. */
export function planDeletion(kind: string, facts: DeletionFacts): Deletion {
  const { object, request } = facts;
  const metadata: Obj = object['metadata'];
  checkOptions(request);
  const { uid, resourceVersion } = request.preconditions ?? {};
  const subject = { group: '', resource: kind };
  if (uid !== undefined && uid !== metadata['uid']) {
    throw conflict(
      subject,
      metadata['name'],
      `the UID in the precondition (${uid}) does not match the UID in record (${metadata['uid']}). The object might have been deleted and then recreated`,
    );
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata['resourceVersion']) {
    throw conflict(
      subject,
      metadata['name'],
      `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${metadata['resourceVersion']}). The object might have been modified`,
    );
  }
  const grace = graceOf(facts);
  const finalizers = finalizersFor(metadata['finalizers'] ?? [], request);
  const isMarked = metadata['deletionTimestamp'] !== undefined;
  const isPendingGrace = isMarked && (metadata['deletionGracePeriodSeconds'] ?? 0) > 0;
  if (facts.defaultGraceSeconds !== undefined && isPendingGrace) return shorten(facts);
  if (grace === 0 && finalizers.length === 0) return { do: 'remove' };
  if (isMarked) {
    const isSame = finalizers.length === (metadata['finalizers'] ?? []).length && finalizers.every((name, at) => metadata['finalizers']?.[at] === name);
    if (isSame) return { do: 'nothing' };
    return { do: 'mark', object: { ...object, metadata: { ...metadata, finalizers } } };
  }
  const marked: Obj = { ...metadata, deletionTimestamp: facts.time(facts.nowMs + grace * 1000), deletionGracePeriodSeconds: grace };
  if (finalizers.length > 0) marked['finalizers'] = finalizers;
  else delete marked['finalizers'];
  if ((metadata['generation'] ?? 0) > 0) marked['generation'] = metadata['generation'] + 1;
  return { do: 'mark', object: { ...object, metadata: marked } };
}

function checkOptions(request: DeleteRequest): void {
  const grace: unknown = request.gracePeriodSeconds;
  if (grace !== undefined && grace !== null && !Number.isSafeInteger(grace))
    throw badRequest(`DeleteOptions: gracePeriodSeconds: ${JSON.stringify(grace)} is not a whole number of seconds`);
  const bad = (field: string, message: string): Failure => invalid('meta.k8s.io', 'DeleteOptions', '', [{ reason: 'FieldValueInvalid', field, message }]);
  if (request.propagationPolicy !== undefined && request.orphanDependents !== undefined) {
    throw bad('propagationPolicy', `Invalid value: "${request.propagationPolicy}": orphanDependents and deletionPropagation cannot be both set`);
  }
  if (request.propagationPolicy !== undefined && !['Foreground', 'Background', 'Orphan'].includes(request.propagationPolicy)) {
    throw bad('propagationPolicy', `Unsupported value: "${request.propagationPolicy}": supported values: "Foreground", "Background", "Orphan", "nil"`);
  }
}

function graceOf(facts: DeletionFacts): number {
  if (facts.defaultGraceSeconds === undefined) return 0;
  const asked = facts.request.gracePeriodSeconds ?? undefined;
  const spec: Obj = facts.object['spec'] ?? {};
  if ((spec['nodeName'] ?? '') === '') return 0;
  const phase = facts.object['status']?.phase;
  if (phase === 'Failed' || phase === 'Succeeded') return 0;
  const grace = asked ?? spec['terminationGracePeriodSeconds'] ?? facts.defaultGraceSeconds;
  return grace < 0 ? 1 : grace;
}

/** A second delete may only make the time shorter. */
function shorten(facts: DeletionFacts): Deletion {
  const { object, request } = facts;
  const metadata: Obj = object['metadata'];
  const had: number = metadata['deletionGracePeriodSeconds'];
  if (request.gracePeriodSeconds === undefined) return { do: 'nothing' };
  const asked = request.gracePeriodSeconds < 0 ? 1 : request.gracePeriodSeconds;
  if (asked >= had) return { do: 'nothing' };
  if (asked === 0 && (metadata['finalizers'] ?? []).length === 0) return { do: 'remove' };
  const from = Date.parse(metadata['deletionTimestamp']) - had * 1000;
  const at = from + asked * 1000;
  const late = at < facts.nowMs;
  const grace = late && asked !== 0 ? 1 : asked;
  return {
    do: 'mark',
    object: { ...object, metadata: { ...metadata, deletionTimestamp: facts.time(late ? facts.nowMs : at), deletionGracePeriodSeconds: grace } },
  };
}

function finalizersFor(current: readonly string[], request: DeleteRequest): string[] {
  const policy = request.propagationPolicy ?? (request.orphanDependents === true ? 'Orphan' : request.orphanDependents === false ? 'Background' : undefined);
  if (policy === undefined) return [...current];
  const rest = current.filter((name) => name !== 'orphan' && name !== 'foregroundDeletion');
  if (policy === 'Orphan') return [...rest, 'orphan'];
  if (policy === 'Foreground') return [...rest, 'foregroundDeletion'];
  return rest;
}
