import { resources, schema } from '../../proto/kube/data.ts';
import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import type { TypeIndex } from './manifest.ts';

/** The built-in resource of a kind; undefined for a kind that only some server may know. */
export function builtinResource(apiVersion: string, kind: string): ResourceInfo | undefined {
  const [first = '', second] = apiVersion.split('/');
  const [group, version] = second === undefined ? ['', first] : [first, second];
  return resources.find((resource) => resource.group === group && resource.version === version && resource.kind === kind);
}

/** The types of Kubernetes 1.37 that are built in. */
export const builtinTypes: TypeIndex = {
  of(apiVersion, kind) {
    const resource = builtinResource(apiVersion, kind);
    return resource === undefined ? undefined : schema.definitions[resource.definition];
  },
  resolve: (ref) => schema.definitions[ref],
};
