import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import type { Obj } from './json.ts';

/** Versions of each group, in the order their resources stand in the registry. */
export function groupsOf(resources: readonly ResourceInfo[]): Map<string, string[]> {
  const out = new Map<string, string[]>();
  for (const { group, version } of resources) {
    const versions = out.get(group) ?? [];
    if (!versions.includes(version)) versions.push(version);
    out.set(group, versions);
  }
  // The newer of two versions is the preferred one.
  for (const versions of out.values()) versions.sort((a, b) => b.localeCompare(a, undefined, { numeric: true }));
  return out;
}

const groupVersion = (group: string, version: string): string => (group === '' ? version : `${group}/${version}`);

/** GET /api and GET /apis in their plain form. */
export function apiVersions(address: string): Obj {
  return { kind: 'APIVersions', versions: ['v1'], serverAddressByClientCIDRs: [{ clientCIDR: '0.0.0.0/0', serverAddress: address }] };
}

function apiGroup(group: string, versions: readonly string[]): Obj {
  const list = versions.map((version) => ({ groupVersion: groupVersion(group, version), version }));
  return { name: group, versions: list, preferredVersion: list[0] };
}

export function apiGroupList(resources: readonly ResourceInfo[]): Obj {
  const groups = [...groupsOf(resources)].filter(([group]) => group !== '').map(([group, versions]) => apiGroup(group, versions));
  return { kind: 'APIGroupList', apiVersion: 'v1', groups };
}

export function apiGroupOf(resources: readonly ResourceInfo[], group: string): Obj | undefined {
  const versions = groupsOf(resources).get(group);
  return versions === undefined ? undefined : { kind: 'APIGroup', apiVersion: 'v1', ...apiGroup(group, versions) };
}

/** GET /api/v1, GET /apis/<group>/<version>. */
export function apiResourceList(resources: readonly ResourceInfo[], group: string, version: string): Obj | undefined {
  const own = resources.filter((info) => info.group === group && info.version === version);
  if (own.length === 0) return undefined;
  const list = own.flatMap((info) => [
    {
      name: info.resource,
      singularName: info.singular,
      namespaced: info.namespaced,
      kind: info.kind,
      verbs: info.verbs,
      shortNames: info.shortNames,
      categories: info.categories,
    },
    ...(info.subresources ?? []).map((sub) => ({
      name: `${info.resource}/${sub.name}`,
      singularName: '',
      namespaced: info.namespaced,
      group: sub.group,
      version: sub.version,
      kind: sub.kind,
      verbs: sub.verbs,
    })),
  ]);
  return { kind: 'APIResourceList', apiVersion: 'v1', groupVersion: groupVersion(group, version), resources: list };
}

/** Everything in one answer: apidiscovery.k8s.io/v2, for /api (the core group alone) or /apis (the others). */
export function aggregated(resources: readonly ResourceInfo[], isCore: boolean): Obj {
  const items = [...groupsOf(resources)]
    .filter(([group]) => (group === '') === isCore)
    .map(([group, versions]) => ({
      metadata: group === '' ? { creationTimestamp: null } : { name: group, creationTimestamp: null },
      versions: versions.map((version) => ({
        version,
        freshness: 'Current',
        resources: resources.filter((info) => info.group === group && info.version === version).map((info) => aggregatedResource(info)),
      })),
    }));
  return { kind: 'APIGroupDiscoveryList', apiVersion: 'apidiscovery.k8s.io/v2', metadata: {}, items };
}

function aggregatedResource(info: ResourceInfo): Obj {
  return {
    resource: info.resource,
    responseKind: { group: info.group, version: info.version, kind: info.kind },
    scope: info.namespaced ? 'Namespaced' : 'Cluster',
    singularResource: info.singular,
    verbs: info.verbs,
    shortNames: info.shortNames,
    categories: info.categories,
    subresources: info.subresources?.map((sub) => ({
      subresource: sub.name,
      responseKind: { group: sub.group ?? info.group, version: sub.version ?? info.version, kind: sub.kind },
      verbs: sub.verbs,
    })),
  };
}
