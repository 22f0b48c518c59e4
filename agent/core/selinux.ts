import type { PersistentVolume, Pod, SELinuxOptions } from '../../proto/kube/types.ts';

/** What the node knows of SELinux; a node without it has none of this. */
export interface SelinuxNode {
  /** The context of files in containers by the machine's policy, as in its `lxc_contexts`. */
  readonly fileContext: string;
  /** `SELinuxMount` (KEP-1710): volumes of all access modes are mounted with their context, not those of one pod alone. */
  readonly mountsAll: boolean;
}

/** The context that a volume is to be mounted with ('': none, the runtime labels each file), or why it cannot be. */
export type MountContext = { readonly ok: true; readonly context: string } | { readonly ok: false; readonly message: string };

/** user:role:type:level, as a policy may have them; a level has sensitivities and categories, and ranges of both. */
const contextForm = /^[\w.-]+:[\w.-]+:[\w.-]+:[\w.,:-]+$/;

/** The value of `file` in a policy's `lxc_contexts`; '' where it has none. */
export function fileContextOf(text: string): string {
  for (const line of text.split('\n')) {
    const [, value] = /^\s*file\s*=\s*"?([^"]*?)"?\s*$/.exec(line) ?? [];
    if (value !== undefined) return value;
  }
  return '';
}

/** The options of each container that uses one of these volumes and has any, its own before the pod's. */
function optionsOf({ spec }: Pod, volumes: ReadonlySet<string>): SELinuxOptions[] {
  const containers = [...(spec.initContainers ?? []), ...spec.containers, ...(spec.ephemeralContainers ?? [])];
  const users = containers.filter(({ volumeMounts = [] }) => volumeMounts.some(({ name }) => volumes.has(name)));
  return users.flatMap(({ securityContext }) => securityContext?.seLinuxOptions ?? spec.securityContext?.seLinuxOptions ?? []);
}

/**
 * A process's options as the context of its files: of user, role, type and level the policy's own for files, but for
 * the user and the level. Without a level it is '', for then the runtime draws one, which nobody can know here.
 */
export function contextOf({ user, level = '' }: SELinuxOptions, fileContext: string): string {
  const [ofUser, role, type] = fileContext.split(':');
  if (level === '' || ofUser === undefined || role === undefined || type === undefined) return '';
  return [user === undefined || user === '' ? ofUser : user, role, type, level].join(':');
}

/**
 * With which context a volume is mounted (`-o context=`), so that no file of it needs to be labelled: where its driver
 * can, its pod does not want it otherwise and its containers agree. Containers that do not are an error for every
 * PersistentVolume, as with upstream.
 * @param volumes the pod's names for the volume
 * @param driverCan `spec.seLinuxMount` of its CSIDriver
 */
export function mountContext(node: SelinuxNode, pod: Pod, volumes: ReadonlySet<string>, pv: PersistentVolume, driverCan: boolean): MountContext {
  const { accessModes = [] } = pv.spec;
  const counts = node.mountsAll || (accessModes.length === 1 && accessModes[0] === 'ReadWriteOncePod');
  const contexts = new Set(optionsOf(pod, volumes).map((options) => contextOf(options, node.fileContext)));
  if (contexts.size > 1) return counts ? { ok: false, message: `multiple SELinux labels found: ${[...contexts].join(',')}` } : { ok: true, context: '' };
  const [context = ''] = contexts;
  const isWanted = counts && driverCan && pod.spec.securityContext?.seLinuxChangePolicy !== 'Recursive';
  if (!isWanted) return { ok: true, context: '' };
  // The API server looks at neither user nor level, and what ends the quotes would be further options of the mount.
  return context === '' || contextForm.test(context) ? { ok: true, context } : { ok: false, message: `invalid SELinux label: ${JSON.stringify(context)}` };
}

/** A context as an option of mount(8): in quotes, for a level has commas. */
export function contextOption(context: string): string {
  return `context="${context}"`;
}
