import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeObject, ObjectMeta, OwnerReference, ResourceRef } from '../../base/kubeapi/types.ts';
import { decideFate, type GcDecision, type GraphWork, type Identity, ORPHAN, OwnershipGraph, type OwnerState } from '../core/controllers/ownership.ts';
import { at, dropManagedFields } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import { discover, type Served } from './discovery.ts';
import type { Store, Stores } from './store.ts';

const REDISCOVER_MS = 30_000;
const REDISCOVER_QUIET_MS = 5 * 60_000;
const SYNC_PATIENCE_MS = 30_000;
/**
 * An orphaning owner is often made again under its name at once. kubectl waits for a deletion by a GET, then a list: when
 * the old one vanishes between the two, it takes the new one for the old and waits for ever.
 */
const ORPHAN_PAUSE_MS = 100;
const DISCOVER = 'discover';
/** Nothing depends on Events and they come by the thousand. */
const IGNORED = new Set(['events', 'events.events.k8s.io']);

/** Collections that other controllers keep whole; the rest is kept as metadata only. */
const KEPT_WHOLE = new Set([
  'pods',
  'nodes',
  'services',
  'endpoints',
  'namespaces',
  'serviceaccounts',
  'persistentvolumeclaims',
  'daemonsets.apps',
  'deployments.apps',
  'replicasets.apps',
  'endpointslices.discovery.k8s.io',
  'customresourcedefinitions.apiextensions.k8s.io',
]);

const nameOf = (ref: ResourceRef): string => (ref.group === '' ? ref.resource : `${ref.resource}.${ref.group}`);

function metadataOnly<T extends KubeObject>(object: T): T {
  const { metadata, apiVersion, kind } = dropManagedFields(object);
  return { apiVersion, kind, metadata } as T;
}

/** Deletes what has lost all its owners, in the order the deletion policies ask for; lets orphans go. */
export function startGarbageCollector(deps: ControlDeps, stores: Stores): Controller {
  return new Collector(deps, stores).controller;
}

class Collector {
  readonly controller: Controller;
  readonly #deps: ControlDeps;
  readonly #stores: Stores;
  readonly #graph = new OwnershipGraph();
  readonly #kinds = new Map<string, Served>();
  readonly #monitors = new Map<string, Store<KubeObject>>();
  readonly #startedMs = new Map<string, number>();

  constructor(deps: ControlDeps, stores: Stores) {
    this.#deps = deps;
    this.#stores = stores;
    this.controller = runController(deps, {
      name: 'garbage-collector',
      needs: [],
      concurrency: 10,
      sync: (key, signal) => this.#sync(key, signal),
      retry: { baseMs: 5, maxMs: 30_000 },
    });
    this.controller.add(DISCOVER);
  }

  async #sync(key: string, signal: AbortSignal): Promise<number | undefined> {
    if (key === DISCOVER) return this.#discover(signal);
    const [verb, uid = ''] = key.split('/');
    if (!this.#isComplete()) return 200;
    if (verb === 'orphan') await this.#orphan(uid, signal);
    else await this.#check(uid, signal);
    return undefined;
  }

  /** Owners that are only not listed yet must not count as absent; a kind that cannot be listed must not stop the rest. */
  #isComplete(): boolean {
    const patienceEndedMs = this.#deps.clock.monoMs() - SYNC_PATIENCE_MS;
    return [...this.#monitors].every(([name, store]) => store.isSynced || (this.#startedMs.get(name) ?? 0) < patienceEndedMs);
  }

