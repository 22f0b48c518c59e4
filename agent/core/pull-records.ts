import { parseImage } from './images.ts';

/*
 * Who may use an image that is on the node already (KEP-2535): what the kubelet remembers of each pull, in upstream's
 * own form (kubelet.config.k8s.io/v1beta1), and the question whether credentials must be shown once more.
 */

/** Where a credential of a pull came from; null is the node itself, or none was needed. */
export type CredentialSource =
  | { readonly kind: 'secret'; readonly uid: string; readonly namespace: string; readonly name: string }
  | { readonly kind: 'serviceAccount'; readonly uid: string; readonly namespace: string; readonly name: string }
  | null;

export interface PullSecret {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly credentialHash: string;
}

export interface PullServiceAccount {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
}

/** With what an image was pulled. */
export interface ImagePullCredentials {
  readonly kubernetesSecrets?: readonly PullSecret[];
  readonly kubernetesServiceAccounts?: readonly PullServiceAccount[];
  /** Every pod of the node may use it. */
  readonly nodePodsAccessible?: boolean;
}

export interface ImagePulledRecord {
  readonly kind: 'ImagePulledRecord';
  readonly apiVersion: string;
  readonly lastUpdatedTime: string;
  readonly imageRef: string;
  readonly credentialMapping?: Readonly<Record<string, ImagePullCredentials>>;
}

export interface ImagePullIntent {
  readonly kind: 'ImagePullIntent';
  readonly apiVersion: string;
  readonly image: string;
}

export const recordsVersion = 'kubelet.config.k8s.io/v1beta1';
/** Secrets that only match are remembered up to here. */
const writeWhileMatchingMax = 100;

export function credentialsOf(source: CredentialSource, credentialHash: string): ImagePullCredentials {
  if (source === null) return { nodePodsAccessible: true };
  const { uid, namespace, name } = source;
  if (source.kind === 'secret') return { kubernetesSecrets: [{ uid, namespace, name, credentialHash }] };
  return { kubernetesServiceAccounts: [{ uid, namespace, name }] };
}

/** The image as a pod says it, without tag and digest; null for what is no image name. */
export function withoutTag(image: string): string | null {
  const name = parseImage(image);
  if (typeof name === 'string') return null;
  let bare = image;
  if (name.digest !== '') bare = bare.slice(0, -(name.digest.length + 1));
  const tag = /:([\w][\w.-]{0,127})$/.exec(bare)?.[1];
  return tag !== undefined && !bare.slice(bare.lastIndexOf(':')).includes('/') ? bare.slice(0, -(tag.length + 1)) : bare;
}

/** Whether an image that is here needs proof; `pulledByKubelet`: there is a record of a pull, begun or done. */
export function needsProof(policy: string, allowlist: readonly string[], image: string, pulledByKubelet: boolean): boolean {
  switch (policy) {
    case 'NeverVerify':
      return false;
    case 'AlwaysVerify':
      return true;
    case 'NeverVerifyAllowlistedImages': {
      const bare = withoutTag(image) ?? image;
      return !allowlist.some((pattern) => (pattern.endsWith('/*') ? bare.startsWith(pattern.slice(0, -1)) : bare === pattern));
    }
    default:
      return pulledByKubelet;
  }
}

/** What is wrong with an allowlist's pattern; null is nothing. */
export function allowlistProblem(pattern: string): string | null {
  if (pattern !== pattern.trim()) return `leading/trailing spaces are not allowed: ${pattern}`;
  const isWildcard = pattern.endsWith('/*');
  const bare = isWildcard ? pattern.slice(0, -1) : pattern;
  if (bare === '') return `the supplied pattern is too short: ${pattern}`;
  if (bare.includes('*')) return `not a valid wildcard pattern, only patterns ending with '/*' are allowed: ${pattern}`;
  if (isWildcard) return bare.length === 1 ? 'at least registry hostname is required' : null;
  const name = withoutTag(bare);
  if (name === null) return `failed to parse as an image name: invalid reference format`;
  return name === bare ? null : `neither tag nor digest is accepted in an image reference: ${pattern}`;
}

