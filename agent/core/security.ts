import type { Capability, LinuxContainerSecurityContext, NamespaceOptionInput, SecurityProfile } from '../../proto/cri/types.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { ConfigContext } from './config-context.ts';
import { keyOf, podText } from './containers.ts';

/** The user that the image names: a number, a name, or nobody (which is root). */
export interface ImageUser {
  readonly uid: number | null;
  readonly username: string;
}

type SeccompProfile = NonNullable<NonNullable<Container['securityContext']>['seccompProfile']>;

const readonlyPaths = ['/proc/bus', '/proc/fs', '/proc/irq', '/proc/sys', '/proc/sysrq-trigger'];

/** Hidden from containers unless they ask for an unmasked /proc. The machine's thermal files are added by the caller. */
export const defaultMaskedPaths: readonly string[] = [
  '/proc/asound',
  '/proc/acpi',
  '/proc/interrupts',
  '/proc/kcore',
  '/proc/keys',
  '/proc/latency_stats',
  '/proc/timer_list',
  '/proc/timer_stats',
  '/proc/sched_debug',
  '/proc/scsi',
  '/sys/firmware',
  '/sys/devices/virtual/powercap',
];

export function namespacesOf(pod: Pod): NamespaceOptionInput {
  const { spec } = pod;
  return {
    network: spec.hostNetwork === true ? 'NODE' : 'POD',
    ipc: spec.hostIPC === true ? 'NODE' : 'POD',
    pid: spec.hostPID === true ? 'NODE' : spec.shareProcessNamespace === true ? 'POD' : 'CONTAINER',
    usernsOptions: { mode: 'NODE' },
  };
}

/**
 * Whether the container would run as root although it must not. The text says why it may not be created; null when it
 * may. A user by name cannot be checked.
 */
export function rootProblem(pod: Pod, container: Container, image: ImageUser): string | null {
  const own = container.securityContext;
  const ofPod = pod.spec.securityContext;
  if ((own?.runAsNonRoot ?? ofPod?.runAsNonRoot) !== true) return null;
  const where = `(pod: "${podText(keyOf(pod))}", container: ${container.name})`;
  const user = own?.runAsUser ?? ofPod?.runAsUser;
  if (user !== undefined) return user === 0 ? `container's runAsUser breaks non-root policy ${where}` : null;
  if (image.uid === null && image.username !== '')
    return `container has runAsNonRoot and image has non-numeric user (${image.username}), cannot verify user is non-root ${where}`;
  return (image.uid ?? 0) === 0 ? `container has runAsNonRoot and image will run as root ${where}` : null;
}

/** The pod with the groups of its volumes among its own. */
export function withGroups(pod: Pod, groups: readonly number[]): Pod {
  const own = pod.spec.securityContext?.supplementalGroups ?? [];
  const more = groups.filter((group) => !own.includes(group));
  return more.length === 0 ? pod : { ...pod, spec: { ...pod.spec, securityContext: { ...pod.spec.securityContext, supplementalGroups: [...own, ...more] } } };
}

export function containerSecurity(
  context: ConfigContext,
  pod: Pod,
  container: Container,
  image: ImageUser,
  targetId: string | null,
): LinuxContainerSecurityContext {
  const own = container.securityContext;
  const ofPod = pod.spec.securityContext;
  const user = own?.runAsUser ?? ofPod?.runAsUser;
  const group = own?.runAsGroup ?? ofPod?.runAsGroup;
  const groups = [...(ofPod?.fsGroup === undefined ? [] : [ofPod.fsGroup]), ...(ofPod?.supplementalGroups ?? [])];
  const selinux = own?.seLinuxOptions ?? ofPod?.seLinuxOptions;
  const capabilities = capabilitiesOf(container);
  const unmasked = own?.procMount === 'Unmasked';
  const apparmor = apparmorOf(pod, container);
  const namespaces = namespacesOf(pod);
  const targeted = targetId !== null && namespaces.pid === 'CONTAINER' ? { ...namespaces, pid: 'TARGET' as const, targetId } : namespaces;
  return {
    namespaceOptions: targeted,
    privileged: own?.privileged ?? false,
    readonlyRootfs: own?.readOnlyRootFilesystem ?? false,
    noNewPrivs: own?.allowPrivilegeEscalation === false,
    ...(user === undefined
      ? image.uid === null && image.username !== ''
        ? { runAsUsername: image.username }
        : { runAsUser: { value: image.uid ?? 0 } }
      : { runAsUser: { value: user } }),
    ...(group === undefined ? {} : { runAsGroup: { value: group } }),
    ...(groups.length === 0 ? {} : { supplementalGroups: groups }),
    ...(ofPod?.supplementalGroupsPolicy === 'Strict' ? { supplementalGroupsPolicy: 'Strict' as const } : {}),
    ...(capabilities === null ? {} : { capabilities }),
    ...(selinux === undefined ? {} : { selinuxOptions: selinux }),
    seccomp: seccompOf(context, own?.seccompProfile ?? ofPod?.seccompProfile),
    ...(apparmor === null ? {} : { apparmor, apparmorProfile: apparmorText(apparmor) }),
    maskedPaths: unmasked ? [] : [...context.maskedPaths],
    readonlyPaths: unmasked ? [] : [...readonlyPaths],
  };
}

function capabilitiesOf(container: Container): Capability | null {
  const list = container.securityContext?.capabilities;
  return list === undefined ? null : { addCapabilities: [...(list.add ?? [])], dropCapabilities: [...(list.drop ?? [])] };
}

function seccompOf(context: ConfigContext, profile: SeccompProfile | undefined): SecurityProfile {
  if (profile === undefined) return { profileType: context.seccompDefault ? 'RuntimeDefault' : 'Unconfined' };
  if (profile.type === 'RuntimeDefault') return { profileType: 'RuntimeDefault' };
  if (profile.type === 'Localhost') return { profileType: 'Localhost', localhostRef: `${context.rootDir}/seccomp/${profile.localhostProfile ?? ''}` };
  return { profileType: 'Unconfined' };
}

const apparmorPrefix = 'container.apparmor.security.beta.kubernetes.io/';

function apparmorOf(pod: Pod, container: Container): SecurityProfile | null {
  const profile = container.securityContext?.appArmorProfile ?? pod.spec.securityContext?.appArmorProfile;
  if (profile !== undefined) {
    if (profile.type === 'Localhost') return { profileType: 'Localhost', localhostRef: profile.localhostProfile ?? '' };
    return { profileType: profile.type === 'Unconfined' ? 'Unconfined' : 'RuntimeDefault' };
  }
  const old = pod.metadata.annotations?.[apparmorPrefix + container.name];
  if (old === undefined || old === '') return null;
  if (old === 'runtime/default') return { profileType: 'RuntimeDefault' };
  return old.startsWith('localhost/') ? { profileType: 'Localhost', localhostRef: old.slice('localhost/'.length) } : { profileType: 'Unconfined' };
}

/** The same in the field that older runtimes read. */
function apparmorText(profile: SecurityProfile): string {
  if (profile.profileType === 'RuntimeDefault') return 'runtime/default';
  return profile.profileType === 'Localhost' ? `localhost/${profile.localhostRef ?? ''}` : 'unconfined';
}
