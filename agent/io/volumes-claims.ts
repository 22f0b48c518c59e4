import { ApiError } from '../../base/kubeapi/errors.ts';
import { persistentVolumeClaims, persistentVolumes } from '../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Node, PersistentVolume, PersistentVolumeClaim, Pod } from '../../proto/kube/types.ts';
import { affinityProblem, claimProblem, volumeProblem } from '../core/volumes-claim.ts';
import { csiOfPersistentVolume } from '../core/csi/volume.ts';
import type { CsiVolume } from '../core/csi/volume.ts';
import { planHostPath } from '../core/volumes-plan.ts';
import type { HostPathType, NfsExport } from '../core/volumes-plan.ts';

export type Claim =
  | Found
  | {
      /** It failed after the claim was understood, and the message stands alone. */
      readonly isSetUp: boolean;
      readonly ok: false;
      readonly message: string;
    };

/** `group`: whom the volume belongs to; the pod's processes join it. */
type Found = { readonly group?: number } & (
  | { readonly ok: true; readonly kind: 'hostPath'; readonly path: string; readonly type: HostPathType; readonly readOnly: boolean }
  | {
      readonly ok: true;
      readonly kind: 'local';
      readonly specName: string;
      readonly path: string;
      readonly isBlock: boolean;
      readonly readOnly: boolean;
      readonly options: readonly string[];
      readonly fsType: string;
    }
  | { readonly ok: true; readonly kind: 'nfs'; readonly export: NfsExport }
  | { readonly ok: true; readonly kind: 'csi'; readonly volume: CsiVolume; readonly pv: PersistentVolume; readonly pvc: PersistentVolumeClaim }
);

/** Of a busy API server; a pod that comes has nothing else to do. */
const comingTimeoutMs = 30_000;
/** A pod that has its volumes stands still meanwhile: nothing of it is started again. */
const renewTimeoutMs = 5_000;

/** What lies behind persistent volume claims, as the API server says now. */
export class Claims {
  readonly #api: KubeApi;
  readonly #node: () => Node | undefined;

  constructor(api: KubeApi, node: () => Node | undefined) {
    this.#api = api;
    this.#node = node;
  }

  /** The volume of a claim, or why it cannot be used here. `isRenewal`: the pod has it already. Throws what KubeApi.get throws. */
  async resolve(
    pod: Pod,
    plan: { name: string; claimName: string; readOnly: boolean; isEphemeral: boolean },
    isRenewal: boolean,
    signal: AbortSignal,
  ): Promise<Claim> {
    const options = { timeoutMs: isRenewal ? renewTimeoutMs : comingTimeoutMs };
    const namespace = pod.metadata.namespace ?? '';
    const fail = (detail: string): Claim => {
      const list = `[${plan.name}]`;
      return {
        ok: false,
        isSetUp: false,
        message: `Unable to attach or mount volumes: unmounted volumes=${list}, unattached volumes=[], failed to process volumes=${list}: ${detail}`,
      };
    };
    const failClaim = (detail: string): Claim => fail(`error processing PVC ${namespace}/${plan.claimName}: ${detail}`);
    const pvc = await this.#get<PersistentVolumeClaim>(persistentVolumeClaims(namespace, plan.claimName), options, signal);
    if (pvc instanceof ApiError) return failClaim(`failed to fetch PVC from API server: ${pvc.message}`);
    const problem = claimProblem(pvc);
    if (problem !== null) return failClaim(problem);
    if (plan.isEphemeral && !(pvc.metadata.ownerReferences ?? []).some(({ uid, controller }) => uid === pod.metadata.uid && controller === true))
      return fail(`PVC ${namespace}/${plan.claimName} was not created for pod ${namespace}/${pod.metadata.name ?? ''} (pod is not owner)`);
    const pvName = pvc.spec.volumeName ?? '';
    const pv = await this.#get<PersistentVolume>(persistentVolumes(pvName), options, signal);
    if (pv instanceof ApiError) return failClaim(`failed to fetch PV ${pvName} from API server: ${pv.message}`);
    const mismatch = volumeProblem(pod, plan.name, pv, pvc);
    if (mismatch !== null) return mismatch.ofClaim ? failClaim(mismatch.message) : fail(mismatch.message);
    const affinity = affinityProblem(pv, this.#node());
    if (affinity !== null)
      return {
        ok: false,
        isSetUp: true,
        message: `${pv.spec.volumeMode === 'Block' ? 'MapVolume' : 'MountVolume'}.NodeAffinity check failed for volume ${JSON.stringify(pvName)} : ${affinity}`,
      };
    const source = sourceOf(plan, pv, pvc);
    if (source === null) return fail(`no volume plugin matched name: the PersistentVolume ${pvName} is of a kind that this node does not know`);
    const group = groupOf(pv);
    return source.ok && group !== null ? { ...source, group } : source;
  }

  /** The object, or the refusal that says something of it: there is none, or it may not be seen. */
  async #get<T extends PersistentVolume | PersistentVolumeClaim>(
    ref: Parameters<KubeApi['get']>[0],
    options: { timeoutMs: number },
    signal: AbortSignal,
  ): Promise<T | ApiError> {
    try {
      return await this.#api.get<T>(ref, options, signal);
    } catch (error) {
      if (error instanceof ApiError && (error.code === 404 || error.code === 403)) return error;
      throw error;
    }
  }
}

/** What whoever made the volume says of its group; null: nothing, or what is no number. */
function groupOf(pv: PersistentVolume): number | null {
  const text = pv.metadata.annotations?.['pv.beta.kubernetes.io/gid'] ?? '';
  return /^[+-]?\d{1,15}$/.test(text) ? Number(text) : null;
}

function sourceOf(plan: { name: string; readOnly: boolean }, pv: PersistentVolume, pvc: PersistentVolumeClaim): Claim | null {
  const specName = pv.metadata.name ?? '';
  const { hostPath, local, nfs, mountOptions = [] } = pv.spec;
  const isBlock = pv.spec.volumeMode === 'Block';
  const volume = csiOfPersistentVolume(pv, plan.readOnly);
  if (volume !== null) return { ok: true, kind: 'csi', volume, pv, pvc };
  if (nfs !== undefined)
    return {
      ok: true,
      kind: 'nfs',
      export: { specName, server: nfs.server, path: nfs.path, readOnly: plan.readOnly || nfs.readOnly === true, options: mountOptions },
    };
  const path = hostPath?.path ?? local?.path;
  if (path === undefined) return null;
  const planned = planHostPath(specName, path, hostPath?.type ?? '');
  if (planned.kind !== 'hostPath')
    return {
      ok: false,
      isSetUp: true,
      message: `MountVolume.SetUp failed for volume ${JSON.stringify(specName)} : ${planned.kind === 'refused' ? planned.message : 'not a path'}`,
    };
  if (hostPath !== undefined) return { ok: true, kind: 'hostPath', path: planned.path, type: planned.type, readOnly: plan.readOnly };
  return { ok: true, kind: 'local', specName, path: planned.path, isBlock, readOnly: plan.readOnly, options: mountOptions, fsType: local?.fsType ?? '' };
}
