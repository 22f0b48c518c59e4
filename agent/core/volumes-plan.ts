import type { Pod, Volume } from '../../proto/kube/types.ts';
import { everyContainerLimits, memoryOf, podLimits } from './qos.ts';
import { valueOf } from './quantity.ts';
import type { QuantityText } from './quantity.ts';
import { payloadNeeds } from './volumes-payload.ts';
import type { PayloadNeeds } from './volumes-payload.ts';
import { isSafeName, readyMarker, volumeDir } from './volumes-paths.ts';
import type { VolumePlugin } from './volumes-paths.ts';

/** A directory that the agent makes for a volume. Paths are relative to the pod's directory. */
export interface VolumeBase {
  readonly dir: string;
  readonly marker: string;
  readonly medium:
    | { readonly kind: 'disk' }
    | { readonly kind: 'tmpfs'; readonly sizeBytes: bigint | null }
    | { readonly kind: 'hugetlbfs'; readonly pageSize: string };
  readonly fsGroup: number | null;
  /** Permissions of the directory; absent: 0777. */
  readonly mode?: number;
}

export type HostPathType = '' | 'DirectoryOrCreate' | 'Directory' | 'FileOrCreate' | 'File' | 'Socket' | 'CharDevice' | 'BlockDevice';

/** A directory of an NFS server. */
export interface NfsExport {
  /** Names its directory: the PersistentVolume's, or the pod's own for the volume. */
  readonly specName: string;
  readonly server: string;
  readonly path: string;
  readonly readOnly: boolean;
  readonly options: readonly string[];
}

/** What a volume needs before a container may mount it. */
export type VolumePlan =
  | { readonly kind: 'emptyDir'; readonly name: string; readonly base: VolumeBase }
  | { readonly kind: 'payload'; readonly name: string; readonly base: VolumeBase; readonly volume: Volume; readonly needs: PayloadNeeds }
  | { readonly kind: 'hostPath'; readonly name: string; readonly path: string; readonly type: HostPathType }
  /** `isEphemeral`: the claim is made for this pod, and may be used by no other. */
  | { readonly kind: 'claim'; readonly name: string; readonly claimName: string; readonly readOnly: boolean; readonly isEphemeral: boolean }
  | { readonly kind: 'nfs'; readonly name: string; readonly export: NfsExport }
  /** Inline: a CSI driver makes it for this pod alone. */
  | { readonly kind: 'csi'; readonly name: string; readonly volume: Volume; readonly readOnly: boolean }
  /** The runtime mounts an image; nothing is made on the node. */
  | { readonly kind: 'image'; readonly name: string; readonly reference: string; readonly pullPolicy?: string }
  | { readonly kind: 'refused'; readonly name: string; readonly message: string };

/** Which of upstream's gates count for volumes. */
export interface VolumeGates {
  /** `EmptyDirVolumeMode` (KEP-5502). */
  readonly emptyDirMode?: boolean;
  /** `AtomicWriteVolumeUserFields` (KEP-5936). */
  readonly fileUsers?: boolean;
}

/** One plan for each volume of the pod that a container uses, in the order of the spec. Nobody waits for the others, as upstream. */
export function planVolumes(pod: Pod, allocatable: Readonly<Record<string, QuantityText>>, gates: VolumeGates = {}): VolumePlan[] {
  return volumesUsed(pod).map((volume) => planVolume(pod, volume, allocatable, gates));
}

/** The pod's volumes that some container of it mounts, or has as a device. */
export function volumesUsed({ spec }: Pod): Volume[] {
  const names = new Set<string>();
  for (const { volumeMounts = [], volumeDevices = [] } of [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])])
    for (const { name } of [...volumeMounts, ...volumeDevices]) names.add(name);
  return (spec.volumes ?? []).filter(({ name }) => names.has(name));
}

/** Its gate is locked off; upstream's words all the same. */
const gitRepoRefusal = 'git-repo volume plugin has been disabled; if necessary, it may be re-enabled by enabling the feature-gate `GitRepoVolumeDriver`';

