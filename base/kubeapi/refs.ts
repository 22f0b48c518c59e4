import type { ResourceRef } from './types.ts';

type Named = (name?: string) => ResourceRef;
type Namespaced = (namespace?: string, name?: string) => ResourceRef;

function cluster(group: string, version: string, resource: string): Named {
  return (name) => (name === undefined ? { group, version, resource } : { group, version, resource, name });
}

function namespaced(group: string, version: string, resource: string): Namespaced {
  return (namespace, name) => {
    const ref: ResourceRef = { group, version, resource };
    if (namespace !== undefined) ref.namespace = namespace;
    if (name !== undefined) ref.name = name;
    return ref;
  };
}

/** The resource itself → one of its subresources. */
export function subresource(ref: ResourceRef, name: string): ResourceRef {
  return { ...ref, subresource: name };
}

/** Without a namespace: all of them; without a name: the collection. */
export const pods: Namespaced = namespaced('', 'v1', 'pods');
export const services: Namespaced = namespaced('', 'v1', 'services');
export const configMaps: Namespaced = namespaced('', 'v1', 'configmaps');
export const secrets: Namespaced = namespaced('', 'v1', 'secrets');
export const serviceAccounts: Namespaced = namespaced('', 'v1', 'serviceaccounts');
export const coreEvents: Namespaced = namespaced('', 'v1', 'events');
export const nodes: Named = cluster('', 'v1', 'nodes');
export const namespaces: Named = cluster('', 'v1', 'namespaces');
export const persistentVolumes: Named = cluster('', 'v1', 'persistentvolumes');
export const persistentVolumeClaims: Namespaced = namespaced('', 'v1', 'persistentvolumeclaims');
export const leases: Namespaced = namespaced('coordination.k8s.io', 'v1', 'leases');
export const endpointSlices: Namespaced = namespaced('discovery.k8s.io', 'v1', 'endpointslices');
export const events: Namespaced = namespaced('events.k8s.io', 'v1', 'events');
export const networkPolicies: Namespaced = namespaced('networking.k8s.io', 'v1', 'networkpolicies');
export const clusterNetworkPolicies: Named = cluster('policy.networking.k8s.io', 'v1alpha2', 'clusternetworkpolicies');
export const serviceCidrs: Named = cluster('networking.k8s.io', 'v1', 'servicecidrs');
export const podCertificateRequests: Namespaced = namespaced('certificates.k8s.io', 'v1', 'podcertificaterequests');
export const csiDrivers: Named = cluster('storage.k8s.io', 'v1', 'csidrivers');
export const csiNodes: Named = cluster('storage.k8s.io', 'v1', 'csinodes');
export const volumeAttachments: Named = cluster('storage.k8s.io', 'v1', 'volumeattachments');
export const resourceClaims: Namespaced = namespaced('resource.k8s.io', 'v1', 'resourceclaims');
export const resourceSlices: Named = cluster('resource.k8s.io', 'v1', 'resourceslices');
export const tokenReviews: Named = cluster('authentication.k8s.io', 'v1', 'tokenreviews');
export const subjectAccessReviews: Named = cluster('authorization.k8s.io', 'v1', 'subjectaccessreviews');

/** The path of a reference, each part escaped: `/api/v1/namespaces/a/pods/b/status`. */
export function pathOf(ref: ResourceRef): string {
  const parts = ref.group === '' ? ['api', ref.version] : ['apis', ref.group, ref.version];
  if (ref.namespace !== undefined) parts.push('namespaces', ref.namespace);
  parts.push(ref.resource);
  if (ref.name !== undefined) parts.push(ref.name);
  if (ref.subresource !== undefined) parts.push(...ref.subresource.split('/'));
  return `/${parts.map(encodeURIComponent).join('/')}`;
}
