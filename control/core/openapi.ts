import type { Definition, Property, ResourceInfo, Schema } from '../../proto/kube/schema-types.ts';
import type { Obj } from './json.ts';
import { apiVersionOf } from './schema.ts';

/** OpenAPI documents made from the compact schema: enough for explain, validation and apply. */

type Dialect = { prefix: string };

const V3: Dialect = { prefix: '#/components/schemas/' };
const V2: Dialect = { prefix: '#/definitions/' };

function property(schema: Schema, from: Property, dialect: Dialect, used: Set<string>): Obj {
  const { ref, items, additionalProperties, default: standard, ...rest } = from as Property & { id?: string };
  const out: Obj = { ...rest };
  delete out['id'];
  if (standard !== undefined) out['default'] = standard;
  if (items !== undefined) out['items'] = property(schema, items, dialect, used);
  if (additionalProperties !== undefined) out['additionalProperties'] = property(schema, additionalProperties, dialect, used);
  if (ref !== undefined) {
    used.add(ref);
    const target = { $ref: dialect.prefix + (schema.definitions[ref]?.id ?? ref) };
    if (dialect === V2) return { ...out, ...target };
    // OpenAPI 3.0 forbids anything beside a reference.
    return Object.keys(out).length === 0 ? target : { ...out, allOf: [target] };
  }
  return out;
}

function definition(schema: Schema, from: Definition, dialect: Dialect, used: Set<string>): Obj {
  const { id: _, properties, required, ...rest } = from;
  const out = property(schema, rest, dialect, used);
  if (required !== undefined) out['required'] = required;
  if (properties !== undefined)
    out['properties'] = Object.fromEntries(Object.entries(properties).map(([name, item]) => [name, property(schema, item, dialect, used)]));
  return out;
}

function closure(schema: Schema, roots: Iterable<string>, dialect: Dialect): Obj {
  const out: Obj = {};
  const used = new Set(roots);
  for (const name of used) {
    const found = schema.definitions[name];
    if (found !== undefined) out[found.id] = definition(schema, found, dialect, used);
  }
  return out;
}

const query = (name: string, type: string): Obj => ({ name, in: 'query', schema: { type, uniqueItems: true } });
const WRITE_QUERY = [query('dryRun', 'string'), query('fieldManager', 'string'), query('fieldValidation', 'string')];

const VERBS: Record<string, [method: string, action: string, onItem: boolean]> = {
  get: ['get', 'get', true],
  list: ['get', 'list', false],
  create: ['post', 'post', false],
  update: ['put', 'put', true],
  patch: ['patch', 'patch', true],
  delete: ['delete', 'delete', true],
  deletecollection: ['delete', 'deletecollection', false],
};

const PATCH_BODY: Obj = {
  content: Object.fromEntries(
    ['application/apply-patch+yaml', 'application/json-patch+json', 'application/merge-patch+json', 'application/strategic-merge-patch+json'].map((type) => [
      type,
      { schema: { type: 'object' } },
    ]),
  ),
};

function operation(action: string, kind: Obj, reference: Obj): Obj {
  const body = { content: { '*/*': { schema: reference } } };
  const out: Obj = {
    responses: { 200: { description: 'OK', content: { 'application/json': { schema: reference } } } },
    'x-kubernetes-action': action,
    'x-kubernetes-group-version-kind': kind,
  };
  if (['post', 'put', 'patch'].includes(action)) {
    out['parameters'] = action === 'patch' ? [...WRITE_QUERY, query('force', 'boolean')] : WRITE_QUERY;
    out['requestBody'] = action === 'patch' ? PATCH_BODY : body;
  }
  return out;
}

function pathsOf(schema: Schema, resources: readonly ResourceInfo[], dialect: Dialect): Obj {
  const out: Obj = {};
  for (const info of resources) {
    const root = info.group === '' ? `/api/${info.version}` : `/apis/${info.group}/${info.version}`;
    const base = `${root}${info.namespaced ? '/namespaces/{namespace}' : ''}/${info.resource}`;
    const kind = { group: info.group, version: info.version, kind: info.kind };
    const reference = { $ref: dialect.prefix + (schema.definitions[info.definition]?.id ?? info.definition) };
    for (const verb of info.verbs) {
      const known = VERBS[verb];
      if (known === undefined) continue;
      const [method, action, onItem] = known;
      const path = onItem ? `${base}/{name}` : base;
      out[path] ??= {};
      out[path][method] = operation(action, kind, reference);
    }
  }
  return out;
}

/** GET /openapi/v3/…: one group version. */
export function openApiV3(schema: Schema, all: readonly ResourceInfo[], group: string, version: string): Obj | undefined {
  const own = all.filter((info) => info.group === group && info.version === version);
  if (own.length === 0) return undefined;
  const roots = [...own.map((info) => info.definition), 'DeleteOptions', 'Status', 'WatchEvent'];
  const gv = apiVersionOf({ group, version });
  for (const [name, item] of Object.entries(schema.definitions)) {
    if (item['x-kubernetes-group-version-kind']?.some((kind) => apiVersionOf(kind) === gv && kind.kind.endsWith('List')) === true) roots.push(name);
  }
  return {
    openapi: '3.0.0',
    info: { title: 'Kubernetes', version: 'unversioned' },
    paths: pathsOf(schema, own, V3),
    components: { schemas: closure(schema, roots, V3) },
  };
}

/** GET /openapi/v2: everything in one document. */
export function openApiV2(schema: Schema, all: readonly ResourceInfo[], version: string): Obj {
  return {
    swagger: '2.0',
    info: { title: 'Kubernetes', version },
    paths: {},
    definitions: closure(schema, [...new Set(all.map((info) => info.definition)), 'Status', 'DeleteOptions'], V2),
  };
}