  /** New kinds get a monitor; those that are gone lose theirs. */
  async #discover(signal: AbortSignal): Promise<number> {
    const found = await discover(this.#deps, signal);
    // All kinds first: an object may name an owner of a kind that comes later in the list.
    for (const served of found.resources) this.#kinds.set(kindKey(served.group, served.kind), served);
    for (const served of found.resources) {
      const name = nameOf(served);
      const watchable = ['list', 'watch', 'delete'].every((verb) => served.verbs.includes(verb));
      if (watchable && !IGNORED.has(name) && !this.#monitors.has(name)) this.#monitor(name, served);
    }
    for (const [group, reason] of found.failures) this.#deps.log.debug(1, 'group not discovered', { group, err: reason });
    return found.failures.size > 0 ? REDISCOVER_MS : REDISCOVER_QUIET_MS;
  }

  #monitor(name: string, served: Served): void {
    const { group, version, resource, kind } = served;
    const trim = KEPT_WHOLE.has(name) ? dropManagedFields : metadataOnly;
    const store = this.#stores.of<KubeObject>({ group, version, resource }, { trim });
    this.#monitors.set(name, store);
    this.#startedMs.set(name, this.#deps.clock.monoMs());
    store.onChange((object, _before, type) => {
      const identity = identityOf(served, kind, object.metadata);
      if (type === 'gone') this.#enqueue(this.#graph.remove(identity.uid));
      else this.#enqueue(this.#graph.upsert(identity, object.metadata, (owner) => this.#ownerIdentity(owner, identity.namespace)));
    });
    // A new kind of resource is served a moment after its definition.
    if (name === 'customresourcedefinitions.apiextensions.k8s.io') store.onChange(() => this.controller.addAfter(DISCOVER, 1000));
  }

