import { readYaml } from '../../base/yaml.ts';
import { badRequest, unsupportedMedia } from '../core/failure.ts';
import { fit, repeatedFields } from '../core/decode.ts';
import { copy, isObject } from '../core/json.ts';
import type { Obj } from '../core/json.ts';
import { apiVersionOf } from '../core/schema.ts';
import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import type { Call, Kernel } from './kernel.ts';
import { readProtobuf } from './protobuf.ts';

const ACCEPTED = ['application/json', 'application/yaml'];

/** The body as data: parsed here unless the caller is in this process. */
export async function parseBody(kernel: Kernel, call: Call): Promise<unknown> {
  const { body } = call;
  if (body.kind === 'none') return undefined;
  if (body.kind === 'object') return copy(body.value);
  if (body.kind === 'bytes') return readProtobuf(kernel.types, (apiVersion, kind) => definitionOf(kernel, apiVersion, kind), body.bytes);
  const type = call.contentType.split(';')[0]!.trim().toLowerCase();
  if (type.endsWith('yaml')) {
    try {
      return await readYaml(body.text, 'the body');
    } catch (error) {
      throw badRequest(`error parsing YAML: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (type !== '' && !type.endsWith('json') && type !== 'application/x-www-form-urlencoded') throw unsupportedMedia([...ACCEPTED]);
  if (body.text.trim() === '') return undefined;
  try {
    return JSON.parse(body.text) as unknown;
  } catch (error) {
    throw badRequest(`couldn't get version/kind; json parse error: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function definitionOf(kernel: Kernel, apiVersion: string, kind: string): string | undefined {
  const [group, version] = apiVersion.includes('/') ? (apiVersion.split('/') as [string, string]) : ['', apiVersion];
  const known = kernel.registry.kind(group, version, kind);
  if (known !== undefined) return known.definition;
  // Kinds that are no resources of their own: options, scales, evictions, bindings.
  return Object.entries(kernel.schema.definitions).find(
    ([, item]) => item['x-kubernetes-group-version-kind']?.some((own) => own.group === group && own.version === version && own.kind === kind) === true,
  )?.[0];
}

export interface ValidationMode {
  mode: 'Strict' | 'Warn' | 'Ignore';
}

export function validationMode(query: URLSearchParams): ValidationMode['mode'] {
  const asked = query.get('fieldValidation') ?? '';
  if (asked === '' || asked === 'Warn') return 'Warn';
  if (asked === 'Strict' || asked === 'Ignore') return asked;
  throw badRequest(`fieldValidation: Unsupported value: ${JSON.stringify(asked)}: supported values: "Ignore", "Strict", "Warn"`);
}

/** Fits an object into the schema of its kind; strict clients get an error for what others get a warning. */
export function fitObject(
  kernel: Kernel,
  info: { group: string; version: string; definition: string; kind: string },
  object: Obj,
  call: Call,
  warnings: string[],
): void {
  const definition = kernel.types.definition(info.definition);
  if (definition === undefined) return;
  const mode = validationMode(call.query);
  const { complaints } = fit(kernel.types, definition, object, info.version);
  if (mode !== 'Ignore' && call.body.kind === 'text' && call.contentType.includes('json') && call.body.text.length < 512 * 1024)
    complaints.push(...repeatedFields(call.body.text));
  if (complaints.length === 0 || mode === 'Ignore') return;
  if (mode === 'Strict') {
    throw badRequest(
      `${info.kind} in version ${JSON.stringify(info.version)} cannot be handled as a ${info.kind}: strict decoding error: ${complaints.join(', ')}`,
    );
  }
  warnings.push(...complaints);
}

/** The object of a create or update, with its kind checked against the path. */
export async function decodeObject(kernel: Kernel, info: ResourceInfo, call: Call, warnings: string[]): Promise<Obj> {
  const parsed = await parseBody(kernel, call);
  if (!isObject(parsed)) throw badRequest(`the object provided is unrecognized (must be of type ${info.kind}): couldn't get version/kind; json parse error`);
  const object = parsed;
  object['apiVersion'] ??= apiVersionOf(info);
  object['kind'] ??= info.kind;
  if (object['kind'] !== info.kind)
    throw badRequest(
      `${String(object['kind'])} in version ${JSON.stringify(info.version)} cannot be handled as a ${info.kind}: converting (${info.version}.${String(object['kind'])}) to (${info.group === '' ? 'core' : info.group.split('.')[0]}.${info.kind}): unknown conversion`,
    );
  if (object['apiVersion'] !== apiVersionOf(info)) {
    throw badRequest(
      `${info.kind} in version ${JSON.stringify(object['apiVersion'])} cannot be handled as a ${info.kind}: no kind ${JSON.stringify(info.kind)} is registered for version ${JSON.stringify(object['apiVersion'])} in scheme "pkg/runtime/scheme.go:111"`,
    );
  }
  if (!isObject(object['metadata'])) object['metadata'] = {};
  fitObject(kernel, info, object, call, warnings);
  return object;
}
