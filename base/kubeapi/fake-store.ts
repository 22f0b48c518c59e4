import resourcesJson from '../../proto/kube/resources.json' with { type: 'json' };
import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { assert } from '../assert.ts';
import { rfc3339, type Clock } from '../clock.ts';
import type { Rng } from '../rng.ts';
import { ApiError } from './errors.ts';
import type { DeleteOptions, KubeObject, ResourceRef } from './types.ts';

const known: ReadonlyMap<string, ResourceInfo> = new Map(
  (resourcesJson as unknown as ResourceInfo[]).map((info) => [`${info.group}/${info.version}/${info.resource}`, info]),
);

/** What is known of a resource; one that is not in Kubernetes itself is taken for a namespaced custom one. */
export function infoOf(ref: ResourceRef): ResourceInfo {
  const { group, version, resource } = ref;
  const found = known.get(`${group}/${version}/${resource}`);
  if (found !== undefined) return found;
  const singular = resource.replace(/s$/, '');
  const kind = singular.charAt(0).toUpperCase() + singular.slice(1);
  const namespaced = ref.namespace !== undefined;
  return { group, version, resource, singular, kind, namespaced, verbs: [], definition: kind, subresources: [{ name: 'status', kind, verbs: [] }] };
}

export interface Change {
  version: number;
  resource: string;
  object: KubeObject;
  /** Absent when the object is new. */
  before?: KubeObject;
  deleted: boolean;
}

type Body = KubeObject & { spec?: Record<string, unknown>; status?: unknown };

