import type { Container, Pod, VolumeMount } from '../../proto/kube/types.ts';
import { expand } from './expand.ts';
import type { VolumePlan } from './volumes-plan.ts';
import { isSafeName } from './volumes-paths.ts';

export type Propagation = 'PROPAGATION_PRIVATE' | 'PROPAGATION_HOST_TO_CONTAINER' | 'PROPAGATION_BIDIRECTIONAL';

/** An image that the runtime mounts. */
export interface MountedImage {
  readonly reference: string;
  readonly pullPolicy?: string;
}

/** Where the content of a mount comes from. */
export interface MountPlan {
  readonly name: string;
  /** The volume's directory or file on the node; '' for an image. */
  readonly volumePath: string;
  /** Below the volume; null mounts the whole of it. */
  readonly subPath: string | null;
  /** Place of this mount among the container's; names its bind below `volume-subpaths`. */
  readonly index: number;
  readonly containerPath: string;
  readonly readonly: boolean;
  readonly recursiveReadOnly: boolean;
  readonly propagation: Propagation;
  readonly image?: MountedImage;
  /** On a node with SELinux the runtime labels each file for the container. */
  readonly relabels: boolean;
  /** noexec, nodev, nosuid (KEP-5855). */
  readonly options?: readonly string[];
}

export type MountsPlan =
  | { readonly ok: true; readonly mounts: readonly MountPlan[]; readonly mountsEtcHosts: boolean }
  | { readonly ok: false; readonly message: string };

/** Where a volume lies that was not made by the agent itself. */
export interface ClaimPlace {
  readonly path: string;
  readonly readOnly: boolean;
  /** Its files can be given SELinux labels, one by one. */
  readonly relabels?: boolean;
}

export interface MountsInput {
  readonly container: Container;
  readonly plans: readonly VolumePlan[];
  readonly podDir: string;
  /** Where claims, NFS exports and volumes of CSI drivers lie, by volume name. */
  readonly claims: ReadonlyMap<string, ClaimPlace>;
  /** The container's environment, for subPathExpr. */
  readonly env: ReadonlyMap<string, string>;
  readonly supportsRecursiveReadOnly: boolean;
}

/** The mounts of one container, in the order of its spec. */
export function planMounts(input: MountsInput): MountsPlan {
  const mounts: MountPlan[] = [];
  let mountsEtcHosts = false;
  const { container } = input;
  if (!isSafeName(container.name)) return { ok: false, message: `${JSON.stringify(container.name)} is not a container name` };
  for (const [index, mount] of (container.volumeMounts ?? []).entries()) {
    if (mount.mountPath === '/etc/hosts') mountsEtcHosts = true;
    const place = placeOf(input, mount.name);
    if (place === null)
      return { ok: false, message: `cannot find volume ${JSON.stringify(mount.name)} to mount into container ${JSON.stringify(container.name)}` };
    const subPath = subPathOf(mount, input.env);
    if (!subPath.ok) return subPath;
    const readonly = mount.readOnly === true || place.readOnly;
    const recursive = recursiveReadOnly(mount, input.supportsRecursiveReadOnly);
    if (!recursive.ok) return recursive;
    mounts.push({
      name: mount.name,
      volumePath: place.path,
      subPath: subPath.path,
      index,
      containerPath: mount.mountPath.startsWith('/') ? mount.mountPath : `/${mount.mountPath}`,
      readonly,
      recursiveReadOnly: recursive.value,
      propagation: propagationOf(mount.mountPropagation),
      relabels: place.relabels ?? false,
      ...(place.image === undefined ? {} : { image: place.image }),
      ...(mount.bindMountOptions === undefined ? {} : { options: mount.bindMountOptions }),
    });
  }
  return { ok: true, mounts, mountsEtcHosts };
}

/** A block device for a container, in CRI's terms. */
export interface DevicePlan {
  readonly hostPath: string;
  readonly containerPath: string;
  readonly permissions: 'mrw' | 'r';
}

/** The devices of one container, in the order of its spec. */
export function planDevices({
  container,
  claims,
}: Pick<MountsInput, 'container' | 'claims'>):
  | { readonly ok: true; readonly devices: readonly DevicePlan[] }
  | { readonly ok: false; readonly message: string } {
  const devices: DevicePlan[] = [];
  for (const { name, devicePath } of container.volumeDevices ?? []) {
    const place = claims.get(name);
    if (place === undefined)
      return { ok: false, message: `cannot find volume ${JSON.stringify(name)} to pass into container ${JSON.stringify(container.name)}` };
    devices.push({ hostPath: place.path, containerPath: devicePath, permissions: place.readOnly ? 'r' : 'mrw' });
  }
  return { ok: true, devices };
}

