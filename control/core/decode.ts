import type { Definition } from '../../proto/kube/schema-types.ts';
import { Failure } from './failure.ts';
import { isObject } from './json.ts';
import type { Obj } from './json.ts';
import { canonicalQuantity } from './quantity.ts';
import type { Shape, Types } from './schema.ts';

export interface Decoded {
  /** What strict clients refuse and others are warned of: unknown and repeated fields. */
  complaints: string[];
}

/**
 * Fits an object into its kind's schema, in place: unknown fields go (and are reported), nulls go, quantities get
 * their canonical spelling. Throws a 400 for a value of the wrong type.
 */
export function fit(types: Types, definition: Definition, object: Obj, goVersion: string): Decoded {
  const complaints: string[] = [];
  const kind = object['kind'] ?? definition.id.split('.').at(-1);
  const wrong = (path: string, value: unknown, want: string): never => {
    const got = Array.isArray(value) ? 'array' : value === null ? 'null' : isObject(value) ? 'object' : typeof value === 'boolean' ? 'bool' : typeof value;
    throw new Failure(
      400,
      'BadRequest',
      `${kind} in version ${JSON.stringify(goVersion)} cannot be handled as a ${kind}: json: cannot unmarshal ${got} into Go struct field ${owner}.${path} of type ${want}`,
    );
  };
  let owner = definition.id.split('.').at(-1);
  const walk = (shape: Shape | undefined, value: unknown, path: string): unknown => {
    if (shape === undefined) return value;
    if (shape['x-kubernetes-int-or-string'] === true)
      return typeof value === 'string' || Number.isInteger(value) ? value : wrong(path, value, 'intstr.IntOrString');
    const id = (shape as Definition).id;
    if (id === 'io.k8s.apimachinery.pkg.api.resource.Quantity') {
      const text = typeof value === 'number' ? String(value) : value;
      if (typeof text !== 'string') return wrong(path, value, 'resource.Quantity');
      return (
        canonicalQuantity(text) ??
        (() => {
          throw new Failure(
            400,
            'BadRequest',
            `${kind} in version ${JSON.stringify(goVersion)} cannot be handled as a ${kind}: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`,
          );
        })()
      );
    }
    switch (shape.type) {
      case 'string':
        if (typeof value !== 'string') return wrong(path, value, id?.endsWith('Time') ? 'v1.Time' : 'string');
        if (shape.format === 'date-time' && value !== '' && !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(value))
          return wrong(path, value, 'v1.Time');
        return shape.format === 'date-time' && value === '' ? undefined : value;
      case 'integer':
        return Number.isInteger(value) ? value : wrong(path, value, shape.format ?? 'int32');
      case 'number':
        return typeof value === 'number' ? value : wrong(path, value, 'float64');
      case 'boolean':
        return typeof value === 'boolean' ? value : wrong(path, value, 'bool');
      case 'array':
        if (!Array.isArray(value)) return wrong(path, value, '[]');
        return walkList(types.item(shape), value, path);
      default:
        return walkMap(shape, value, path);
    }
  };
  const walkList = (items: Shape | undefined, value: unknown[], path: string): unknown[] => {
    for (let at = 0; at < value.length; at++) if (value[at] !== null) value[at] = walk(items, value[at], `${path}[${at}]`);
    return value;
  };
  const walkMap = (shape: Shape, value: unknown, path: string): unknown => {
    const isStructure = shape.properties !== undefined;
    if (!isObject(value)) return isStructure || shape.additionalProperties !== undefined ? wrong(path, value, isStructure ? 'struct' : 'map') : value;
    if (!isStructure && shape.additionalProperties === undefined) return value;
    const outer = owner;
    if (isStructure) owner = (shape as Definition).id?.split('.').at(-1) ?? owner;
    for (const key of Object.keys(value)) {
      const below = path === '' ? key : `${path}.${key}`;
      if (isStructure && shape.properties![key] === undefined) {
        complaints.push(`unknown field "${below}"`);
        delete value[key];
        continue;
      }
      const item = value[key];
      const kept = item === null || item === undefined ? undefined : walk(types.field(shape, key), item, below);
      if (kept === undefined || (isStructure && isEmptyCollection(types.field(shape, key), kept) && types.dropsEmpty(shape, key))) delete value[key];
      else value[key] = kept;
    }
    owner = outer;
    return value;
  };
  walk(definition, object, '');
  return { complaints };
}

function isEmptyCollection(shape: Shape | undefined, value: unknown): boolean {
  if (Array.isArray(value)) return value.length === 0;
  return shape?.additionalProperties !== undefined && isObject(value) && Object.keys(value).length === 0;
}

/** Fields that stand twice in one object of a JSON text, as `duplicate field "spec.replicas"`. */
export function repeatedFields(text: string): string[] {
  const out: string[] = [];
  const stack: { seen: Set<string> | undefined; path: string; at: number; key: string }[] = [];
  const pathNow = (): string => {
    const top = stack.at(-1);
    if (top === undefined) return '';
    if (top.seen === undefined) return `${top.path}[${top.at}]`;
    return top.path === '' ? top.key : `${top.path}.${top.key}`;
  };
  let at = 0;
  const string = (): string => {
    const from = at++;
    while (text[at] !== '"' && at < text.length) at += text[at] === '\\' ? 2 : 1;
    at++;
    return text.slice(from, at);
  };
  let wantsKey = false;
  while (at < text.length) {
    const c = text[at]!;
    if (c === '"') {
      const raw = string();
      const top = stack.at(-1);
      if (wantsKey && top?.seen !== undefined) {
        top.key = raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1);
        if (top.seen.has(top.key)) out.push(`duplicate field "${pathNow()}"`);
        top.seen.add(top.key);
        wantsKey = false;
      }
      continue;
    }
    if (c === '{') {
      stack.push({ seen: new Set(), path: pathNow(), at: 0, key: '' });
      wantsKey = true;
    } else if (c === '[') {
      stack.push({ seen: undefined, path: pathNow(), at: 0, key: '' });
      wantsKey = false;
    } else if (c === '}' || c === ']') stack.pop();
    else if (c === ',') {
      const top = stack.at(-1);
      if (top?.seen === undefined) {
        if (top !== undefined) top.at++;
      } else wantsKey = true;
    }
    at++;
  }
  return out;
}
