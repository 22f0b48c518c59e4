import type { KubeObject, OwnerReference } from '../../../base/kubeapi/types.ts';

export function controllerOf(object: { metadata: { ownerReferences?: OwnerReference[] } }): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find((owner) => owner.controller === true);
}

export function isControlledBy(object: { metadata: { ownerReferences?: OwnerReference[] } }, owner: { metadata: { uid?: string } }): boolean {
  const uid = controllerOf(object)?.uid;
  return uid !== undefined && uid === owner.metadata.uid;
}

/** The reference a controller writes into what it makes. */
export function controllerRef(owner: KubeObject, apiVersion: string, kind: string): OwnerReference {
  return { apiVersion, kind, name: owner.metadata.name ?? '', uid: owner.metadata.uid ?? '', controller: true, blockOwnerDeletion: true };
}

/** `namespace/name`, or the name alone for what has no namespace. */
export function keyOf(object: { metadata: { namespace?: string; name?: string } }): string {
  const { namespace, name } = object.metadata;
  return namespace ? `${namespace}/${name}` : (name ?? '');
}

export function splitKey(key: string): { namespace: string; name: string } {
  const slash = key.indexOf('/');
  return slash < 0 ? { namespace: '', name: key } : { namespace: key.slice(0, slash), name: key.slice(slash + 1) };
}

/** What a controller of a kind may do with one object that its selector or its reference points at. */
export type Claim = 'keep' | 'adopt' | 'release' | 'ignore';

/** Adoption and release: one rule for ReplicaSets over pods and Deployments over ReplicaSets. */
export function claimOf(owner: KubeObject, object: KubeObject, matches: boolean): Claim {
  const controller = controllerOf(object);
  if (controller !== undefined) {
    if (controller.uid !== owner.metadata.uid) return 'ignore';
    if (matches) return 'keep';
    return owner.metadata.deletionTimestamp ? 'ignore' : 'release';
  }
  if (owner.metadata.deletionTimestamp || !matches) return 'ignore';
  return object.metadata.deletionTimestamp ? 'ignore' : 'adopt';
}