/** Files the agent writes are read-only for containers: what they changed would be lost at the next refresh. */
function placeOf(input: MountsInput, name: string): (ClaimPlace & { image?: MountedImage }) | null {
  const plan = input.plans.find((each) => each.name === name);
  switch (plan?.kind) {
    case 'emptyDir':
      return { path: `${input.podDir}/${plan.base.dir}`, readOnly: false, relabels: true };
    case 'payload':
      return { path: `${input.podDir}/${plan.base.dir}`, readOnly: true, relabels: true };
    case 'hostPath':
      return { path: plan.path, readOnly: false };
    case 'claim':
    case 'csi':
    case 'nfs':
      return input.claims.get(name) ?? null;
    case 'image':
      return { path: '', readOnly: true, image: plan };
    default:
      return null;
  }
}

function subPathOf(mount: VolumeMount, env: ReadonlyMap<string, string>): { ok: true; path: string | null } | { ok: false; message: string } {
  let path = mount.subPath ?? '';
  if (mount.subPathExpr !== undefined && mount.subPathExpr !== '') {
    const expanded = expandStrictly(mount.subPathExpr, env);
    if (!expanded.ok) return { ok: false, message: `missing value for ${expanded.missing.join(', ')}` };
    path = expanded.text;
  }
  if (path === '') return { ok: true, path: null };
  if (path.startsWith('/')) return { ok: false, message: `error SubPath \`${path}\` must not be an absolute path` };
  const parts = path.split('/');
  if (parts.includes('..')) return { ok: false, message: `unable to provision SubPath \`${path}\`: must not contain '..'` };
  const clean = parts.filter((part) => part !== '' && part !== '.').join('/');
  return { ok: true, path: clean === '' ? null : clean };
}

/** `$(NAME)` by the container's environment; `$$` is one `$`. Names without a value are a failure here, unlike in commands, and so are empty values. */
export function expandStrictly(
  text: string,
  env: ReadonlyMap<string, string>,
): { readonly ok: true; readonly text: string } | { readonly ok: false; readonly missing: readonly string[] } {
  const missing = new Set<string>();
  const expanded = expand(text, (name) => {
    const value = env.get(name) ?? '';
    if (value === '') missing.add(name);
    return value;
  });
  return missing.size === 0 ? { ok: true, text: expanded } : { ok: false, missing: [...missing].toSorted() };
}

function recursiveReadOnly(mount: VolumeMount, isSupported: boolean): { ok: true; value: boolean } | { ok: false; message: string } {
  switch (mount.recursiveReadOnly) {
    case undefined:
    case 'Disabled':
      return { ok: true, value: false };
    case 'IfPossible':
      return { ok: true, value: isSupported && mount.readOnly === true };
    case 'Enabled':
      if (mount.readOnly !== true) return { ok: false, message: `volume "${mount.name}" requested recursive read-only mode, but it is not read-only` };
      return isSupported
        ? { ok: true, value: true }
        : { ok: false, message: `volume "${mount.name}" requested recursive read-only mode, but it is not supported by the runtime` };
    default:
      return { ok: false, message: `unknown recursive read-only mode "${mount.recursiveReadOnly}"` };
  }
}

function propagationOf(mode: string | undefined): Propagation {
  if (mode === 'HostToContainer') return 'PROPAGATION_HOST_TO_CONTAINER';
  if (mode === 'Bidirectional') return 'PROPAGATION_BIDIRECTIONAL';
  return 'PROPAGATION_PRIVATE';
}

/** Every ConfigMap and Secret that the pod names anywhere: what must be kept while it is on the node. */
export function objectsNamed(pod: Pod): { configMaps: Set<string>; secrets: Set<string> } {
  const configMaps = new Set<string>();
  const secrets = new Set<string>();
  const add = (set: Set<string>, name: string | undefined): void => {
    if (name !== undefined && name !== '') set.add(name);
  };
  for (const each of pod.spec.imagePullSecrets ?? []) add(secrets, each.name);
  for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers, ...(pod.spec.ephemeralContainers ?? [])]) {
    for (const source of container.envFrom ?? []) {
      add(configMaps, source.configMapRef?.name);
      add(secrets, source.secretRef?.name);
    }
    for (const variable of container.env ?? []) {
      add(configMaps, variable.valueFrom?.configMapKeyRef?.name);
      add(secrets, variable.valueFrom?.secretKeyRef?.name);
    }
  }
  for (const volume of pod.spec.volumes ?? []) {
    add(configMaps, volume.configMap?.name);
    add(secrets, volume.secret?.secretName);
    for (const source of volume.projected?.sources ?? []) {
      add(configMaps, source.configMap?.name);
      add(secrets, source.secret?.name);
    }
  }
  return { configMaps, secrets };
}
