import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Definition, Property, Schema } from '../../proto/kube/schema-types.ts';

/** Which definitions are taken; on a clash of names the earlier line keeps the bare one. */
const groups: readonly (readonly [prefix: string, alias: string])[] = [
  ['io.k8s.api.core.v1.', 'Core'],
  ['io.k8s.apimachinery.pkg.apis.meta.v1.', 'Meta'],
  ['io.k8s.apimachinery.pkg.api.resource.', 'Resource'],
  ['io.k8s.apimachinery.pkg.util.intstr.', 'Intstr'],
  ['io.k8s.apimachinery.pkg.runtime.', 'Runtime'],
  ['io.k8s.apimachinery.pkg.version.', 'Version'],
  ['io.k8s.api.apps.v1.', 'Apps'],
  ['io.k8s.api.batch.v1.', 'Batch'],
  ['io.k8s.api.discovery.v1.', 'Discovery'],
  ['io.k8s.api.coordination.v1.', 'Coordination'],
  ['io.k8s.api.events.v1.', 'Events'],
  ['io.k8s.api.rbac.v1.', 'Rbac'],
  ['io.k8s.api.authentication.v1.', 'Authentication'],
  ['io.k8s.api.authorization.v1.', 'Authorization'],
  ['io.k8s.api.certificates.v1.', 'Certificates'],
  ['io.k8s.api.networking.v1.', 'Networking'],
  ['io.k8s.api.policy.v1.', 'Policy'],
  ['io.k8s.api.storage.v1.', 'Storage'],
  ['io.k8s.api.scheduling.v1.', 'Scheduling'],
  ['io.k8s.api.node.v1.', 'Node'],
  ['io.k8s.api.autoscaling.v2.', 'AutoscalingV2'],
  ['io.k8s.api.autoscaling.v1.', 'AutoscalingV1'],
  ['io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.', 'Apiextensions'],
  ['io.k8s.api.admissionregistration.v1.', 'Admissionregistration'],
  ['io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.', 'Apiregistration'],
  ['io.k8s.api.resource.v1.', 'ResourceV1'],
  ['io.k8s.api.flowcontrol.v1.', 'Flowcontrol'],
];

/** Taken only as far as the groups above refer to them. */
const referredTo: readonly (readonly [prefix: string, alias: string])[] = [['io.k8s.api.scheduling.v1alpha3.', 'SchedulingV1alpha3']];

/** Names that would hide one of the language's own. */
const renamed: Readonly<Record<string, string>> = { JSON: 'JSONValue' };

interface SwaggerSchema {
  description?: string;
  type?: string;
  format?: string;
  $ref?: string;
  items?: SwaggerSchema;
  additionalProperties?: SwaggerSchema;
  properties?: Record<string, SwaggerSchema>;
  required?: string[];
  default?: unknown;
  allOf?: SwaggerSchema[];
  [extension: `x-kubernetes-${string}`]: unknown;
}

interface OperationSource {
  'x-kubernetes-action'?: string;
  'x-kubernetes-group-version-kind'?: { group: string; version: string; kind: string };
}

export interface Swagger {
  info: { version: string };
  definitions: Record<string, SwaggerSchema>;
  paths: Record<string, Record<string, OperationSource>>;
}

/** What is read from the Kubernetes module: the v2 description, defaults from v3, enums from the generated Go. */
export interface KubeSource {
  swagger: Swagger;
  /** `upstream definition name` → property → default that is not a zero value. */
  defaults: ReadonlyMap<string, Record<string, unknown>>;
  /** `short Go name, package last element + type` → property → values. */
  enums: ReadonlyMap<string, Record<string, string[]>>;
}

function isZero(value: unknown): boolean {
  return value === undefined || value === '' || value === 0 || value === false || JSON.stringify(value) === '{}';
}

function readDefaults(folder: string): Map<string, Record<string, unknown>> {
  const found = new Map<string, Record<string, unknown>>();
  for (const file of readdirSync(folder).sort()) {
    const text = readFileSync(join(folder, file), 'utf8');
    const schemas = (JSON.parse(text) as { components?: { schemas?: Record<string, SwaggerSchema> } }).components?.schemas ?? {};
    for (const [name, definition] of Object.entries(schemas)) {
      for (const [property, value] of Object.entries(definition.properties ?? {})) {
        if (!isZero(value.default)) found.set(name, { ...found.get(name), [property]: value.default });
      }
    }
  }
  return found;
}

/** Enums stand in upstream's generated Go code only; the line shapes are gofmt's and stable. */
function readEnums(file: string): Map<string, Record<string, string[]>> {
  const found = new Map<string, Record<string, string[]>>();
  let owner = '';
  let property = '';
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    const start = /^func schema_(\w+)\(/.exec(line);
    if (start !== null) owner = start[1] ?? '';
    const name = /^\t{5}"([^"]+)": \{$/.exec(line);
    if (name !== null) property = name[1] ?? '';
    const values = /^\t+Enum: +\[\]interface\{\}\{(.*)\},$/.exec(line);
    if (values !== null) {
      const list = [...(values[1] ?? '').matchAll(/"([^"]*)"/g)].map((match) => match[1] ?? '');
      if (list.length > 0) found.set(owner, { ...found.get(owner), [property]: list });
    }
  }
  return found;
}

