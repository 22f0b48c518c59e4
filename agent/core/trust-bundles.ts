import type { ClusterTrustBundle, ClusterTrustBundleProjection, LabelSelector } from '../../proto/kube/types.ts';
import { fnv1a32 } from './hash.ts';
import { matchesRequirement } from './node-selector.ts';
import { pemBlock, pemBodies } from './pem.ts';

/** All bundles of the cluster as they were last seen, and a number that stays the same as long as the process lives. */
export interface TrustBundleCopy {
  readonly bundles: readonly ClusterTrustBundle[];
  readonly orderSeed: number;
}

export type TrustAnchors = { readonly ok: true; readonly text: string } | { readonly ok: false; readonly message: string };

/** The trust anchors that a projection asks for, each once, or upstream's words for why there are none. */
export function trustAnchors(ask: ClusterTrustBundleProjection, copy: TrustBundleCopy): TrustAnchors {
  if (ask.name === undefined && ask.signerName === undefined)
    return { ok: false, message: 'ClusterTrustBundle projection requires either name or signerName to be set' };
  const chosen = copy.bundles.filter((bundle) => isMeant(ask, bundle));
  if (chosen.length === 0 && ask.optional !== true) return { ok: false, message: absence(ask) };
  const anchors = new Set(chosen.flatMap((bundle) => pemBodies(bundle.spec.trustBundle)));
  // No meaning may be read out of the order, so it differs between processes; it stays within one, so that files do not change.
  const rank = (body: string): number => fnv1a32(`${copy.orderSeed} ${body.slice(-64)}`);
  const ordered = [...anchors]
    .map((body) => ({ body, rank: rank(body) }))
    .toSorted((left, right) => left.rank - right.rank || (left.body < right.body ? -1 : 1));
  return { ok: true, text: ordered.map(({ body }) => pemBlock('CERTIFICATE', body)).join('') };
}

function isMeant(ask: ClusterTrustBundleProjection, bundle: ClusterTrustBundle): boolean {
  if (ask.name !== undefined) return bundle.metadata.name === ask.name;
  return bundle.spec.signerName === ask.signerName && selects(ask.labelSelector, bundle.metadata.labels ?? {});
}

function absence({ name }: ClusterTrustBundleProjection): string {
  return name === undefined
    ? 'combination of signerName and labelSelector matched zero ClusterTrustBundles'
    : `while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io ${JSON.stringify(name)} not found`;
}

/** No selector selects nothing, an empty one everything. */
function selects(selector: LabelSelector | undefined, labels: Readonly<Record<string, string>>): boolean {
  if (selector === undefined) return false;
  if (Object.entries(selector.matchLabels ?? {}).some(([key, value]) => labels[key] !== value)) return false;
  return (selector.matchExpressions ?? []).every((each) => matchesRequirement(each, labels[each.key]));
}
