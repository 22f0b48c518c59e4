import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { rfc3339 } from '../../base/clock.ts';
import { serverSideApply, trackUpdate } from '../core/apply.ts';
import type { Writer } from '../core/apply.ts';
import { toServed, toStored } from '../core/convert.ts';
import { planDeletion } from '../core/deletion.ts';
import type { DeleteRequest } from '../core/deletion.ts';
import { Failure, alreadyExists, badRequest, conflict, invalid, notFound, staleWrite, unsupportedMedia } from '../core/failure.ts';
import type { Cause } from '../core/failure.ts';
import { canonical, copy, isObject, same } from '../core/json.ts';
import type { Obj } from '../core/json.ts';
import { applyJsonPatch } from '../core/jsonpatch.ts';
import { applyMergePatch } from '../core/mergepatch.ts';
import { checkMetadata, checkMetadataUpdate } from '../core/names.ts';
import { apiVersionOf } from '../core/schema.ts';
import { specOf } from '../core/strategy.ts';
import { applyStrategicPatch } from '../core/strategic.ts';
import { admitCreate, admitDelete, admitUpdate } from '../core/admission.ts';
import { decodeObject, fitObject, parseBody } from './body.ts';
import { collectionOf } from './kernel.ts';
import type { Answer, Call, Kernel } from './kernel.ts';
import { intOf, list } from './read.ts';
import type { Entry } from './store.ts';

const isDryRun = (query: URLSearchParams): boolean => {
  const asked = query.getAll('dryRun').filter((value) => value !== '');
  if (asked.some((value) => value !== 'All')) throw badRequest(`dryRun: Unsupported value: ${JSON.stringify(asked)}: supported values: "All"`);
  return asked.length > 0;
};

/** The manager a write is recorded under: the query's, or the client's program name. */
function writerOf(kernel: Kernel, info: ResourceInfo, call: Call): Writer {
  const name = call.query.get('fieldManager') ?? '';
  return {
    name: name === '' ? (call.userAgent.split('/')[0] || 'unknown').slice(0, 128) : name,
    apiVersion: apiVersionOf(info),
    subresource: call.info.subresource,
    time: call.info.subresource === 'scale' ? undefined : rfc3339(kernel.clock.nowMs()),
  };
}

async function answerWith(kernel: Kernel, info: ResourceInfo, status: number, object: Obj, warnings: string[]): Promise<Answer> {
  await kernel.store.committed();
  return { status, kind: 'object', object: toServed(info.group, info.version, object), warnings };
}

export async function create(kernel: Kernel, info: ResourceInfo, call: Call): Promise<Answer> {
  const warnings: string[] = [];
  const object = await decodeObject(kernel, info, call, warnings);
  return answerWith(kernel, info, 201, createObject(kernel, info, call, object, warnings), warnings);
}

/** The create path after decoding; synchronous, so nothing comes between its checks and the store. */
export function createObject(kernel: Kernel, info: ResourceInfo, call: Call, given: Obj, warnings: string[], applied?: { managedFields: Obj[] }): Obj {
  const strategy = kernel.strategy(info);
  const around = kernel.surroundings();
  const namespace = info.namespaced ? call.info.namespace : '';
  const object = toStored(info.group, info.version, given);
  const metadata: Obj = object['metadata'];
  if ((metadata['namespace'] ?? '') !== '' && info.namespaced && metadata['namespace'] !== namespace) {
    throw badRequest(`the namespace of the provided object does not match the namespace sent on the request`);
  }
  if ((metadata['resourceVersion'] ?? '') !== '' && metadata['resourceVersion'] !== '0')
    throw badRequest('resourceVersion should not be set on objects to be created');
  for (const key of ['uid', 'resourceVersion', 'selfLink', 'deletionTimestamp', 'deletionGracePeriodSeconds', 'generation', 'creationTimestamp'])
    delete metadata[key];
  if (info.namespaced) metadata['namespace'] = namespace;
  else delete metadata['namespace'];
  const isGenerated = (metadata['name'] ?? '') === '' && (metadata['generateName'] ?? '') !== '';
  if (isGenerated) {
    const base: string = metadata['generateName'];
    do metadata['name'] = `${base.slice(0, 58)}${around.suffix(5)}`;
    while (kernel.store.get(collectionOf(info), namespace, metadata['name']) !== undefined);
  }
  strategy.defaults?.(object);
  admitCreate(info, object, call.user, around, warnings);
  const managedFields =
    applied?.managedFields ??
    trackUpdate(kernel.types, kernel.types.definition(info.definition), {}, withoutStatus(info, object), writerOf(kernel, info, call));
  if (strategy.hasGeneration) metadata['generation'] = 1;
  metadata['uid'] = kernel.rng.uuid();
  metadata['creationTimestamp'] = around.now;
  strategy.prepareCreate?.(object, around);
  const causes = [...checkMetadata(metadata, strategy.nameRule, info.namespaced), ...(strategy.validate?.(object, undefined, around) ?? [])];
  if (causes.length > 0) throw invalid(info.group, info.kind, metadata['name'] ?? metadata['generateName'] ?? '', causes);
  if (kernel.store.get(collectionOf(info), namespace, metadata['name']) !== undefined) throw alreadyExists(info, metadata['name']);
  if (managedFields === undefined) delete metadata['managedFields'];
  else metadata['managedFields'] = managedFields;
  if (isDryRun(call.query)) return object;
  return kernel.store.put(collectionOf(info), namespace, metadata['name'], orderFields(object)).object;
}