/** The credentials that a pod shows. */
export interface ShownCredentials {
  readonly secrets: readonly PullSecret[];
  readonly serviceAccount: PullServiceAccount | null;
}

/** Whether what a pod shows is known to open the image; `learn` is to be remembered beside it. */
export function isProven(known: ImagePullCredentials | undefined, shown: ShownCredentials): { proven: boolean; learn: PullSecret | null } {
  if (known === undefined) return { proven: false, learn: null };
  if (known.nodePodsAccessible === true) return { proven: true, learn: null };
  const secrets = known.kubernetesSecrets ?? [];
  const isFull = secrets.length >= writeWhileMatchingMax;
  for (const secret of shown.secrets) {
    for (const each of secrets) {
      const sameHash = each.credentialHash !== '' && each.credentialHash === secret.credentialHash;
      const sameObject = each.uid === secret.uid && each.namespace === secret.namespace && each.name === secret.name;
      // The same credential in another Secret is as good, and the same Secret with another content too.
      if (sameHash) return { proven: true, learn: sameObject || isFull ? null : secret };
      if (sameObject && !isFull) return { proven: true, learn: secret };
    }
  }
  const { serviceAccount } = shown;
  const isKnown = (known.kubernetesServiceAccounts ?? []).some(
    (each) => each.uid === serviceAccount?.uid && each.namespace === serviceAccount.namespace && each.name === serviceAccount.name,
  );
  return { proven: isKnown, learn: null };
}

/** The record after a pull with `fresh` (null: nobody knows with what); the same object when nothing changes. */
export function mergedRecord(
  record: ImagePulledRecord | null,
  imageRef: string,
  bareImage: string,
  fresh: ImagePullCredentials | null,
  now: string,
): ImagePulledRecord {
  const head = { kind: 'ImagePulledRecord', apiVersion: recordsVersion, lastUpdatedTime: now, imageRef } as const;
  if (record === null) return { ...head, credentialMapping: fresh === null ? {} : { [bareImage]: fresh } };
  const isEmpty = fresh === null || (fresh.nodePodsAccessible !== true && !fresh.kubernetesSecrets?.length && !fresh.kubernetesServiceAccounts?.length);
  if (isEmpty) return record;
  const known = record.credentialMapping?.[bareImage];
  const withCredentials = (credentials: ImagePullCredentials): ImagePulledRecord => ({
    ...head,
    credentialMapping: { ...record.credentialMapping, [bareImage]: credentials },
  });
  if (known === undefined) return withCredentials(fresh);
  if (known.nodePodsAccessible === true) return record;
  if (fresh.nodePodsAccessible === true) return withCredentials({ nodePodsAccessible: true });
  const secrets = merged(known.kubernetesSecrets ?? [], fresh.kubernetesSecrets ?? [], (a, b) => a.credentialHash === b.credentialHash);
  const accounts = merged(known.kubernetesServiceAccounts ?? [], fresh.kubernetesServiceAccounts ?? [], () => true);
  if (secrets === null && accounts === null) return record;
  const allSecrets = secrets ?? known.kubernetesSecrets ?? [];
  const allAccounts = accounts ?? known.kubernetesServiceAccounts ?? [];
  return withCredentials({
    ...(allSecrets.length === 0 ? {} : { kubernetesSecrets: allSecrets }),
    ...(allAccounts.length === 0 ? {} : { kubernetesServiceAccounts: allAccounts }),
  });
}

/** Both, each object once, in order; null when `fresh` brings nothing new. */
function merged<T extends PullServiceAccount>(known: readonly T[], fresh: readonly T[], same: (a: T, b: T) => boolean): T[] | null {
  const keyOf = ({ namespace, name, uid }: T): string => `${namespace}/${name}/${uid}`;
  const all = new Map(known.map((each) => [keyOf(each), each]));
  let changed = false;
  for (const each of fresh) {
    const before = all.get(keyOf(each));
    if (before !== undefined && same(before, each)) continue;
    all.set(keyOf(each), each);
    changed = true;
  }
  return changed ? [...all.entries()].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each) : null;
}
