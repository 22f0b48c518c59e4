import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeObject, OwnerReference, ResourceRef } from '../../base/kubeapi/types.ts';
import { claimOf } from '../core/controllers/owners.ts';
import { at } from './collections.ts';
import type { ControlDeps } from './deps.ts';
import type { Store } from './store.ts';

export interface ClaimOptions<T extends KubeObject> {
  owner: KubeObject;
  ownerRef: ResourceRef;
  reference: OwnerReference;
  store: Store<T>;
  candidates: readonly T[];
  matches: (object: T) => boolean;
}

/**
 * Adopts orphans that match and releases what no longer does; returns what the owner controls afterwards. Before the
 * first adoption the owner is read again: one that is being deleted must not take anything.
 */
export async function claim<T extends KubeObject>(deps: ControlDeps, options: ClaimOptions<T>, signal: AbortSignal): Promise<T[]> {
  const { owner, ownerRef, reference, store } = options;
  const kept: T[] = [];
  let mayAdopt: boolean | undefined;
  for (const object of options.candidates) {
    const verdict = claimOf(owner, object, options.matches(object));
    if (verdict === 'keep') kept.push(object);
    if (verdict === 'adopt') {
      mayAdopt ??= await isStillThere(deps, owner, ownerRef, signal);
      if (!mayAdopt) continue;
      const adopted = await patchOwners(deps, store, object, { metadata: { uid: object.metadata.uid, ownerReferences: [reference] } }, signal);
      if (adopted !== undefined) kept.push(adopted);
    }
    if (verdict === 'release') {
      await patchOwners(
        deps,
        store,
        object,
        { metadata: { uid: object.metadata.uid, ownerReferences: [{ $patch: 'delete', uid: owner.metadata.uid }] } },
        signal,
      );
    }
  }
  return kept;
}

async function isStillThere(deps: ControlDeps, owner: KubeObject, ownerRef: ResourceRef, signal: AbortSignal): Promise<boolean> {
  const fresh = await deps.api.get(at(ownerRef, owner), {}, signal);
  return fresh.metadata.uid === owner.metadata.uid && !fresh.metadata.deletionTimestamp;
}

/** The UID in the patch makes it fail when the name has another object now. */
async function patchOwners<T extends KubeObject>(deps: ControlDeps, store: Store<T>, object: T, patch: unknown, signal: AbortSignal): Promise<T | undefined> {
  try {
    const patched = await deps.api.patch<T>(at(store.ref, object), 'strategic', patch, {}, signal);
    store.wrote(patched);
    return patched;
  } catch (error) {
    if (isApiError(error, 404) || isApiError(error, 422)) return undefined;
    throw error;
  }
}