function planVolume(pod: Pod, volume: Volume, allocatable: Readonly<Record<string, QuantityText>>, gates: VolumeGates): VolumePlan {
  const { name } = volume;
  if (!isSafeName(name)) return { kind: 'refused', name, message: `${JSON.stringify(name)} is not a volume name` };
  if (volume.emptyDir !== undefined) return planEmptyDir(pod, volume, allocatable, gates);
  const payload = (plugin: VolumePlugin, inMemory: boolean): VolumePlan => {
    const medium = inMemory ? ({ kind: 'tmpfs', sizeBytes: memorySizeLimit(pod, undefined, allocatable) } as const) : ({ kind: 'disk' } as const);
    return { kind: 'payload', name, base: baseOf(pod, plugin, name, medium), volume, needs: payloadNeeds(volume) };
  };
  if (volume.configMap !== undefined) return payload('configmap', false);
  if (volume.secret !== undefined) return payload('secret', true);
  if (volume.projected !== undefined) return payload('projected', true);
  if (volume.downwardAPI !== undefined) return payload('downward-api', true);
  if (volume.hostPath !== undefined) return planHostPath(name, volume.hostPath.path, volume.hostPath.type ?? '');
  if (volume.persistentVolumeClaim !== undefined) {
    const { claimName, readOnly = false } = volume.persistentVolumeClaim;
    return { kind: 'claim', name, claimName, readOnly, isEphemeral: false };
  }
  if (volume.csi !== undefined) return { kind: 'csi', name, volume, readOnly: volume.csi.readOnly === true };
  if (volume.nfs !== undefined) {
    const { server, path, readOnly = false } = volume.nfs;
    return { kind: 'nfs', name, export: { specName: name, server, path, readOnly, options: [] } };
  }
  if (volume.image !== undefined) {
    const { reference = '', pullPolicy } = volume.image;
    return { kind: 'image', name, reference, ...(pullPolicy === undefined ? {} : { pullPolicy }) };
  }
  if (volume.ephemeral !== undefined) return { kind: 'claim', name, claimName: `${pod.metadata.name ?? ''}-${name}`, readOnly: false, isEphemeral: true };
  const source = Object.keys(volume).find((key) => key !== 'name');
  // A volume without any source is an emptyDir: the API server's default.
  if (source === undefined) return planEmptyDir(pod, { name, emptyDir: {} }, allocatable, gates);
  if (source === 'gitRepo') return { kind: 'refused', name, message: gitRepoRefusal };
  return { kind: 'refused', name, message: `${source} volumes are not supported by this node` };
}

function planEmptyDir(pod: Pod, volume: Volume, allocatable: Readonly<Record<string, QuantityText>>, gates: VolumeGates): VolumePlan {
  const { name } = volume;
  const medium = volume.emptyDir?.medium ?? '';
  if (medium === '') {
    // What is mounted over a directory has the permissions of its own file system, with upstream too.
    const mode = gates.emptyDirMode === true ? volume.emptyDir?.mode : undefined;
    return { kind: 'emptyDir', name, base: { ...baseOf(pod, 'empty-dir', name, { kind: 'disk' }), ...(mode === undefined ? {} : { mode: mode & 0o1777 }) } };
  }
  if (medium === 'Memory') {
    const sizeBytes = memorySizeLimit(pod, volume.emptyDir?.sizeLimit, allocatable);
    return { kind: 'emptyDir', name, base: baseOf(pod, 'empty-dir', name, { kind: 'tmpfs', sizeBytes }) };
  }
  if (medium !== 'HugePages' && !medium.startsWith('HugePages-')) return { kind: 'refused', name, message: `unknown storage medium "${medium}"` };
  const pages = hugePageSize(pod, medium);
  return pages.ok
    ? { kind: 'emptyDir', name, base: baseOf(pod, 'empty-dir', name, { kind: 'hugetlbfs', pageSize: pages.size }) }
    : { kind: 'refused', name, message: pages.message };
}

function baseOf(pod: Pod, plugin: VolumePlugin, name: string, medium: VolumeBase['medium']): VolumeBase {
  return { dir: volumeDir(plugin, name), marker: readyMarker(plugin, name), medium, fsGroup: pod.spec.securityContext?.fsGroup ?? null };
}

/**
 * The size of a tmpfs: the smallest of the volume's own limit, the pod's memory limit (when all containers have one)
 * and what the node can allocate; null when none is known.
 */
export function memorySizeLimit(pod: Pod, own: QuantityText | undefined, allocatable: Readonly<Record<string, QuantityText>>): bigint | null {
  const candidates = [valueOf(allocatable['memory']), valueOf(own)];
  if (everyContainerLimits(pod, 'memory')) candidates.push(memoryOf(podLimits(pod)));
  const positive = candidates.filter((bytes) => bytes > 0n);
  return positive.length === 0 ? null : positive.reduce((least, bytes) => (bytes < least ? bytes : least));
}

