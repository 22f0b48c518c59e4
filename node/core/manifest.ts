import { parseImageName } from './oci.ts';

/** An object of a manifest, before any server has seen it. */
export interface ManifestObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly namespace: string | undefined;
  readonly body: Record<string, unknown>;
}

/** An object of ours, which has its name and needs no check. */
export function objectOf(body: Record<string, unknown>): ManifestObject {
  const { apiVersion, kind, metadata } = body as { apiVersion: string; kind: string; metadata: { name: string; namespace?: string } };
  return { apiVersion, kind, name: metadata.name, namespace: metadata.namespace, body };
}

/** The compact schema of the API's types (proto/kube/schema.json), as far as it is looked at here. */
export interface TypeSchema {
  readonly properties?: Readonly<Record<string, TypeSchema>>;
  readonly items?: TypeSchema;
  readonly additionalProperties?: TypeSchema;
  readonly type?: string;
  readonly ref?: string;
}

export interface TypeIndex {
  /** The type's schema, or undefined for a kind that is not built in. */
  of(apiVersion: string, kind: string): TypeSchema | undefined;
  resolve(ref: string): TypeSchema | undefined;
}

/**
 * Checks parsed documents as the server would with strict field validation, so that a typo is said before anything
 * is started. `problems` are sentences with the place; `objects` is what can be applied when there are none.
 */
export function readManifest(documents: readonly unknown[], types: TypeIndex, file: string): { objects: ManifestObject[]; problems: string[] } {
  const problems: string[] = [];
  const objects: ManifestObject[] = [];
  const flat = documents.flatMap((document) => {
    if (document === null || document === undefined) return [];
    const list = document as { kind?: unknown; items?: unknown };
    return list.kind === 'List' && Array.isArray(list.items) ? (list.items as unknown[]) : [document];
  });
  if (flat.length === 0) problems.push(`${file}: there is no object in it`);
  for (const [at, document] of flat.entries()) {
    const where = `${file}, document ${at + 1}`;
    if (typeof document !== 'object' || document === null || Array.isArray(document)) {
      problems.push(`${where}: not an object`);
      continue;
    }
    const body = document as Record<string, unknown>;
    const metadata = body['metadata'] as Record<string, unknown> | undefined;
    const { apiVersion, kind } = body;
    const name = metadata?.['name'];
    if (typeof apiVersion !== 'string' || apiVersion === '') problems.push(`${where}: apiVersion is missing`);
    if (typeof kind !== 'string' || kind === '') problems.push(`${where}: kind is missing`);
    if (typeof name !== 'string' || name === '') problems.push(`${where}: metadata.name is missing`);
    if (typeof apiVersion !== 'string' || typeof kind !== 'string' || typeof name !== 'string') continue;
    const schema = types.of(apiVersion, kind);
    if (schema === undefined) problems.push(`${where}: no kind "${kind}" in version "${apiVersion}"`);
    else checkFields(body, schema, types, '', `${where} (${kind} ${name})`, problems);
    const namespace = metadata?.['namespace'];
    objects.push({ apiVersion, kind, name, namespace: typeof namespace === 'string' ? namespace : undefined, body });
  }
  return { objects, problems };
}

function checkFields(value: unknown, schema: TypeSchema, types: TypeIndex, path: string, where: string, problems: string[]): void {
  const target = schema.ref === undefined ? schema : types.resolve(schema.ref);
  if (target === undefined || value === null || value === undefined) return;
  if (target.properties !== undefined) {
    if (typeof value !== 'object' || Array.isArray(value)) {
      problems.push(`${where}: ${path === '' ? 'the document' : path} must be an object`);
      return;
    }
    for (const [key, inner] of Object.entries(value)) {
      const property = target.properties[key];
      if (property === undefined) problems.push(`${where}: unknown field "${path === '' ? key : `${path}.${key}`}"`);
      else checkFields(inner, property, types, path === '' ? key : `${path}.${key}`, where, problems);
    }
  } else if (target.items !== undefined) {
    if (!Array.isArray(value)) problems.push(`${where}: ${path} must be a list`);
    else for (const [at, item] of value.entries()) checkFields(item, target.items, types, `${path}[${at}]`, where, problems);
  } else if (target.additionalProperties !== undefined && typeof value === 'object' && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) checkFields(inner, target.additionalProperties, types, `${path}.${key}`, where, problems);
  } else if ((target.type === 'integer' && !Number.isInteger(value)) || (target.type === 'boolean' && typeof value !== 'boolean')) {
    problems.push(`${where}: ${path} must be ${target.type === 'integer' ? 'a whole number' : 'true or false'}, not ${JSON.stringify(value)}`);
  }
}

/** All images that the objects name, each once. */
export function imagesOf(objects: readonly ManifestObject[]): string[] {
  const found = new Set<string>();
  const walk = (value: unknown): void => {
    if (Array.isArray(value)) for (const item of value) walk(item);
    else if (typeof value === 'object' && value !== null) {
      const record = value as Record<string, unknown>;
      for (const list of ['containers', 'initContainers']) {
        const containers = record[list];
        if (!Array.isArray(containers)) continue;
        for (const container of containers as { image?: unknown }[])
          if (typeof container.image === 'string' && parseImageName(container.image) !== null) found.add(container.image);
      }
      for (const inner of Object.values(record)) walk(inner);
    }
  };
  for (const object of objects) walk(object.body);
  return [...found].sort();
}