const hasStatusPath = (info: ResourceInfo): boolean => info.subresources?.some((sub) => sub.name === 'status') === true;

/** What a write through the main resource is recorded for: the status is none of its business where it has a path of its own. */
function withoutStatus(info: ResourceInfo, object: Obj): Obj {
  if (!hasStatusPath(info) || object['status'] === undefined) return object;
  const { status: _, ...rest } = object;
  return rest;
}

/** apiVersion, kind and metadata first, as everything prints them. */
function orderFields(object: Obj): Obj {
  const { apiVersion, kind, metadata, spec, status, ...rest } = object;
  const out: Obj = { apiVersion, kind, metadata, ...rest };
  if (spec !== undefined) out['spec'] = spec;
  if (status !== undefined) out['status'] = status;
  return out;
}

export interface UpdateOptions {
  /** `status` and the like: which part of the object a write may change. */
  merge?(next: Obj, old: Obj): Obj;
  /** managedFields that were worked out already (apply). */
  isApply?: boolean;
  skipValidation?: boolean;
}

/** The update path after decoding or patching; synchronous. `next` is in the served version. */
export function updateObject(kernel: Kernel, info: ResourceInfo, call: Call, old: Entry, next: Obj, options: UpdateOptions = {}): Obj {
  const strategy = kernel.strategy(info);
  const around = kernel.surroundings();
  const name = old.name;
  let object = toStored(info.group, info.version, next);
  const metadata: Obj = object['metadata'];
  if ((metadata['namespace'] ?? '') === '' && info.namespaced) metadata['namespace'] = old.namespace;
  if ((metadata['name'] ?? '') !== '' && metadata['name'] !== name) {
    throw badRequest(`the name of the object (${metadata['name']}) does not match the name on the URL (${name})`);
  }
  metadata['name'] = name;
  const version = metadata['resourceVersion'] ?? '';
  if (version === '' && strategy.needsVersion === true && call.method === 'PUT') {
    throw invalid(info.group, info.kind, name, [
      { reason: 'FieldValueInvalid', field: 'metadata.resourceVersion', message: 'Invalid value: 0: must be specified for an update' },
    ]);
  }
  if (version !== '' && version !== '0' && version !== String(old.revision)) throw staleWrite(info, name);
  const before = old.object;
  const kept: Obj = before['metadata'];
  if ((metadata['uid'] ?? '') !== '' && metadata['uid'] !== kept['uid']) {
    throw conflict(info, name, `Precondition failed: UID in precondition: ${metadata['uid']}, UID in object meta: ${kept['uid']}`);
  }
  for (const key of ['uid', 'creationTimestamp', 'selfLink', 'deletionTimestamp', 'deletionGracePeriodSeconds', 'generation', 'generateName']) {
    if (kept[key] === undefined) delete metadata[key];
    else metadata[key] = kept[key];
  }
  metadata['resourceVersion'] = kept['resourceVersion'];
  if (options.merge === undefined) {
    strategy.defaults?.(object);
    if (hasStatusPath(info)) {
      if (before['status'] === undefined) delete object['status'];
      else object['status'] = before['status'];
    }
  } else object = options.merge(object, before);
  admitUpdate(info, object, before, call.user, around);
  if (options.isApply !== true) {
    const managedFields = trackUpdate(kernel.types, kernel.types.definition(info.definition), before, object, writerOf(kernel, info, call));
    if (managedFields === undefined) delete object['metadata'].managedFields;
    else object['metadata'].managedFields = managedFields;
  }
  if (options.merge === undefined) strategy.prepareUpdate?.(object, before, around);
  if (strategy.hasGeneration && !same(specOf(object), specOf(before))) object['metadata'].generation = (kept['generation'] ?? 0) + 1;
  const causes: Cause[] = [];
  causes.push(...checkMetadata(object['metadata'], strategy.nameRule, info.namespaced), ...checkMetadataUpdate(object['metadata'], kept));
  if (options.merge === undefined || options.skipValidation !== true) causes.push(...(strategy.validate?.(object, before, around) ?? []));
  if (causes.length > 0) throw invalid(info.group, info.kind, name, causes);
  if (sameButTimes(object, before)) return before;
  if (isDryRun(call.query)) return object;
  const endsNow =
    kept['deletionTimestamp'] !== undefined && (object['metadata'].finalizers ?? []).length === 0 && (object['metadata'].deletionGracePeriodSeconds ?? 0) === 0;
  const isHeldBySpec = info.group === '' && info.resource === 'namespaces' && (object['spec']?.finalizers ?? []).length > 0;
  if (endsNow && !isHeldBySpec) return kernel.store.remove(collectionOf(info), old.namespace, name, orderFields(object)).object;
  return kernel.store.put(collectionOf(info), old.namespace, name, orderFields(object)).object;
}

