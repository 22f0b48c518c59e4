import { badRequest } from '../core/failure.ts';
import type { Obj } from '../core/json.ts';
import type { Shape, Types } from '../core/schema.ts';
import wire from '../../proto/kube/wire.json' with { type: 'json' };

/**
 * Reads objects in the protobuf form that kubectl's typed commands and Go components send. Answers are JSON, which
 * all of them accept; so there is a reader and no writer.
 */

interface Field {
  name: string;
  /** The zero value is data: a pointer in Go, or a field that is always written. */
  keepsZero: boolean;
  /** Another structure whose fields stand in the outer object. */
  inline: boolean;
}

const tables = new Map<string, ReadonlyMap<number, Field>>();

function tableOf(name: string): ReadonlyMap<number, Field> | undefined {
  let found = tables.get(name);
  const text = (wire as Record<string, string>)[name];
  if (found === undefined && text !== undefined) {
    const made = new Map<number, Field>();
    for (const item of text.split(',')) {
      const [, number, inline, field, star] = /^(\d+)(\^?)(.*?)(\*?)$/.exec(item)!;
      made.set(Number(number), { name: field!, keepsZero: star === '*', inline: inline === '^' });
    }
    found = made;
    tables.set(name, found);
  }
  return found;
}

interface Part {
  number: number;
  /** A varint or fixed number, or bytes. */
  value: bigint | Buffer;
}

function* partsOf(bytes: Buffer): Generator<Part> {
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined || shift > 63n) throw badRequest('the protobuf body ends in the middle of a number');
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const number = tag >> 3;
    switch (tag & 7) {
      case 0:
        yield { number, value: varint() };
        break;
      case 1:
        yield { number, value: bytes.readBigUInt64LE(at) };
        at += 8;
        break;
      case 2: {
        const length = Number(varint());
        if (at + length > bytes.length) throw badRequest('the protobuf body ends in the middle of a field');
        yield { number, value: bytes.subarray(at, at + length) };
        at += length;
        break;
      }
      case 5:
        yield { number, value: BigInt(bytes.readUInt32LE(at)) };
        at += 4;
        break;
      default:
        throw badRequest('the protobuf body has a field of an unknown wire type');
    }
  }
}

const asBytes = (value: bigint | Buffer): Buffer => (Buffer.isBuffer(value) ? value : Buffer.alloc(0));
const asText = (value: bigint | Buffer): string => asBytes(value).toString('utf8');
const asNumber = (value: bigint | Buffer): number => (Buffer.isBuffer(value) ? 0 : Number(BigInt.asIntN(64, value)));

function fieldsOf(bytes: Buffer): Map<number, bigint | Buffer> {
  return new Map([...partsOf(bytes)].map(({ number, value }) => [number, value]));
}

function timeText(bytes: Buffer, isMicro: boolean): string | undefined {
  const fields = fieldsOf(bytes);
  if (fields.size === 0) return undefined;
  const at = asNumber(fields.get(1) ?? 0n) * 1000 + Math.floor(asNumber(fields.get(2) ?? 0n) / 1_000_000);
  const text = new Date(at).toISOString();
  // Go's zero time is no time at all.
  if (text.startsWith('0001-01-01T00:00:00')) return undefined;
  return isMicro ? `${text.slice(0, 19)}.${String(Math.floor(asNumber(fields.get(2) ?? 0n) / 1000)).padStart(6, '0')}Z` : `${text.slice(0, 19)}Z`;
}

/** Types with a form of their own. `null`: not one of them. */
function special(id: string | undefined, bytes: Buffer): { value: unknown } | undefined {
  switch (id) {
    case 'io.k8s.apimachinery.pkg.apis.meta.v1.Time':
      return { value: timeText(bytes, false) };
    case 'io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime':
      return { value: timeText(bytes, true) };
    case 'io.k8s.apimachinery.pkg.api.resource.Quantity':
      return { value: asText(fieldsOf(bytes).get(1) ?? Buffer.alloc(0)) };
    case 'io.k8s.apimachinery.pkg.util.intstr.IntOrString': {
      const fields = fieldsOf(bytes);
      return { value: asNumber(fields.get(1) ?? 0n) === 1 ? asText(fields.get(3) ?? Buffer.alloc(0)) : asNumber(fields.get(2) ?? 0n) };
    }
    case 'io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1':
    case 'io.k8s.apimachinery.pkg.runtime.RawExtension': {
      const raw = asText(fieldsOf(bytes).get(1) ?? Buffer.alloc(0));
      return { value: raw === '' ? undefined : (JSON.parse(raw) as unknown) };
    }
    default:
      return undefined;
  }
}