/** The sources in `module` (the unpacked Go module), or undefined where they are not on this machine. */
export function readKubeSource(module: string): KubeSource | undefined {
  const swagger = join(module, 'api/openapi-spec/swagger.json');
  if (!existsSync(swagger)) return undefined;
  return {
    swagger: JSON.parse(readFileSync(swagger, 'utf8')) as Swagger,
    defaults: readDefaults(join(module, 'api/openapi-spec/v3')),
    enums: readEnums(join(module, 'pkg/generated/openapi/zz_generated.openapi.go')),
  };
}

/** `io.k8s.api.core.v1.Pod` → the name of the Go function that describes it: `k8sio_api_core_v1_Pod`. */
function goName(id: string): string {
  return id.replace(/^io\.k8s\./, 'k8sio.').replaceAll(/[.-]/g, '_');
}

function refersTo(value: unknown, into: Set<string>): void {
  if (typeof value !== 'object' || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    if (key === '$ref' && typeof inner === 'string') into.add(inner.replace('#/definitions/', ''));
    else refersTo(inner, into);
  }
}

/** Definitions of the groups and all that these refer to. */
function wantedIds(definitions: Swagger['definitions']): string[] {
  const wanted = new Set(Object.keys(definitions).filter((id) => groups.some(([prefix]) => id.startsWith(prefix))));
  // A set grows while it is walked.
  for (const id of wanted) refersTo(definitions[id], wanted);
  return [...wanted];
}

function shortNames(definitions: Swagger['definitions']): Map<string, string> {
  const ids = wantedIds(definitions);
  const taken = new Map<string, string>();
  const names = new Map<string, string>();
  for (const [prefix, alias] of [...groups, ...referredTo]) {
    for (const id of ids) {
      const bare = id.slice(prefix.length);
      if (!id.startsWith(prefix) || bare.includes('.')) continue;
      const wanted = renamed[bare] ?? bare;
      const name = taken.has(wanted) ? `${alias}${bare}` : wanted;
      if (taken.has(name)) throw new Error(`two definitions want the name ${name}: ${id} and ${taken.get(name)}`);
      taken.set(name, id);
      names.set(id, name);
    }
  }
  return names;
}

function convert(source: SwaggerSchema, names: ReadonlyMap<string, string>): Property {
  const out: Property = {};
  const target = source.$ref ?? source.allOf?.[0]?.$ref;
  if (target !== undefined) {
    const id = target.replace('#/definitions/', '');
    const name = names.get(id);
    if (name === undefined) throw new Error(`reference to a definition that is not taken: ${id}`);
    out.ref = name;
  }
  if (source.type !== undefined) out.type = source.type;
  if (source.format !== undefined) out.format = source.format;
  if (source.items !== undefined) out.items = convert(source.items, names);
  if (source.additionalProperties !== undefined) out.additionalProperties = convert(source.additionalProperties, names);
  for (const [key, value] of Object.entries(source)) {
    if (key.startsWith('x-kubernetes-')) (out as Record<string, unknown>)[key] = value;
  }
  return out;
}

export function buildSchema(source: KubeSource): Schema {
  const { definitions, info } = source.swagger;
  const names = shortNames(definitions);
  const entries: [string, Definition][] = [];
  for (const [id, name] of names) {
    const from = definitions[id] as SwaggerSchema;
    const definition: Definition = { id, ...convert(from, names) };
    if (name === 'IntOrString') definition['x-kubernetes-int-or-string'] = true;
    if (from.required !== undefined) definition.required = from.required;
    if (from.properties !== undefined) {
      const defaults = source.defaults.get(id);
      const enums = source.enums.get(goName(id));
      const properties: Record<string, Property> = {};
      for (const [key, property] of Object.entries(from.properties)) {
        const converted = convert(property, names);
        if (defaults?.[key] !== undefined) converted.default = defaults[key];
        const values = enums?.[key];
        if (values !== undefined) (converted.items ?? converted).enum = values;
        properties[key] = converted;
      }
      definition.properties = properties;
    }
    entries.push([name, definition]);
  }
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return { version: info.version, definitions: Object.fromEntries(entries) };
}

/** One definition a line: small, and a change in one kind is a change in one line. */
export function printSchema(schema: Schema): string {
  const lines = Object.entries(schema.definitions).map(([name, definition]) => `${JSON.stringify(name)}:${JSON.stringify(definition)}`);
  return `{"version":${JSON.stringify(schema.version)},"definitions":{\n${lines.join(',\n')}\n}}\n`;
}