/** A write that changes nothing but the times in managedFields is no write. */
function sameButTimes(next: Obj, old: Obj): boolean {
  const strip = (object: Obj): Obj => ({ ...object, metadata: { ...object['metadata'], managedFields: undefined } });
  if (!same(strip(next), strip(old))) return false;
  const fields = (object: Obj): string => canonical((object['metadata'].managedFields ?? []).map((entry: Obj) => ({ ...entry, time: undefined })));
  return fields(next) === fields(old);
}

export async function update(kernel: Kernel, info: ResourceInfo, call: Call, options: UpdateOptions = {}): Promise<Answer> {
  const warnings: string[] = [];
  const object = await decodeObject(kernel, info, call, warnings);
  const old = kernel.store.get(collectionOf(info), info.namespaced ? call.info.namespace : '', call.info.name);
  if (old === undefined) {
    if (kernel.strategy(info).createOnUpdate !== true || options.merge !== undefined) throw notFound(info, call.info.name);
    object['metadata'].name ??= call.info.name;
    return answerWith(kernel, info, 201, createObject(kernel, info, call, object, warnings), warnings);
  }
  return answerWith(kernel, info, 200, updateObject(kernel, info, call, old, object, options), warnings);
}

const LAST_APPLIED = 'kubectl.kubernetes.io/last-applied-configuration';

const PATCHES: Record<string, 'json' | 'merge' | 'strategic' | 'apply'> = {
  'application/json-patch+json': 'json',
  'application/merge-patch+json': 'merge',
  'application/strategic-merge-patch+json': 'strategic',
  'application/apply-patch+yaml': 'apply',
  'application/apply-patch+json': 'apply',
};

export async function patch(kernel: Kernel, info: ResourceInfo, call: Call, options: UpdateOptions = {}): Promise<Answer> {
  const kind = PATCHES[call.contentType.split(';')[0]!.trim()];
  if (kind === undefined) throw unsupportedMedia(Object.keys(PATCHES).filter((type) => type !== 'application/apply-patch+json'));
  const warnings: string[] = [];
  const body = await parseBody(kernel, call);
  const old = kernel.store.get(collectionOf(info), info.namespaced ? call.info.namespace : '', call.info.name);
  if (kind === 'apply') return applyPatch(kernel, info, call, old, body, options);
  if (call.query.get('force') !== null) throw badRequest('PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be specified for non-apply patch');
  if (old === undefined) throw notFound(info, call.info.name);
  const served = copy(toServed(info.group, info.version, old.object));
  const next = patched(kernel, info, kind, served, body);
  fitPatched(kernel, info, next, call, warnings);
  next['apiVersion'] = apiVersionOf(info);
  next['kind'] = info.kind;
  if (!isObject(next['metadata'])) throw badRequest('the patch removes metadata');
  return answerWith(kernel, info, 200, updateObject(kernel, info, call, old, next, options), warnings);
}

