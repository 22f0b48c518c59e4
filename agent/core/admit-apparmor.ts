import type { Pod } from '../../proto/kube/types.ts';

const oldPrefix = 'container.apparmor.security.beta.kubernetes.io/';

/** Why a pod that asks for AppArmor profiles cannot have them here; null: it can, or asks for none. */
export function apparmorProblem(pod: Pod, isEnabled: boolean): string | null {
  const containers = [...pod.spec.containers, ...(pod.spec.initContainers ?? []), ...(pod.spec.ephemeralContainers ?? [])];
  const profiles = [pod.spec.securityContext?.appArmorProfile, ...containers.map((container) => container.securityContext?.appArmorProfile)];
  const old = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) => key.startsWith(oldPrefix));
  const isAsked = profiles.some((profile) => profile !== undefined && profile.type !== 'Unconfined') || old.some(([, value]) => value !== 'unconfined');
  if (!isAsked) return null;
  if (!isEnabled) return 'Cannot enforce AppArmor: AppArmor is not enabled on the host';
  const isEmpty = profiles.some((profile) => profile?.type === 'Localhost' && (profile.localhostProfile ?? '').trim() === '');
  return isEmpty || old.some(([, value]) => value.trim() === 'localhost/') ? 'Cannot enforce AppArmor: invalid empty AppArmor profile name' : null;
}
