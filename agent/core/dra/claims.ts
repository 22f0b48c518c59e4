import type { Container, Pod, ResourceV1ResourceClaim } from '../../../proto/kube/types.ts';

/** A device as its driver described it when it was prepared. */
export interface PreparedDevice {
  readonly poolName: string;
  readonly deviceName: string;
  /** null: the device is not shared. */
  readonly shareId: string | null;
  /** Empty: for all requests. */
  readonly requestNames: readonly string[];
  readonly cdiDeviceIds: readonly string[];
}

export interface DriverState {
  readonly devices: readonly PreparedDevice[];
  /** Operations that this driver need not be called for: NodePrepareResources, NodeUnprepareResources, `*`. */
  readonly skips: readonly string[];
}

/** A claim that pods of this node use. */
export interface ClaimInfo {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly podUids: ReadonlySet<string>;
  /** All drivers that have a part in it. */
  readonly drivers: ReadonlyMap<string, DriverState>;
}

/** One of a pod's claims: how the pod calls it, and the object's name; null: none was made, for none is needed. */
export interface ClaimRef {
  readonly podClaim: string;
  readonly name: string | null;
  /** It was made for a pod, and may be used by that one alone. */
  readonly isOwned: boolean;
}

/** A pod's claims, that of its extended resources last; or why one has no name yet. */
export function claimsOf(pod: Pod): { readonly ok: true; readonly claims: readonly ClaimRef[] } | { readonly ok: false; readonly message: string } {
  const claims: ClaimRef[] = [];
  for (const { name, resourceClaimName, resourceClaimTemplateName } of pod.spec.resourceClaims ?? []) {
    if (resourceClaimName !== undefined) {
      claims.push({ podClaim: name, name: resourceClaimName, isOwned: false });
      continue;
    }
    if (resourceClaimTemplateName === undefined)
      return { ok: false, message: `pod "${podName(pod)}", spec.resourceClaim ${JSON.stringify(name)}: unsupported API, none of the fields are set` };
    const status = pod.status?.resourceClaimStatuses?.find((each) => each.name === name);
    if (status === undefined) return { ok: false, message: `pod "${podName(pod)}": ResourceClaim not created yet` };
    claims.push({ podClaim: name, name: status.resourceClaimName ?? null, isOwned: true });
  }
  const extended = pod.status?.extendedResourceClaimStatus?.resourceClaimName;
  if (extended !== undefined) claims.push({ podClaim: '', name: extended, isOwned: false });
  return { ok: true, claims };
}

function podName(pod: Pod): string {
  return `${pod.metadata.namespace ?? ''}/${pod.metadata.name ?? ''}`;
}

const schedulingGroup = 'scheduling.k8s.io';

/**
 * Why the pod may not use the claim; null: it may. A pod knows of its group the name alone, so that is what counts.
 * @param ofGroups `DRAWorkloadResourceClaims` (KEP-5729): claims made or reserved for the pod's group are the pod's too
 */
export function claimRefusal(pod: Pod, claim: ResourceV1ResourceClaim, isOwned: boolean, ofGroups = false): string | null {
  const { uid = '', name = '', namespace = '' } = pod.metadata;
  const claimName = claim.metadata.name ?? '';
  const group = ofGroups ? pod.spec.schedulingGroup?.podGroupName : undefined;
  const owner = claim.metadata.ownerReferences?.find(({ controller }) => controller === true);
  const isGroups = group !== undefined && owner?.kind === 'PodGroup' && owner.name === group && owner.apiVersion.startsWith(`${schedulingGroup}/`);
  if (isOwned && owner?.uid !== uid && !isGroups) {
    const whose = group === undefined ? 'Pod is not owner' : `neither Pod nor PodGroup ${group} is the owner`;
    return `ResourceClaim ${namespace}/${claimName} was not created for Pod ${namespace}/${name} (${whose})`;
  }
  const mayUse = (claim.status?.reservedFor ?? []).some(
    (user) => user.uid === uid || (group !== undefined && user.apiGroup === schedulingGroup && user.resource === 'podgroups' && user.name === group),
  );
  if (!mayUse) return `pod ${name} (${uid}) is not allowed to use ResourceClaim ${claimName} (${claim.metadata.uid ?? ''})`;
  if (claim.status?.allocation === undefined) return `ResourceClaim ${claimName}: not allocated`;
  return null;
}

/** A claim before anything of it is prepared. A driver is skipped only when all of its devices say so (KEP-5959). */
export function newClaimInfo(claim: ResourceV1ResourceClaim): ClaimInfo {
  const byDriver = new Map<string, (readonly string[])[]>();
  for (const { driver, skipNodeOperations = [] } of claim.status?.allocation?.devices?.results ?? [])
    byDriver.set(driver, [...(byDriver.get(driver) ?? []), skipNodeOperations]);
  const drivers = new Map<string, DriverState>();
  for (const [driver, results] of byDriver) {
    const inAll = (operation: string): boolean => results.every((skips) => skips.includes('*') || skips.includes(operation));
    const skips = results.every((each) => each.includes('*')) ? ['*'] : ['NodePrepareResources', 'NodeUnprepareResources'].filter(inAll);
    drivers.set(driver, { devices: [], skips });
  }
  const { uid = '', name = '', namespace = '' } = claim.metadata;
  return { uid, name, namespace, podUids: new Set(), drivers };
}

export function skips(state: DriverState, operation: 'NodePrepareResources' | 'NodeUnprepareResources'): boolean {
  return state.skips.includes('*') || state.skips.includes(operation);
}

/** Which requests of which claims a container uses, by the claims' object names. '' is every request. */
export function requestsOf(pod: Pod, container: Container): ReadonlyMap<string, readonly string[]> {
  const found = claimsOf(pod);
  const requests = new Map<string, string[]>();
  const add = (claim: string, request: string): void => void requests.set(claim, [...(requests.get(claim) ?? []), request]);
  if (found.ok) {
    for (const { podClaim, name } of found.claims) {
      if (name === null || podClaim === '') continue;
      for (const use of container.resources?.claims ?? []) if (use.name === podClaim) add(name, use.request ?? '');
    }
  }
  const extended = pod.status?.extendedResourceClaimStatus;
  for (const mapping of extended?.requestMappings ?? []) {
    const asked = container.resources?.requests?.[mapping.resourceName] ?? container.resources?.limits?.[mapping.resourceName];
    if (mapping.containerName === container.name && asked !== undefined && asked !== '0') add(extended?.resourceClaimName ?? '', mapping.requestName);
  }
  return requests;
}

/** Names of CDI devices for a request of a claim; '' is every request. */
export function cdiDevicesOf(info: ClaimInfo, request: string): string[] {
  return [...info.drivers.values()].flatMap(({ devices }) =>
    devices
      .filter(({ requestNames }) => request === '' || requestNames.length === 0 || requestNames.includes(request))
      .flatMap(({ cdiDeviceIds }) => cdiDeviceIds),
  );
}
