/**
 * Unstructured objects. An API server carries kinds it has no types for, so this one alias is open on purpose;
 * everything else in the room narrows it where it decides something.
 */
// oxlint-disable-next-line no-explicit-any
export type Obj = { [key: string]: any };

export function isObject(value: unknown): value is Obj {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A deep copy of plain JSON data. */
export function copy<T>(value: T): T {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const list: unknown[] = [];
    for (const item of value) list.push(typeof item === 'object' && item !== null ? copy(item) : item);
    return list as T;
  }
  const out: Obj = {};
  for (const key in value) {
    const item: unknown = value[key];
    out[key] = typeof item === 'object' && item !== null ? copy(item) : item;
  }
  return out as T;
}

/** Equality of JSON values; the order of keys does not count, an undefined field counts as absent. */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, at) => same(item, b[at]));
  if (!isObject(a) || !isObject(b)) return false;
  let count = 0;
  for (const key in a) {
    if (a[key] === undefined) continue;
    count++;
    if (!same(a[key], b[key])) return false;
  }
  for (const key in b) if (b[key] !== undefined) count--;
  return count === 0;
}

/** Equality as API strategies mean it: null, an absent field, an empty list and an empty map are one thing. */
export function semanticallySame(a: unknown, b: unknown): boolean {
  if (isEmpty(a) && isEmpty(b)) return true;
  if (a === b) return true;
  if (Array.isArray(a)) return Array.isArray(b) && a.length === b.length && a.every((item, at) => semanticallySame(item, b[at]));
  if (!isObject(a) || !isObject(b)) return false;
  for (const key in a) if (!semanticallySame(a[key], b[key])) return false;
  for (const key in b) if (!(key in a) && !isEmpty(b[key])) return false;
  return true;
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null) return true;
  if (Array.isArray(value)) return value.length === 0;
  if (isObject(value)) return Object.keys(value).length === 0;
  return false;
}

/** Removes nulls and undefined fields, which an API object does not have after decoding. */
export function dropNulls(value: unknown): void {
  if (Array.isArray(value)) {
    for (const item of value) dropNulls(item);
  } else if (isObject(value)) {
    for (const key in value) {
      const item = value[key];
      if (item === null || item === undefined) delete value[key];
      else dropNulls(item);
    }
  }
}

/** JSON with sorted keys, for comparing and hashing. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item)).join(',')}]`;
  if (isObject(value)) {
    const keys = Object.keys(value)
      .filter((key) => value[key] !== undefined)
      .toSorted();
    return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(',')}}`;
  }
  return JSON.stringify(value) ?? 'null';
}
