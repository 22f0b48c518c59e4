import { OpError } from '../../base/errors.ts';

export interface FieldJson {
  readonly type: string;
  readonly rule?: string;
  readonly keyType?: string;
}

export interface TypeJson {
  readonly fields?: Readonly<Record<string, FieldJson>>;
  readonly values?: Readonly<Record<string, number>>;
}

export type TypeTable = ReadonlyMap<string, TypeJson>;

/** Bounds of what a field holds. */
const WHOLE: Readonly<Record<string, readonly [min: bigint, max: bigint]>> = {
  int32: [-(2n ** 31n), 2n ** 31n - 1n],
  uint32: [0n, 2n ** 32n - 1n],
  int64: [-(2n ** 63n), 2n ** 63n - 1n],
  uint64: [0n, 2n ** 64n - 1n],
};

function wrong(where: string, detail: string, advice = ''): OpError {
  return new OpError('invalid', 'reading the request', where === '' ? detail : `${where}: ${detail}`, { advice });
}

function kindOf(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'a list' : typeof value === 'object' ? 'an object' : `the ${typeof value} ${JSON.stringify(value)}`;
}

/** Names are the same when only case and underscores differ: `pod_sandbox_id` is podSandboxId. */
function plainName(name: string): string {
  return name.replaceAll('_', '').toLowerCase();
}

/** Of `names` the one that a person most likely meant, or undefined when none is near. */
export function nearest(word: string, names: Iterable<string>): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.ceil(word.length / 3)) + 1;
  for (const name of names) {
    const distance = editDistance(plainName(word), plainName(name), bestDistance);
    if (distance < bestDistance) [best, bestDistance] = [name, distance];
  }
  return best;
}

/** How many letters differ; `limit` when it is that many or more. */
function editDistance(a: string, b: string, limit: number): number {
  if (Math.abs(a.length - b.length) >= limit) return limit;
  let before = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      row.push(Math.min((before[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (before[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1)));
    }
    before = row;
  }
  return Math.min(limit, before[b.length] ?? limit);
}

function readWhole(type: string, value: unknown, where: string): string | number {
  const bounds = WHOLE[type];
  const isText = typeof value === 'string' && /^-?\d+$/.test(value);
  if (bounds === undefined || (!isText && typeof value !== 'number')) throw wrong(where, `a whole number is expected, not ${kindOf(value)}`);
  if (typeof value === 'number' && !Number.isSafeInteger(value))
    throw wrong(where, `${value} is no whole number that JSON can say exactly`, 'write large numbers as text: "9007199254740993"');
  const number = BigInt(value);
  if (number < bounds[0] || number > bounds[1]) throw wrong(where, `${value} does not fit into ${type}`);
  return type.endsWith('64') ? number.toString() : Number(number);
}

function readEnum(name: string, values: Readonly<Record<string, number>>, value: unknown, where: string): string {
  if (typeof value === 'string' && Object.hasOwn(values, value)) return value;
  const named = Object.entries(values).find(([, number]) => number === value)?.[0];
  if (named !== undefined) return named;
  throw wrong(where, `${JSON.stringify(value)} is no ${name}`, `it is one of ${Object.keys(values).join(', ')}`);
}

function readOne(types: TypeTable, field: FieldJson, value: unknown, where: string): unknown {
  const type = types.get(field.type);
  if (type?.fields !== undefined) return readInput(types, field.type, value, where);
  if (type?.values !== undefined) return readEnum(field.type, type.values, value, where);
  switch (field.type) {
    case 'string':
      if (typeof value !== 'string') throw wrong(where, `a text is expected, not ${kindOf(value)}`);
      return value;
    case 'bool':
      if (typeof value !== 'boolean') throw wrong(where, `true or false is expected, not ${kindOf(value)}`);
      return value;
    case 'bytes':
      if (typeof value !== 'string' || !/^(?:[\w+/-]{4})*(?:[\w+/-]{2,3}=*)?$/.test(value))
        throw wrong(where, `bytes as base64 are expected, not ${kindOf(value)}`);
      return value.replaceAll('-', '+').replaceAll('_', '/');
    case 'double':
    case 'float':
      if (typeof value !== 'number') throw wrong(where, `a number is expected, not ${kindOf(value)}`);
      return value;
    default:
      return readWhole(field.type, value, where);
  }
}

function readMap(types: TypeTable, field: FieldJson, value: unknown, where: string): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw wrong(where, `an object is expected, not ${kindOf(value)}`);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, readOne(types, { type: field.type }, item, `${where}[${JSON.stringify(key)}]`)]));
}

/**
 * JSON as a person writes it → the message `name` as it is sent. Fields by their names in JSON or in api.proto, null for
 * absent, enums by name or number, 64-bit numbers as text or as numbers, bytes as base64. Throws OpError `invalid` that
 * names the place for whatever the message does not have.
 */
export function readInput(types: TypeTable, name: string, value: unknown, where = ''): Record<string, unknown> {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) throw wrong(where, `${name} is an object, not ${kindOf(value)}`);
  const fields = types.get(name)?.fields ?? {};
  const byPlainName = new Map(Object.keys(fields).map((key) => [plainName(key), key]));
  const out: Record<string, unknown> = {};
  for (const [given, member] of Object.entries(value)) {
    const key = Object.hasOwn(fields, given) ? given : byPlainName.get(plainName(given));
    const field = key === undefined ? undefined : fields[key];
    const place = where === '' ? given : `${where}.${given}`;
    if (key === undefined || field === undefined) {
      const meant = nearest(given, Object.keys(fields));
      const all = Object.keys(fields);
      throw wrong(
        '',
        `${place} is no field of ${name}`,
        meant === undefined ? (all.length === 0 ? `${name} has no fields` : `its fields: ${all.join(', ')}`) : `did you mean ${meant}?`,
      );
    }
    if (Object.hasOwn(out, key)) throw wrong(place, `${key} is said twice`);
    if (member === null) continue;
    if (field.keyType !== undefined) out[key] = readMap(types, field, member, place);
    else if (field.rule === 'repeated') {
      if (!Array.isArray(member)) throw wrong(place, `a list is expected, not ${kindOf(member)}`);
      out[key] = member.map((item, index) => readOne(types, field, item, `${place}[${index}]`));
    } else out[key] = readOne(types, field, member, place);
  }
  return out;
}

/** The message with every field and nothing in it: lists and maps empty, messages written out. */
export function emptyMessage(types: TypeTable, name: string): Record<string, unknown> {
  const one = (field: FieldJson): unknown => {
    if (field.keyType !== undefined) return {};
    if (field.rule === 'repeated') return [];
    const type = types.get(field.type);
    if (type?.fields !== undefined) return emptyMessage(types, field.type);
    if (type?.values !== undefined) return Object.keys(type.values)[0] ?? '';
    if (field.type === 'bool') return false;
    return field.type === 'string' || field.type === 'bytes' ? '' : field.type.endsWith('64') ? '0' : 0;
  };
  return Object.fromEntries(Object.entries(types.get(name)?.fields ?? {}).map(([key, field]) => [key, one(field)]));
}