/** `2Mi` for HugePages-2Mi; plain HugePages takes the one size that is asked for. What nobody asks for cannot be had. */
function hugePageSize(pod: Pod, medium: string): { readonly ok: true; readonly size: string } | { readonly ok: false; readonly message: string } {
  const prefix = 'hugepages-';
  const requests = [
    pod.spec.resources,
    ...pod.spec.containers.map(({ resources }) => resources),
    ...(pod.spec.initContainers ?? []).map(({ resources }) => resources),
  ];
  const sizes = new Set(
    requests.flatMap((resources) =>
      Object.keys({ ...resources?.limits, ...resources?.requests }).flatMap((name) => (name.startsWith(prefix) ? [name.slice(prefix.length)] : [])),
    ),
  );
  const wanted = medium === 'HugePages' ? [...sizes] : [...sizes].filter((size) => valueOf(size) === valueOf(medium.slice(prefix.length)));
  const [size, another] = wanted;
  if (size === undefined) return { ok: false, message: `medium ${medium}: hugePages storage requested, but there is no resource request for huge pages` };
  if (medium === 'HugePages' && another !== undefined)
    return { ok: false, message: `medium: ${medium} can't be used if container requests multiple huge page sizes` };
  return { ok: true, size };
}

const hostPathTypes = new Set<string>(['', 'DirectoryOrCreate', 'Directory', 'FileOrCreate', 'File', 'Socket', 'CharDevice', 'BlockDevice']);

export function planHostPath(name: string, path: string, type: string): VolumePlan {
  if (!path.startsWith('/') || path.split('/').includes('..'))
    return { kind: 'refused', name, message: `invalid HostPath \`${path}\`: must be absolute and must not contain '..'` };
  if (!hostPathTypes.has(type)) return { kind: 'refused', name, message: `${type} is an invalid volume type` };
  return { kind: 'hostPath', name, path, type: type as HostPathType };
}

/** What stat(2) says of a host path, following links; `absent` when nothing is there. */
export type HostPathFound = 'absent' | 'file' | 'dir' | 'link' | 'socket' | 'fifo' | 'char' | 'block';

/** Whether a host path may be mounted as it is, must be made first, or is refused. */
export function checkHostPath(
  path: string,
  type: HostPathType,
  found: HostPathFound,
): { verdict: 'mount' } | { verdict: 'makeDir' } | { verdict: 'makeFile' } | { verdict: 'refuse'; message: string } {
  switch (type) {
    case '':
      return { verdict: 'mount' };
    case 'DirectoryOrCreate':
      return found === 'absent' ? { verdict: 'makeDir' } : mustBe(path, found, 'dir', 'directory');
    case 'Directory':
      return mustBe(path, found, 'dir', 'directory');
    case 'FileOrCreate':
      return found === 'absent' ? { verdict: 'makeFile' } : mustBe(path, found, 'file', 'file');
    case 'File':
      return mustBe(path, found, 'file', 'file');
    case 'Socket':
      return mustBe(path, found, 'socket', 'socket file');
    case 'CharDevice':
      return mustBe(path, found, 'char', 'character device');
    case 'BlockDevice':
      return mustBe(path, found, 'block', 'block device');
  }
}

const typeWords: Readonly<Record<string, string>> = { dir: 'Directory', file: 'File', socket: 'Socket', char: 'CharDevice', block: 'BlockDevice' };

function mustBe(path: string, found: HostPathFound, wanted: HostPathFound, words: string): { verdict: 'mount' } | { verdict: 'refuse'; message: string } {
  if (found === wanted) return { verdict: 'mount' };
  if (found === 'absent')
    return { verdict: 'refuse', message: `hostPath type check failed, ${path} is not a ${words}, unable to determine its type: path "${path}" does not exist` };
  const word = typeWords[found];
  if (word === undefined)
    return {
      verdict: 'refuse',
      message: `hostPath type check failed, ${path} is not a ${words}, unable to determine its type: only recognise file, directory, socket, block device and character device`,
    };
  return { verdict: 'refuse', message: `hostPath type check failed: ${path} is not a ${words}, it's a ${word}` };
}
