import type {
  AccessModeKind,
  NodeExpandVolumeRequest,
  NodePublishVolumeRequest,
  NodeRpcType,
  NodeStageVolumeRequest,
  VolumeCapabilityInput,
} from '../../../proto/plugins/csi.ts';
import type { CSIDriver, Pod } from '../../../proto/kube/types.ts';
import type { CsiVolume } from './volume.ts';

/** What a driver said it can. */
export type NodeCapabilities = ReadonlySet<NodeRpcType>;

/** An access mode of Kubernetes in the driver's words; drivers that know single writers hear the finer ones. */
export function accessModeOf(mode: string, capabilities: NodeCapabilities): AccessModeKind {
  const fine = capabilities.has('SINGLE_NODE_MULTI_WRITER_RPC');
  switch (mode) {
    case 'ReadWriteOnce':
      return fine ? 'SINGLE_NODE_MULTI_WRITER' : 'SINGLE_NODE_WRITER';
    case 'ReadWriteOncePod':
      return fine ? 'SINGLE_NODE_SINGLE_WRITER' : 'SINGLE_NODE_WRITER';
    case 'ReadOnlyMany':
      return 'MULTI_NODE_READER_ONLY';
    case 'ReadWriteMany':
      return 'MULTI_NODE_MULTI_WRITER';
    default:
      return 'UNKNOWN_ACCESS_MODE';
  }
}

function capabilityOf(volume: CsiVolume, capabilities: NodeCapabilities, fsGroup: number | null): VolumeCapabilityInput {
  const accessMode = { mode: accessModeOf(volume.accessModes?.[0] ?? 'ReadWriteOnce', capabilities) };
  if (volume.isBlock) return { accessMode, block: {} };
  const group = fsGroup !== null && capabilities.has('VOLUME_MOUNT_GROUP') ? { volumeMountGroup: String(fsGroup) } : {};
  return { accessMode, mount: { fsType: volume.fsType, mountFlags: [...volume.mountOptions], ...group } };
}

export interface CallContext {
  readonly volume: CsiVolume;
  readonly capabilities: NodeCapabilities;
  /** What attaching answered; empty where nothing is attached. */
  readonly publishContext: Readonly<Record<string, string>>;
  readonly secrets: Readonly<Record<string, string>>;
  readonly fsGroup: number | null;
}

export function stageRequest(context: CallContext, stagingTargetPath: string): NodeStageVolumeRequest {
  const { volume, capabilities, publishContext, secrets, fsGroup } = context;
  return {
    volumeId: volume.handle,
    publishContext: { ...publishContext },
    stagingTargetPath,
    volumeCapability: capabilityOf(volume.isBlock ? { ...volume, mountOptions: [] } : volume, capabilities, fsGroup),
    secrets: { ...secrets },
    volumeContext: { ...volume.attributes },
  };
}

export function publishRequest(
  context: CallContext,
  paths: { staging: string; target: string },
  extra: { attributes: Readonly<Record<string, string>> },
): NodePublishVolumeRequest {
  const { volume, capabilities, publishContext, secrets, fsGroup } = context;
  return {
    volumeId: volume.handle,
    publishContext: { ...publishContext },
    ...(paths.staging === '' ? {} : { stagingTargetPath: paths.staging }),
    targetPath: paths.target,
    volumeCapability: capabilityOf(volume, capabilities, fsGroup),
    readonly: volume.readOnly,
    secrets: { ...secrets },
    volumeContext: { ...volume.attributes, ...extra.attributes },
  };
}

export function expandRequest(context: CallContext, paths: { staging: string; volume: string }, sizeBytes: bigint): NodeExpandVolumeRequest {
  const { volume, capabilities, secrets } = context;
  return {
    volumeId: volume.handle,
    volumePath: paths.volume,
    capacityRange: { requiredBytes: String(sizeBytes), limitBytes: '0' },
    ...(paths.staging === '' ? {} : { stagingTargetPath: paths.staging }),
    volumeCapability: capabilityOf(volume, capabilities, null),
    secrets: { ...secrets },
  };
}

/** What drivers with `podInfoOnMount` hear of the pod. */
export function podAttributes(pod: Pod, volume: CsiVolume): Record<string, string> {
  return {
    'csi.storage.k8s.io/pod.name': pod.metadata.name ?? '',
    'csi.storage.k8s.io/pod.namespace': pod.metadata.namespace ?? '',
    'csi.storage.k8s.io/pod.uid': pod.metadata.uid ?? '',
    'csi.storage.k8s.io/serviceAccount.name': pod.spec.serviceAccountName ?? '',
    'csi.storage.k8s.io/ephemeral': String(volume.mode === 'Ephemeral'),
  };
}

export const tokensAttribute = 'csi.storage.k8s.io/serviceAccount.tokens';

/** Tokens by audience as one attribute; keys in order, as Go writes maps. */
export function tokensText(tokens: ReadonlyMap<string, { token: string; expirationTimestamp: string }>): string {
  const sorted = [...tokens].toSorted(([left], [right]) => (left < right ? -1 : 1));
  return JSON.stringify(Object.fromEntries(sorted.map(([audience, { token, expirationTimestamp }]) => [audience, { token, expirationTimestamp }])));
}

/** Why the driver cannot be used in this way; null: it can. Without a CSIDriver object only persistent volumes are. */
export function modeProblem(volume: CsiVolume, object: CSIDriver | null): string | null {
  if (object === null)
    return volume.mode === 'Persistent' ? null : `volume mode ${JSON.stringify(volume.mode)} not supported by driver ${volume.driver} (no CSIDriver object)`;
  const modes = object.spec.volumeLifecycleModes ?? ['Persistent'];
  if (modes.includes(volume.mode)) return null;
  return `volume mode ${JSON.stringify(volume.mode)} not supported by driver ${volume.driver} (only supports [${modes.map((mode) => JSON.stringify(mode)).join(' ')}])`;
}

/** Whether a controller attaches volumes of this driver before a node may use them. */
export function isAttached(volume: CsiVolume, object: CSIDriver | null): boolean {
  return volume.mode === 'Persistent' && object?.spec.attachRequired !== false;
}

/** Whether the node itself gives the files to the pod's fsGroup. */
export function appliesGroup(volume: CsiVolume, object: CSIDriver | null, fsGroup: number | null, capabilities: NodeCapabilities): boolean {
  const policy = object?.spec.fsGroupPolicy ?? 'ReadWriteOnceWithFSType';
  if (fsGroup === null || capabilities.has('VOLUME_MOUNT_GROUP') || policy === 'None' || volume.readOnly) return false;
  if (policy === 'File') return true;
  if (volume.fsType === '') return false;
  if (volume.mode === 'Ephemeral') return true;
  return volume.accessModes?.some((mode) => mode === 'ReadWriteOnce' || mode === 'ReadWriteOncePod') ?? false;
}

/** Whether after this gRPC status the operation is certainly over; of the others it may go on in the driver. */
export function isFinal(status: string): boolean {
  return !['Canceled', 'DeadlineExceeded', 'Unavailable', 'ResourceExhausted', 'Aborted'].includes(status);
}
