import { assert } from '../base/assert.ts';
import api from '../proto/cri/api.json' with { type: 'json' };
import type { FieldJson, TypeJson, TypeTable } from './core/message-input.ts';
import type { ServiceName } from './transport.ts';

interface NestingJson extends TypeJson {
  readonly nested?: Record<string, TypeJson>;
}

const types = new Map<string, TypeJson>();
for (const [name, type] of Object.entries(api.nested.runtime.nested.v1.nested as Record<string, NestingJson>)) {
  types.set(name, type);
  for (const [inner, innerType] of Object.entries(type.nested ?? {})) types.set(inner, innerType);
}

/** Messages and enums of the CRI by name; nested ones stand beside the others. */
export const messageTypes: TypeTable = types;

function fillOne(field: FieldJson, value: unknown): unknown {
  const type = types.get(field.type);
  if (type?.fields !== undefined) return value === undefined || value === null ? null : fillShape(field.type, value);
  if (type?.values !== undefined) return value ?? Object.keys(type.values)[0];
  switch (field.type) {
    case 'string':
      return value ?? '';
    case 'bool':
      return value ?? false;
    case 'bytes':
      return value === undefined ? Buffer.alloc(0) : Buffer.from(value as Uint8Array);
    case 'int64':
    case 'uint64':
      // Text, number or bigint, as the caller likes.
      return typeof value === 'string' ? value : JSON.stringify(value ?? 0);
    default:
      return value ?? 0;
  }
}

/** A message as the wire gives it: every field there, absent messages null, 64-bit numbers as text. A copy. */
export function fillShape(name: string, value: unknown): unknown {
  const type = types.get(name);
  assert(type?.fields !== undefined, `cri: no message ${name}`);
  const given = value as Record<string, unknown>;
  const out: Record<string, unknown> = {};
  for (const [key, field] of Object.entries(type.fields)) {
    const member = given[key];
    if (field.keyType !== undefined) out[key] = Object.fromEntries(Object.entries(member ?? {}).map(([k, v]) => [k, fillOne(field, v)]));
    else if (field.rule === 'repeated') out[key] = ((member ?? []) as unknown[]).map((item) => fillOne(field, item));
    else out[key] = fillOne(field, member);
  }
  return out;
}

interface MethodJson {
  requestType: string;
  responseType: string;
  responseStream?: boolean;
}

/** Every method of both services, in the order of api.proto. */
export function allMethods(): readonly (MethodJson & { readonly service: ServiceName; readonly method: string })[] {
  const services: readonly ServiceName[] = ['RuntimeService', 'ImageService'];
  return services.flatMap((service) =>
    Object.entries(api.nested.runtime.nested.v1.nested[service].methods as Record<string, MethodJson>).map(([method, shape]) => ({
      service,
      method,
      ...shape,
    })),
  );
}

/** The messages of a method. */
export function methodShape(service: 'RuntimeService' | 'ImageService', method: string): MethodJson {
  const found = (api.nested.runtime.nested.v1.nested[service].methods as Record<string, MethodJson>)[method];
  assert(found !== undefined, `cri: no method ${service}/${method}`);
  return found;
}