  #enqueue(work: GraphWork): void {
    for (const uid of work.check) this.controller.add(`check/${uid}`);
    for (const uid of work.orphan) this.controller.add(`orphan/${uid}`);
  }

  /** An owner of a kind that is not served has no resource. */
  #ownerIdentity(owner: OwnerReference, namespace: string): Identity {
    const ownerGroup = owner.apiVersion.includes('/') ? (owner.apiVersion.split('/')[0] ?? '') : '';
    const served = this.#kinds.get(kindKey(ownerGroup, owner.kind));
    const { group, version, resource } = served ?? { group: ownerGroup, version: '', resource: '' };
    return { group, version, resource, kind: owner.kind, namespace: served?.namespaced === false ? '' : namespace, name: owner.name, uid: owner.uid };
  }

  async #live(identity: Identity, signal: AbortSignal): Promise<KubeObject | undefined> {
    try {
      const object = await this.#deps.api.get<KubeObject>(refOf(identity), {}, signal);
      return object.metadata.uid === identity.uid ? object : undefined;
    } catch (error) {
      if (isApiError(error, 404)) return undefined;
      throw error;
    }
  }

  async #check(uid: string, signal: AbortSignal): Promise<void> {
    const identity = this.#graph.get(uid);
    if (identity === undefined || identity.resource === '') return;
    // A cluster-wide object cannot be owned by something in a namespace: such references are never acted on.
    const object = await this.#live(identity, signal);
    if (object === undefined) {
      this.#enqueue(this.#graph.remove(uid));
      return;
    }
    if (this.#graph.isVirtual(uid)) return;
    const owners = new Map<string, OwnerState>();
    for (const owner of object.metadata.ownerReferences ?? []) owners.set(owner.uid, await this.#ownerState(owner, identity, signal));
    await this.#act(identity, object, decideFate(object.metadata, owners, this.#graph), signal);
  }

  async #ownerState(owner: OwnerReference, dependent: Identity, signal: AbortSignal): Promise<OwnerState> {
    const served = this.#ownerIdentity(owner, dependent.namespace);
    // Unknown kinds and impossible scopes count as present: nothing is deleted on a guess.
    if (served.resource === '') return 'solid';
    const isClusterWide = this.#kinds.get(kindKey(served.group, served.kind))?.namespaced === false;
    if (dependent.namespace === '' && !isClusterWide) return 'solid';
    const object = await this.#live(served, signal);
    if (object === undefined) return 'absent';
    const waits = Boolean(object.metadata.deletionTimestamp) && (object.metadata.finalizers ?? []).includes('foregroundDeletion');
    return waits ? 'waits' : 'solid';
  }

  async #act(identity: Identity, object: KubeObject, decision: GcDecision, signal: AbortSignal): Promise<void> {
    const { uid } = identity;
    switch (decision.kind) {
      case 'none':
        return;
      case 'removeFinalizer':
        return this.#removeFinalizer(identity, object, decision.finalizer, signal);
      case 'checkDependents':
        this.#enqueue({ check: decision.uids, orphan: [] });
        return;
      case 'dropOwners':
        return this.#patchOwners(identity, object, (owner) => (decision.uids.includes(owner.uid) ? undefined : owner), signal);
      case 'delete': {
        if (decision.unblockOwners) await this.#patchOwners(identity, object, (owner) => ({ ...owner, blockOwnerDeletion: false }), signal);
        const preconditions = {
          uid,
          ...(decision.unblockOwners || object.metadata.resourceVersion === undefined ? {} : { resourceVersion: object.metadata.resourceVersion }),
        };
        try {
          const answer = await this.#deps.api.delete(refOf(identity), { propagationPolicy: decision.policy, preconditions }, {}, signal);
          this.#monitors.get(nameOf(identity))?.deleting(object, answer);
        } catch (error) {
          if (isApiError(error, 404)) this.#enqueue(this.#graph.remove(uid));
          else throw error;
        }
      }
    }
  }

  /** The owner goes, its dependents stay: first they are let go, then it. */
  async #orphan(uid: string, signal: AbortSignal): Promise<void> {
    const identity = this.#graph.get(uid);
    if (identity === undefined) return;
    const results = await Promise.allSettled(
      this.#graph.dependents(uid).map(async (dependent) => {
        const object = await this.#live(dependent, signal);
        if (object !== undefined) await this.#patchOwners(dependent, object, (owner) => (owner.uid === uid ? undefined : owner), signal);
      }),
    );
    const failed = results.find((result) => result.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    await this.#deps.clock.sleep(ORPHAN_PAUSE_MS, signal);
    const owner = await this.#live(identity, signal);
    if (owner !== undefined) await this.#removeFinalizer(identity, owner, ORPHAN, signal);
  }

  async #patchOwners(
    identity: Identity,
    object: KubeObject,
    change: (owner: OwnerReference) => OwnerReference | undefined,
    signal: AbortSignal,
  ): Promise<void> {
    const ownerReferences = (object.metadata.ownerReferences ?? []).flatMap((owner) => change(owner) ?? []);
    await this.#patchMetadata(identity, object, { ownerReferences: ownerReferences.length === 0 ? null : ownerReferences }, signal);
  }

  async #removeFinalizer(identity: Identity, object: KubeObject, finalizer: string, signal: AbortSignal): Promise<void> {
    const finalizers = (object.metadata.finalizers ?? []).filter((other) => other !== finalizer);
    await this.#patchMetadata(identity, object, { finalizers: finalizers.length === 0 ? null : finalizers }, signal);
  }

  async #patchMetadata(identity: Identity, object: KubeObject, change: Record<string, unknown>, signal: AbortSignal): Promise<void> {
    const { uid, resourceVersion } = object.metadata;
    try {
      const patched = await this.#deps.api.patch<KubeObject>(refOf(identity), 'merge', { metadata: { uid, resourceVersion, ...change } }, {}, signal);
      const name = nameOf(identity);
      if (patched.metadata?.uid === uid) this.#monitors.get(name)?.wrote(KEPT_WHOLE.has(name) ? patched : metadataOnly(patched));
    } catch (error) {
      if (!isApiError(error, 404)) {
        this.#deps.log.debug(3, 'metadata not patched', { object: identity.name, err: messageOf(error) });
        throw error;
      }
    }
  }
}

function kindKey(group: string, kind: string): string {
  return `${group}/${kind}`;
}

function identityOf(served: Served, kind: string, metadata: ObjectMeta): Identity {
  const { group, version, resource } = served;
  return { group, version, resource, kind, namespace: metadata.namespace ?? '', name: metadata.name ?? '', uid: metadata.uid ?? '' };
}

function refOf(identity: Identity): ResourceRef {
  const { group, version, resource, namespace, name } = identity;
  return at({ group, version, resource }, { metadata: { namespace, name } });
}
