import type { Definition, Property, ResourceInfo, Schema } from '../../proto/kube/schema-types.ts';

/** What is known of one place in an object. `undefined` where the schema ends (free-form content). */
export type Shape = Property & { properties?: Record<string, Property> };

export interface Types {
  /** The shape of a kind by its definition's short name. */
  definition(name: string): Definition | undefined;
  /** The short name of a definition by its full one. */
  nameOf(id: string): string | undefined;
  /** Follows `ref`; list and map extensions beside the reference win over the definition's own. */
  resolve(property: Property | undefined): Shape | undefined;
  /** The shape below a field of an object. */
  field(shape: Shape | undefined, name: string): Shape | undefined;
  item(shape: Shape | undefined): Shape | undefined;
  /** An empty list or map in this field is left out, as Go leaves out what is `omitempty`. */
  dropsEmpty(shape: Shape, field: string): boolean;
}

/** `wire` names the fields of each type as `<number><name>`, with a star where an empty value is kept. */
export function createTypes(schema: Schema, wire: Readonly<Record<string, string>> = {}): Types {
  const names = new Map(Object.entries(schema.definitions).map(([name, { id }]) => [id, name]));
  const omittable = new Map<string, ReadonlySet<string>>();
  const omitted = (name: string): ReadonlySet<string> => {
    let found = omittable.get(name);
    if (found === undefined) {
      const fields = (wire[name] ?? '').split(',').filter((item) => item !== '' && !item.endsWith('*') && !item.includes('^'));
      found = new Set(fields.map((item) => item.replace(/^\d+/, '')));
      omittable.set(name, found);
    }
    return found;
  };
  const resolved = new Map<Property, Shape | undefined>();
  const resolve = (property: Property | undefined): Shape | undefined => {
    if (property === undefined || property.ref === undefined) return property;
    if (resolved.has(property)) return resolved.get(property);
    const target = schema.definitions[property.ref];
    const { ref: _, ...beside } = property;
    const shape = target === undefined ? undefined : { ...target, ...beside };
    resolved.set(property, shape);
    return shape;
  };
  return {
    definition: (name) => schema.definitions[name],
    nameOf: (id) => names.get(id),
    resolve,
    field: (shape, name) => resolve(shape?.properties?.[name] ?? shape?.additionalProperties),
    item: (shape) => resolve(shape?.items),
    dropsEmpty: (shape, field) => omitted(names.get((shape as Definition).id ?? '') ?? '').has(field),
  };
}

/** How list items are told apart when lists are merged: not at all, by value, or by keys. */
export type ListKind = { kind: 'atomic' } | { kind: 'set' } | { kind: 'map'; keys: readonly string[] };

export function listKind(shape: Shape | undefined): ListKind {
  switch (shape?.['x-kubernetes-list-type']) {
    case 'map':
      return { kind: 'map', keys: shape['x-kubernetes-list-map-keys'] ?? [] };
    case 'set':
      return { kind: 'set' };
    default:
      return { kind: 'atomic' };
  }
}

export function isAtomicMap(shape: Shape | undefined): boolean {
  return shape?.['x-kubernetes-map-type'] === 'atomic';
}

/** Finds resources by the parts of a path and kinds by their name. */
export interface Registry {
  readonly all: readonly ResourceInfo[];
  find(group: string, version: string, resource: string): ResourceInfo | undefined;
  kind(group: string, version: string, kind: string): ResourceInfo | undefined;
  /** The first served version of a resource. */
  preferred(group: string, resource: string): ResourceInfo | undefined;
}

export function createRegistry(all: readonly ResourceInfo[]): Registry {
  const byPath = new Map(all.map((info) => [`${info.group}/${info.version}/${info.resource}`, info]));
  const byKind = new Map(all.map((info) => [`${info.group}/${info.version}/${info.kind}`, info]));
  return {
    all,
    find: (group, version, resource) => byPath.get(`${group}/${version}/${resource}`),
    kind: (group, version, kind) => byKind.get(`${group}/${version}/${kind}`),
    preferred: (group, resource) => all.find((info) => info.group === group && info.resource === resource),
  };
}

export function apiVersionOf(info: { group: string; version: string }): string {
  return info.group === '' ? info.version : `${info.group}/${info.version}`;
}
