/** Shapes of the committed `schema.json` and `resources.json`. */

export interface GroupVersionKind {
  group: string;
  version: string;
  kind: string;
}

export interface Property {
  /** Short name of another definition. */
  ref?: string;
  type?: string;
  format?: string;
  items?: Property;
  additionalProperties?: Property;
  /** Only defaults that are not the type's zero value. */
  default?: unknown;
  enum?: string[];
  'x-kubernetes-list-type'?: 'atomic' | 'map' | 'set';
  'x-kubernetes-list-map-keys'?: string[];
  'x-kubernetes-map-type'?: 'atomic' | 'granular';
  /** `merge`, `replace`, `retainKeys`, or `merge,retainKeys`. */
  'x-kubernetes-patch-strategy'?: string;
  'x-kubernetes-patch-merge-key'?: string;
  'x-kubernetes-unions'?: { discriminator?: string; 'fields-to-discriminateBy': Record<string, string> }[];
  'x-kubernetes-int-or-string'?: boolean;
  'x-kubernetes-preserve-unknown-fields'?: boolean;
  'x-kubernetes-embedded-resource'?: boolean;
}

export interface Definition extends Property {
  /** Upstream's full name: `io.k8s.api.core.v1.Pod`. */
  id: string;
  required?: string[];
  properties?: Record<string, Property>;
  'x-kubernetes-group-version-kind'?: GroupVersionKind[];
}

export interface Schema {
  /** Kubernetes version the definitions come from. */
  version: string;
  definitions: Record<string, Definition>;
}

export interface SubresourceInfo {
  name: string;
  /** As in discovery; `group`/`version` are there where they differ from the parent's. */
  kind: string;
  group?: string;
  version?: string;
  verbs: string[];
}

export interface ResourceInfo {
  group: string;
  version: string;
  /** Plural, lower case. */
  resource: string;
  singular: string;
  kind: string;
  namespaced: boolean;
  /** Discovery's verbs, sorted: create delete deletecollection get list patch update watch. */
  verbs: string[];
  shortNames?: string[];
  categories?: string[];
  subresources?: SubresourceInfo[];
  /** Short name of the kind's definition in schema.json. */
  definition: string;
}
