import { isApiError } from '../../base/kubeapi/errors.ts';
import { persistentVolumeClaims, persistentVolumes } from '../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { PersistentVolume, PersistentVolumeClaim, Pod } from '../../proto/kube/types.ts';
import { planHostPath } from '../core/volumes-plan.ts';
import type { HostPathType } from '../core/volumes-plan.ts';

export type Claim = { ok: true; path: string; type: HostPathType } | { ok: false; message: string };

/** Persistent volume claims that end on this node's own disk: hostPath and local volumes. */
export class Claims {
  readonly #api: KubeApi;

  constructor(api: KubeApi) {
    this.#api = api;
  }

  /** Where the volume of a claim lies, or why it cannot be used here. Throws what KubeApi.get throws. */
  async resolve(pod: Pod, plan: { name: string; claimName: string }, signal: AbortSignal): Promise<Claim> {
    const namespace = pod.metadata.namespace ?? '';
    const fail = (detail: string): Claim => {
      const list = `[${plan.name}]`;
      return {
        ok: false,
        message: `Unable to attach or mount volumes: unmounted volumes=${list}, unattached volumes=[], failed to process volumes=${list}: error processing PVC ${namespace}/${plan.claimName}: ${detail}`,
      };
    };
    const options = { timeoutMs: 5000 };
    let claim: PersistentVolumeClaim;
    try {
      claim = await this.#api.get<PersistentVolumeClaim>(persistentVolumeClaims(namespace, plan.claimName), options, signal);
    } catch (error) {
      if (!isApiError(error, 404)) throw error;
      return fail(`failed to fetch PVC from API server: persistentvolumeclaims "${plan.claimName}" not found`);
    }
    if (claim.metadata.deletionTimestamp !== undefined) return fail('PVC is being deleted');
    const volumeName = claim.spec?.volumeName;
    if (claim.status?.phase !== 'Bound' || volumeName === undefined || volumeName === '') return fail('PVC is not bound');
    if (claim.spec?.volumeMode === 'Block') return fail('block volumes are not supported by this node');
    const volume = await this.#api.get<PersistentVolume>(persistentVolumes(volumeName), options, signal);
    const { hostPath, local } = volume.spec;
    if (hostPath === undefined && local === undefined)
      return fail(`volume ${volumeName} is neither a hostPath nor a local volume: others are not supported by this node`);
    const planned = planHostPath(plan.name, hostPath?.path ?? local?.path ?? '', hostPath === undefined ? 'Directory' : (hostPath.type ?? ''));
    return planned.kind === 'hostPath'
      ? { ok: true, path: planned.path, type: planned.type }
      : fail(planned.kind === 'refused' ? planned.message : 'not a path');
  }
}