/** A patch that leads to something of the wrong type is itself what is invalid. */
function fitPatched(kernel: Kernel, info: ResourceInfo, next: Obj, call: Call, warnings: string[]): void {
  const text = JSON.stringify(next);
  try {
    fitObject(kernel, info, next, { ...call, body: { kind: 'none' } }, warnings);
  } catch (error) {
    const why = error instanceof Failure ? /json: cannot unmarshal .*/.exec(error.message)?.[0] : undefined;
    if (why === undefined) throw error;
    const message = `Invalid value: ${JSON.stringify(text)}: ${why}`;
    throw new Failure(422, 'Invalid', ` "" is invalid: patch: ${message}`, { causes: [{ reason: 'FieldValueInvalid', message, field: 'patch' }] });
  }
}

function patched(kernel: Kernel, info: ResourceInfo, kind: 'json' | 'merge' | 'strategic', served: Obj, body: unknown): Obj {
  if (kind === 'json') return applyJsonPatch(served, body);
  if (!isObject(body)) throw badRequest('error decoding patch: a patch of this type is an object');
  if (kind === 'merge') return applyMergePatch(served, body) as Obj;
  return copy(applyStrategicPatch(kernel.types, kernel.types.definition(info.definition), served, body));
}

async function applyPatch(kernel: Kernel, info: ResourceInfo, call: Call, old: Entry | undefined, body: unknown, options: UpdateOptions): Promise<Answer> {
  if (!isObject(body)) throw badRequest('error decoding YAML: an applied configuration is an object');
  if ((call.query.get('fieldManager') ?? '') === '') {
    throw invalid('meta.k8s.io', 'PatchOptions', '', [
      { reason: 'FieldValueRequired', field: 'fieldManager', message: 'Required value: is required for apply patch' },
    ]);
  }
  const warnings: string[] = [];
  const config = body;
  if (config['apiVersion'] !== apiVersionOf(info) || config['kind'] !== info.kind) {
    throw badRequest(`invalid object type: ${String(config['apiVersion'])}, Kind=${String(config['kind'])}, expected ${apiVersionOf(info)}, Kind=${info.kind}`);
  }
  if (!isObject(config['metadata'])) config['metadata'] = {};
  if (config['metadata'].managedFields !== undefined) throw badRequest('metadata.managedFields must be nil');
  fitObject(kernel, info, config, call, warnings);
  // Through its main path an object's status is neither set nor owned.
  if (options.merge === undefined && hasStatusPath(info)) delete config['status'];
  config['metadata'].name ??= call.info.name;
  if (config['metadata'].name !== call.info.name)
    throw badRequest(`the name of the object (${config['metadata'].name}) does not match the name on the URL (${call.info.name})`);
  const force = ['true', '1'].includes(call.query.get('force') ?? '');
  const shape = kernel.types.definition(info.definition);
  const writer = writerOf(kernel, info, call);
  if (old === undefined) {
    if (options.merge !== undefined) throw notFound(info, call.info.name);
    if ((config['metadata'].uid ?? '') !== '')
      throw conflict(info, call.info.name, `uid mismatch: the provided object specified uid ${config['metadata'].uid}, and no existing object was found`);
    if (info.namespaced) config['metadata'].namespace ??= call.info.namespace;
    const made = serverSideApply(kernel.types, shape, { metadata: {} }, config, writer, force);
    const { managedFields, ...metadata } = made['metadata'];
    return answerWith(kernel, info, 201, createObject(kernel, info, call, { ...made, metadata }, warnings, { managedFields }), warnings);
  }
  const served = copy(toServed(info.group, info.version, old.object));
  const version = config['metadata'].resourceVersion;
  if (version !== undefined && version !== String(old.revision)) throw staleWrite(info, call.info.name);
  const merged = copy(serverSideApply(kernel.types, shape, served, config, writer, force));
  // Who moved from client-side to server-side apply can go back: the annotation follows what kubectl applies.
  if (writer.name === 'kubectl' && merged['metadata'].annotations?.[LAST_APPLIED] !== undefined)
    merged['metadata'].annotations[LAST_APPLIED] = `${canonical(config)}\n`;
  return answerWith(kernel, info, 200, updateObject(kernel, info, call, old, merged, { ...options, isApply: true }), warnings);
}