function resourceKey({ group, resource }: ResourceRef): string {
  return group === '' ? resource : `${resource}.${group}`;
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Objects with versions, as etcd and the registries in front of it keep them. */
export class FakeStore {
  readonly #clock: Clock;
  readonly #rng: Rng;
  readonly #objects = new Map<string, Map<string, Body>>();
  readonly #changes: Change[] = [];
  #version = 1;
  /** Changes up to here are forgotten: watches from before are refused with 410. */
  #compactedAt = 0;
  onChange: (change: Change) => void = () => {};

  constructor(clock: Clock, rng: Rng) {
    this.#clock = clock;
    this.#rng = rng;
  }

  get version(): number {
    return this.#version;
  }

  get compactedAt(): number {
    return this.#compactedAt;
  }

  compact(): void {
    this.#compactedAt = this.#version;
    this.#changes.length = 0;
  }

  changesAfter(version: number): Change[] {
    return this.#changes.filter((change) => change.version > version);
  }

  list(ref: ResourceRef): KubeObject[] {
    const all = [...(this.#objects.get(resourceKey(ref)) ?? new Map<string, Body>())].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
    return ref.namespace === undefined ? all : all.filter((object) => object.metadata.namespace === ref.namespace);
  }

  find(ref: ResourceRef): Body | undefined {
    return this.#objects.get(resourceKey(ref))?.get(`${ref.namespace ?? ''}/${ref.name ?? ''}`);
  }

  get(ref: ResourceRef): Body {
    const object = this.find(ref);
    if (object === undefined)
      throw new ApiError(404, 'NotFound', `${resourceKey(ref)} "${ref.name}" not found`, { name: ref.name, group: ref.group, kind: ref.resource });
    return object;
  }

  /** Stores an object as it is given, but for its uid, version and creation time where those are missing. */
  put(ref: ResourceRef, given: KubeObject): KubeObject {
    const info = infoOf(ref);
    const object = structuredClone(given) as Body;
    const { metadata } = object;
    assert(metadata.name !== undefined && metadata.name !== '', 'fake API server: an object without a name');
    object.apiVersion ??= info.group === '' ? info.version : `${info.group}/${info.version}`;
    object.kind ??= info.kind;
    metadata.uid ??= this.#rng.uuid();
    metadata.creationTimestamp ??= rfc3339(this.#clock.nowMs());
    if (info.namespaced) metadata.namespace ??= ref.namespace ?? 'default';
    const target: ResourceRef = { ...ref, name: metadata.name };
    if (metadata.namespace !== undefined) target.namespace = metadata.namespace;
    const before = this.find(target);
    if (object.spec !== undefined) metadata.generation ??= before?.metadata.generation ?? 1;
    this.#commit(target, object, before, false);
    return object;
  }

  create(ref: ResourceRef, given: KubeObject): KubeObject {
    const info = infoOf(ref);
    const object = structuredClone(given) as Body;
    object.metadata ??= {};
    const { metadata } = object;
    if (ref.namespace !== undefined && metadata.namespace !== undefined && metadata.namespace !== ref.namespace) {
      throw new ApiError(400, 'BadRequest', 'the namespace of the provided object does not match the namespace sent on the request');
    }
    if ((metadata.name ?? '') === '' && (metadata.generateName ?? '') !== '') metadata.name = `${metadata.generateName}${this.#rng.suffix(5)}`;
    if ((metadata.name ?? '') === '')
      throw new ApiError(422, 'Invalid', `${info.kind} "" is invalid: metadata.name: Required value: name or generateName is required`);
    if ((metadata.resourceVersion ?? '') !== '') throw new ApiError(400, 'BadRequest', 'resourceVersion should not be set on objects to be created');
    const namespace = ref.namespace ?? metadata.namespace;
    const target: ResourceRef = { ...ref, ...(metadata.name !== undefined && { name: metadata.name }), ...(namespace !== undefined && { namespace }) };
    if (this.find(target) !== undefined) {
      throw new ApiError(409, 'AlreadyExists', `${resourceKey(ref)} "${metadata.name}" already exists`, {
        name: metadata.name,
        group: ref.group,
        kind: ref.resource,
      });
    }
    if (info.subresources?.some(({ name }) => name === 'status') === true) delete object.status;
    if (info.kind === 'Pod') object.status = { phase: 'Pending' };
    for (const key of ['uid', 'creationTimestamp', 'generation', 'deletionTimestamp'] as const) delete metadata[key];
    return this.put(target, object);
  }

  /** `given` with the version it was read at, or none to win always. Keeps what the (sub)resource does not own. */
  update(ref: ResourceRef, given: KubeObject): KubeObject {
    const { subresource, ...target } = ref;
    const before = this.get(target);
    const sent = given.metadata.resourceVersion ?? '';
    if (sent !== '' && sent !== before.metadata.resourceVersion) {
      throw new ApiError(
        409,
        'Conflict',
        `Operation cannot be fulfilled on ${resourceKey(ref)} "${ref.name}": the object has been modified; please apply your changes to the latest version and try again`,
        { name: ref.name, group: ref.group, kind: ref.resource },
      );
    }
    if (given.metadata.uid !== undefined && given.metadata.uid !== before.metadata.uid) {
      throw new ApiError(409, 'Conflict', `Precondition failed: UID in precondition: ${given.metadata.uid}, UID in object meta: ${before.metadata.uid}`);
    }
    const object = structuredClone(given) as Body;
    const hasStatus = infoOf(ref).subresources?.some(({ name }) => name === 'status') === true;
    if (subresource === 'status') {
      object.spec = before.spec as Record<string, unknown>;
      if (before.spec === undefined) delete object.spec;
    } else if (hasStatus) {
      object.status = before.status;
      if (before.status === undefined) delete object.status;
    }
    const { uid, creationTimestamp, generation, deletionTimestamp, deletionGracePeriodSeconds, resourceVersion } = before.metadata;
    object.apiVersion = before.apiVersion as string;
    object.kind = before.kind as string;
    object.metadata = { ...object.metadata, ...(ref.namespace !== undefined && { namespace: ref.namespace }), name: before.metadata.name };
    for (const [key, value] of Object.entries({ uid, creationTimestamp, generation, deletionTimestamp, deletionGracePeriodSeconds, resourceVersion })) {
      if (value === undefined) delete (object.metadata as Record<string, unknown>)[key];
      else (object.metadata as Record<string, unknown>)[key] = value;
    }
    if (object.spec !== undefined && !same(object.spec, before.spec)) object.metadata.generation = (generation ?? 1) + 1;
    if (deletionTimestamp !== undefined && (object.metadata.finalizers ?? []).length === 0 && deletionGracePeriodSeconds === 0)
      return this.#remove(target, object);
    if (same(object, { ...before, metadata: { ...object.metadata, ...before.metadata } }) && same(sortedMeta(object), sortedMeta(before))) return before;
    this.#commit(target, object, before, false);
    return object;
  }

  /** Deletes, or marks as being deleted where finalizers or a pod's grace period want it. */
  delete(ref: ResourceRef, options: DeleteOptions = {}): KubeObject {
    const before = this.get(ref);
    const { preconditions } = options;
    for (const key of ['uid', 'resourceVersion'] as const) {
      const wanted = preconditions?.[key];
      if (wanted !== undefined && wanted !== before.metadata[key])
        throw new ApiError(409, 'Conflict', `Precondition failed: ${key} in precondition: ${wanted}, in object meta: ${before.metadata[key]}`);
    }
    const graceSeconds = this.#graceOf(before, options);
    const object = structuredClone(before);
    const finalizers = object.metadata.finalizers ?? [];
    if (graceSeconds === 0 && finalizers.length === 0) return this.#remove(ref, object);
    const shorter = object.metadata.deletionTimestamp === undefined || graceSeconds < (object.metadata.deletionGracePeriodSeconds ?? 0);
    if (!shorter) return before;
    object.metadata.deletionTimestamp = rfc3339(this.#clock.nowMs() + graceSeconds * 1000);
    object.metadata.deletionGracePeriodSeconds = graceSeconds;
    if (object.spec !== undefined) object.metadata.generation = (object.metadata.generation ?? 1) + 1;
    this.#commit(ref, object, before, false);
    return object;
  }

  #graceOf(object: Body, options: DeleteOptions): number {
    if (object.kind !== 'Pod') return 0;
    const spec = object.spec as { nodeName?: string; terminationGracePeriodSeconds?: number } | undefined;
    const phase = (object.status as { phase?: string } | undefined)?.phase;
    if ((spec?.nodeName ?? '') === '' || phase === 'Succeeded' || phase === 'Failed') return 0;
    return options.gracePeriodSeconds ?? spec?.terminationGracePeriodSeconds ?? 30;
  }

  #remove(ref: ResourceRef, object: Body): KubeObject {
    this.#commit(ref, object, this.find(ref), true);
    return object;
  }

  #commit(ref: ResourceRef, object: Body, before: Body | undefined, deleted: boolean): void {
    object.metadata.resourceVersion = String(++this.#version);
    const key = resourceKey(ref);
    const objects = this.#objects.get(key) ?? new Map<string, Body>();
    this.#objects.set(key, objects);
    const at = `${object.metadata.namespace ?? ''}/${object.metadata.name ?? ''}`;
    if (deleted) objects.delete(at);
    else objects.set(at, object);
    const change: Change = { version: this.#version, resource: key, object, deleted, ...(before !== undefined && { before }) };
    this.#changes.push(change);
    this.onChange(change);
  }
}

function sortedMeta({ metadata }: KubeObject): unknown {
  const { resourceVersion: _, ...rest } = metadata;
  return Object.fromEntries(Object.entries(rest).sort(([a], [b]) => (a < b ? -1 : 1)));
}

export { resourceKey };