const isZero = (value: unknown): boolean =>
  value === '' || value === 0 || value === false || value === undefined || (typeof value === 'object' && value !== null && Object.keys(value).length === 0);

function read(types: Types, shape: Shape | undefined, value: bigint | Buffer): unknown {
  const found = Buffer.isBuffer(value) ? special((shape as { id?: string } | undefined)?.id, value) : undefined;
  if (found !== undefined) return found.value;
  switch (shape?.type) {
    case 'integer':
      return asNumber(value);
    case 'boolean':
      return asNumber(value) !== 0;
    case 'number':
      return Buffer.isBuffer(value) ? 0 : new Float64Array(new BigUint64Array([value]).buffer)[0];
    case 'string':
      return shape.format === 'byte' ? asBytes(value).toString('base64') : asText(value);
    case 'array':
      // A named list type is a message with the items in field 1.
      return [...partsOf(asBytes(value))].map((part) => read(types, types.item(shape), part.value));
    default: {
      const name = definitionName(types, shape);
      return name === undefined ? {} : readMessage(types, name, shape, asBytes(value));
    }
  }
}

function definitionName(types: Types, shape: Shape | undefined): string | undefined {
  const id = (shape as { id?: string } | undefined)?.id;
  if (id === undefined) return undefined;
  return types.nameOf(id);
}

function readMessage(types: Types, name: string, shape: Shape | undefined, bytes: Buffer): Obj {
  const out: Obj = {};
  const table = tableOf(name);
  if (table === undefined) return out;
  for (const { number, value } of partsOf(bytes)) {
    const field = table.get(number);
    if (field === undefined) continue;
    if (field.inline) {
      Object.assign(out, readMessage(types, field.name, shape, asBytes(value)));
      continue;
    }
    const below = types.resolve(shape?.properties?.[field.name]);
    if (below === undefined) continue;
    if (below.type === 'array') (out[field.name] ??= []).push(read(types, types.item(below), value));
    else if (below.additionalProperties !== undefined) {
      const entry = fieldsOf(asBytes(value));
      (out[field.name] ??= {})[asText(entry.get(1) ?? Buffer.alloc(0))] = read(
        types,
        types.resolve(below.additionalProperties),
        entry.get(2) ?? Buffer.alloc(0),
      );
    } else {
      const item = read(types, below, value);
      if (item !== undefined && (field.keepsZero || !isZero(item))) out[field.name] = item;
    }
  }
  return out;
}

/** An object from `k8s\0` and a runtime.Unknown (apiVersion and kind, then the object's own bytes). */
export function readProtobuf(types: Types, definitionOf: (apiVersion: string, kind: string) => string | undefined, body: Buffer): Obj {
  if (body.length < 4 || body.toString('latin1', 0, 4) !== 'k8s\0')
    throw badRequest('provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]');
  const unknown = fieldsOf(body.subarray(4));
  const meta = fieldsOf(asBytes(unknown.get(1) ?? Buffer.alloc(0)));
  const apiVersion = asText(meta.get(1) ?? Buffer.alloc(0));
  const kind = asText(meta.get(2) ?? Buffer.alloc(0));
  const name = definitionOf(apiVersion, kind);
  if (name === undefined || tableOf(name) === undefined)
    throw badRequest(`no kind ${JSON.stringify(kind)} is registered for version ${JSON.stringify(apiVersion)}`);
  return { apiVersion, kind, ...readMessage(types, name, types.definition(name), asBytes(unknown.get(2) ?? Buffer.alloc(0))) };
}