async function deleteRequest(kernel: Kernel, call: Call): Promise<DeleteRequest> {
  const body = await parseBody(kernel, call);
  const out: DeleteRequest = isObject(body) ? { ...(body as DeleteRequest) } : {};
  const { query } = call;
  if (query.has('gracePeriodSeconds')) out.gracePeriodSeconds ??= intOf(query, 'gracePeriodSeconds');
  if (query.has('propagationPolicy')) out.propagationPolicy ??= query.get('propagationPolicy')!;
  if (query.has('orphanDependents')) out.orphanDependents ??= query.get('orphanDependents') === 'true';
  const dryRun = (body as Obj | undefined)?.['dryRun'];
  if (Array.isArray(dryRun) && dryRun.length > 0) query.set('dryRun', String(dryRun[0]));
  return out;
}

/** Deletes one object as the request says. Returns what is left of it. */
export function deleteObject(kernel: Kernel, info: ResourceInfo, call: Call, entry: Entry, request: DeleteRequest): { object: Obj; isGone: boolean } {
  const strategy = kernel.strategy(info);
  const collection = collectionOf(info);
  const isNamespace = collection === '/namespaces';
  admitDelete(info, entry.object, call.user);
  const plan = planDeletion(info.kind, {
    object: entry.object,
    request,
    nowMs: kernel.clock.nowMs(),
    defaultGraceSeconds: strategy.graceSeconds,
    time: rfc3339,
  });
  if (isNamespace) return deleteNamespace(kernel, info, call, entry, plan.do);
  if (plan.do === 'nothing') return { object: entry.object, isGone: false };
  if (isDryRun(call.query)) return { object: plan.do === 'mark' ? plan.object : entry.object, isGone: plan.do === 'remove' };
  if (plan.do === 'mark') return { object: kernel.store.put(collection, entry.namespace, entry.name, plan.object).object, isGone: false };
  return { object: kernel.store.remove(collection, entry.namespace, entry.name, entry.object).object, isGone: true };
}

/** A namespace is only marked; what empties it takes its own finalizer away afterwards. */
function deleteNamespace(kernel: Kernel, info: ResourceInfo, call: Call, entry: Entry, plan: 'remove' | 'mark' | 'nothing'): { object: Obj; isGone: boolean } {
  if (['default', 'kube-system', 'kube-public'].includes(entry.name))
    throw new Failure(403, 'Forbidden', `namespaces "${entry.name}" is forbidden: this namespace may not be deleted`, { name: entry.name, kind: 'namespaces' });
  const { object } = entry;
  if (object['metadata'].deletionTimestamp === undefined) {
    const metadata = { ...object['metadata'], deletionTimestamp: rfc3339(kernel.clock.nowMs()) };
    const marked = { ...object, metadata, status: { ...object['status'], phase: 'Terminating' } };
    if (isDryRun(call.query)) return { object: marked, isGone: false };
    return { object: kernel.store.put(collectionOf(info), '', entry.name, marked).object, isGone: false };
  }
  if ((object['spec']?.finalizers ?? []).length > 0) {
    throw conflict(
      info,
      entry.name,
      'The system is ensuring all content is removed from this namespace.  Upon completion, this namespace will automatically be purged by the system.',
    );
  }
  if (plan === 'remove' && !isDryRun(call.query)) return { object: kernel.store.remove(collectionOf(info), '', entry.name, object).object, isGone: true };
  return { object, isGone: false };
}

export async function remove(kernel: Kernel, info: ResourceInfo, call: Call): Promise<Answer> {
  const request = await deleteRequest(kernel, call);
  const entry = kernel.store.get(collectionOf(info), info.namespaced ? call.info.namespace : '', call.info.name);
  if (entry === undefined) throw notFound(info, call.info.name);
  const { object, isGone } = deleteObject(kernel, info, call, entry, request);
  if (!isGone || kernel.strategy(info).returnsDeleted === true) return answerWith(kernel, info, 200, object, []);
  await kernel.store.committed();
  const details = { name: entry.name, group: info.group === '' ? undefined : info.group, kind: info.resource, uid: object['metadata'].uid };
  return { status: 200, kind: 'object', object: { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', details } };
}

export async function removeCollection(kernel: Kernel, info: ResourceInfo, call: Call): Promise<Answer> {
  const request = await deleteRequest(kernel, call);
  const { entries, metadata } = await list(kernel, info, info.namespaced ? call.info.namespace : '', call.query);
  for (const entry of entries) {
    const current = kernel.store.get(collectionOf(info), entry.namespace, entry.name);
    if (current !== undefined && current.object['metadata'].uid === entry.object['metadata'].uid) deleteObject(kernel, info, call, current, request);
  }
  await kernel.store.committed();
  return { status: 200, kind: 'list', resource: info, entries, metadata };
}
