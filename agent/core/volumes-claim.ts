import type { Node, PersistentVolume, PersistentVolumeClaim, Pod } from '../../proto/kube/types.ts';
import { matchesTerm } from './node-selector.ts';

const protection = 'kubernetes.io/pvc-protection';

/** Why no pod may use the claim now; null: it may. */
export function claimProblem(pvc: PersistentVolumeClaim): string | null {
  if (pvc.metadata.deletionTimestamp !== undefined && !(pvc.metadata.finalizers ?? []).includes(protection)) return 'PVC is being deleted';
  if (pvc.status?.phase !== 'Bound') return 'PVC is not bound';
  if (pvc.spec.volumeName === undefined || pvc.spec.volumeName === '') return 'PVC has empty pvc.Spec.VolumeName';
  return null;
}

/** Why the claim's volume is not what the pod takes it for; null: it is. `ofClaim`: the message is about the claim. */
export function volumeProblem(
  pod: Pod,
  name: string,
  pv: PersistentVolume,
  pvc: PersistentVolumeClaim,
): { readonly message: string; readonly ofClaim: boolean } | null {
  const pvName = pv.metadata.name ?? '';
  const bound = pv.spec.claimRef;
  if (bound === undefined)
    return { ofClaim: true, message: `found PV object ${pvName} but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim` };
  if (bound.uid !== pvc.metadata.uid)
    return {
      ofClaim: true,
      message: `found PV object ${JSON.stringify(pvName)} but its pv.Spec.ClaimRef.UID ${JSON.stringify(bound.uid ?? '')} does not point to claim.UID ${JSON.stringify(pvc.metadata.uid ?? '')}`,
    };
  const mode = pv.spec.volumeMode ?? 'Filesystem';
  const { mounts, devices } = usesOf(pod, name);
  if (mounts && mode !== 'Filesystem') return { ofClaim: false, message: `volume ${name} has volumeMode ${mode}, but is specified in volumeMounts` };
  if (devices && mode !== 'Block') return { ofClaim: false, message: `volume ${name} has volumeMode ${mode}, but is specified in volumeDevices` };
  return null;
}

function usesOf(pod: Pod, name: string): { mounts: boolean; devices: boolean } {
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? []), ...(pod.spec.ephemeralContainers ?? [])];
  return {
    mounts: containers.some((container) => container.volumeMounts?.some((mount) => mount.name === name) === true),
    devices: containers.some((container) => container.volumeDevices?.some((device) => device.name === name) === true),
  };
}

/** Whether a volume can be reached from this node, as it says itself. */
export function affinityProblem(pv: PersistentVolume, node: Node | undefined): string | null {
  const terms = pv.spec.nodeAffinity?.required?.nodeSelectorTerms;
  if (terms === undefined || node === undefined) return null;
  if (terms.some((term) => matchesTerm(term, node.metadata.labels ?? {}, node.metadata.name ?? ''))) return null;
  return 'no matching NodeSelectorTerms';
}
