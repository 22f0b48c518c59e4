import type { PersistentVolume, Pod, Volume } from '../../../proto/kube/types.ts';

export interface SecretRef {
  readonly namespace: string;
  readonly name: string;
}

/** A volume of a CSI driver as one pod uses it, wherever it was described. */
export interface CsiVolume {
  readonly mode: 'Persistent' | 'Ephemeral';
  /** Name in messages and paths: the PersistentVolume's, or the pod's own for the volume. */
  readonly specName: string;
  readonly driver: string;
  readonly handle: string;
  readonly readOnly: boolean;
  readonly fsType: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly mountOptions: readonly string[];
  /** null: the PersistentVolume has none. */
  readonly accessModes: readonly string[] | null;
  readonly isBlock: boolean;
  readonly stageSecret: SecretRef | null;
  readonly publishSecret: SecretRef | null;
  readonly expandSecret: SecretRef | null;
  /** The SELinux context that it is mounted with; absent: none. */
  readonly selinuxContext?: string;
}

/** What a driver and a handle are called in the Node's status. */
export function uniqueVolumeName(driver: string, handle: string): string {
  return `kubernetes.io/csi/${driver}^${handle}`;
}

/** Names become parts of paths: a PersistentVolume must not lead elsewhere. */
export function nameProblem(volume: CsiVolume): string | null {
  if (!/^[A-Za-z0-9]([-A-Za-z0-9.]{0,61}[A-Za-z0-9])?$/.test(volume.driver) || volume.driver.includes('..'))
    return `${JSON.stringify(volume.driver)} is not the name of a CSI driver`;
  if (!/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/.test(volume.specName) || volume.specName.includes('..'))
    return `${JSON.stringify(volume.specName)} is not the name of a volume`;
  if (volume.handle === '') return 'the volume handle is empty';
  return null;
}

/** A PersistentVolume of a driver; null when it is of another kind. */
export function csiOfPersistentVolume(pv: PersistentVolume, readOnly: boolean): CsiVolume | null {
  const { csi } = pv.spec;
  if (csi === undefined) return null;
  const secret = (ref: { name?: string; namespace?: string } | undefined): SecretRef | null =>
    ref?.name === undefined ? null : { namespace: ref.namespace ?? '', name: ref.name };
  return {
    mode: 'Persistent',
    specName: pv.metadata.name ?? '',
    driver: csi.driver,
    handle: csi.volumeHandle,
    readOnly,
    fsType: csi.fsType ?? '',
    attributes: csi.volumeAttributes ?? {},
    mountOptions: pv.spec.mountOptions ?? [],
    accessModes: pv.spec.accessModes ?? null,
    isBlock: pv.spec.volumeMode === 'Block',
    stageSecret: secret(csi.nodeStageSecretRef),
    publishSecret: secret(csi.nodePublishSecretRef),
    expandSecret: secret(csi.nodeExpandSecretRef),
  };
}

/** An inline volume, which lives as long as its pod. Its handle is `csi-` and the hash of the pod's UID and its name. */
export function csiOfInline(pod: Pod, volume: Volume, sha256: (text: string) => string): CsiVolume | null {
  const { csi, name } = volume;
  if (csi === undefined) return null;
  const secretName = csi.nodePublishSecretRef?.name;
  return {
    mode: 'Ephemeral',
    specName: name,
    driver: csi.driver,
    handle: `csi-${sha256(`${pod.metadata.uid ?? ''}${name}`)}`,
    readOnly: csi.readOnly === true,
    fsType: csi.fsType ?? '',
    attributes: csi.volumeAttributes ?? {},
    mountOptions: [],
    accessModes: null,
    isBlock: false,
    stageSecret: null,
    publishSecret: secretName === undefined ? null : { namespace: pod.metadata.namespace ?? '', name: secretName },
    expandSecret: null,
  };
}
