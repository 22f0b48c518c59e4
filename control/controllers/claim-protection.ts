import { isApiError } from '../../base/kubeapi/errors.ts';
import type { PersistentVolumeClaim, Pod } from '../../proto/kube/types.ts';
import { keyOf } from '../core/controllers/owners.ts';
import { isPodTerminal } from '../core/controllers/pods.ts';
import { at, CLAIMS, claimStore, podStore } from './collections.ts';
import { type Controller, runController } from './controller.ts';
import type { ControlDeps } from './deps.ts';
import type { Stores } from './store.ts';

const FINALIZER = 'kubernetes.io/pvc-protection';

function claimsOf(pod: Pod): string[] {
  return (pod.spec.volumes ?? []).flatMap((volume) => {
    if (volume.persistentVolumeClaim !== undefined) return [`${pod.metadata.namespace}/${volume.persistentVolumeClaim.claimName}`];
    return volume.ephemeral === undefined ? [] : [`${pod.metadata.namespace}/${pod.metadata.name}-${volume.name}`];
  });
}

/** A claim that is deleted goes when no pod uses it any more. */
export function startClaimProtection(deps: ControlDeps, stores: Stores): Controller {
  const claims = claimStore(stores);
  const pods = podStore(stores);
  pods.addIndex('claim', claimsOf);

  const sync = async (key: string, signal: AbortSignal): Promise<void> => {
    const claim = claims.get(key);
    if (claim === undefined || !mayGo(claim)) return;
    if (pods.by('claim', key).some((pod) => Boolean(pod.spec.nodeName) && !isPodTerminal(pod))) return;
    const finalizers = (claim.metadata.finalizers ?? []).filter((finalizer) => finalizer !== FINALIZER);
    const metadata = { uid: claim.metadata.uid, resourceVersion: claim.metadata.resourceVersion, finalizers: finalizers.length === 0 ? null : finalizers };
    try {
      await deps.api.patch<PersistentVolumeClaim>(at(CLAIMS, claim), 'merge', { metadata }, {}, signal);
    } catch (error) {
      if (!isApiError(error, 404)) throw error;
    }
  };
  const controller = runController(deps, { name: 'pvc-protection', needs: [claims, pods] as never[], sync });

  claims.onChange((claim, _before, type) => {
    if (type !== 'gone' && mayGo(claim)) controller.add(keyOf(claim));
  });
  pods.onChange((pod, _before, type) => {
    if (type === 'gone' || isPodTerminal(pod)) for (const key of claimsOf(pod)) controller.add(key);
  });
  return controller;
}

function mayGo(claim: PersistentVolumeClaim): boolean {
  return Boolean(claim.metadata.deletionTimestamp) && (claim.metadata.finalizers ?? []).includes(FINALIZER);
}
