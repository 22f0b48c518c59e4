import { badRequest } from './failure.ts';
import { copy, isObject, same } from './json.ts';
import type { Obj } from './json.ts';
import type { Shape, Types } from './schema.ts';

const ORDER = '$setElementOrder/';
const DELETE_VALUES = '$deleteFromPrimitiveList/';

/**
 * Strategic merge patch (Kubernetes' own merge: lists with a merge key are merged item by item, `$patch`,
 * `$retainKeys`, `$setElementOrder` and `$deleteFromPrimitiveList` steer it). Returns a new object.
 */
export function applyStrategicPatch(types: Types, shape: Shape | undefined, original: Obj, patch: Obj): Obj {
  return mergeMap(types, shape, original, patch) ?? {};
}

function mergeMap(types: Types, shape: Shape | undefined, original: Obj, patch: Obj): Obj | undefined {
  const directive = patch['$patch'];
  if (directive === 'replace') {
    const { $patch: _, ...rest } = patch;
    return clean(rest) as Obj;
  }
  if (directive === 'delete') return undefined;
  if (directive !== undefined && directive !== 'merge') throw badRequest(`unknown patch directive: ${String(directive)}`);
  const out: Obj = { ...original };
  retainKeys(out, patch);
  for (const [key, value] of Object.entries(patch)) {
    if (key === '$patch' || key === '$retainKeys') continue;
    if (key.startsWith(DELETE_VALUES)) {
      const field = key.slice(DELETE_VALUES.length);
      if (Array.isArray(out[field])) out[field] = out[field].filter((item: unknown) => !(value as unknown[]).some((gone) => same(gone, item)));
      continue;
    }
    if (key.startsWith(ORDER)) continue;
    const below = types.field(shape, key);
    if (value === null) delete out[key];
    else if (isObject(value)) {
      const merged = mergeField(types, below, out[key], value);
      if (merged === undefined) delete out[key];
      else out[key] = merged;
    } else if (Array.isArray(value)) out[key] = mergeList(types, below, out[key], value, patch[ORDER + key]);
    else out[key] = value;
  }
  orderUntouchedLists(types, shape, out, patch);
  return out;
}

function mergeField(types: Types, below: Shape | undefined, current: unknown, value: Obj): Obj | undefined {
  const strategy = below?.['x-kubernetes-patch-strategy'] ?? '';
  if (strategy === 'replace') return clean(value) as Obj;
  return mergeMap(types, below, isObject(current) ? current : {}, value);
}

function retainKeys(out: Obj, patch: Obj): void {
  const keep = patch['$retainKeys'];
  if (keep === undefined) return;
  if (!Array.isArray(keep)) throw badRequest('invalid patch format of retainKeys list');
  for (const key of Object.keys(out)) if (!keep.includes(key)) delete out[key];
}

function orderUntouchedLists(types: Types, shape: Shape | undefined, out: Obj, patch: Obj): void {
  for (const key of Object.keys(patch)) {
    if (!key.startsWith(ORDER)) continue;
    const field = key.slice(ORDER.length);
    if (field in patch || !Array.isArray(out[field])) continue;
    out[field] = inOrder(out[field], out[field], patch[key], mergeKeyOf(types.field(shape, field)));
  }
}

function mergeKeyOf(shape: Shape | undefined): string | undefined {
  return shape?.['x-kubernetes-patch-merge-key'];
}

function isMerged(shape: Shape | undefined): boolean {
  return (shape?.['x-kubernetes-patch-strategy'] ?? '').split(',').includes('merge');
}

function mergeList(types: Types, shape: Shape | undefined, current: unknown, patch: unknown[], order: unknown): unknown[] {
  const original: unknown[] = Array.isArray(current) ? current : [];
  if (!isMerged(shape)) return patch.filter((item) => !isObject(item) || item['$patch'] === undefined).map((item) => clean(item));
  const key = mergeKeyOf(shape);
  if (key === undefined || !patch.every((item) => isObject(item))) {
    const merged = [...original, ...patch.filter((item) => !original.some((have) => same(have, item)))];
    const unique = merged.filter((item, at) => merged.findIndex((other) => same(other, item)) === at);
    return inOrder(unique, original, order ?? patch, undefined);
  }
  return mergeKeyedList(types, shape, original as Obj[], patch, key, order);
}

function mergeKeyedList(types: Types, shape: Shape | undefined, original: Obj[], patch: Obj[], key: string, order: unknown): unknown[] {
  if (patch.some((item) => item['$patch'] === 'replace')) return patch.filter((item) => item['$patch'] === undefined).map((item) => clean(item));
  let out = [...original];
  const items = types.item(shape);
  for (const item of patch) {
    if (!(key in item)) throw badRequest(`map: ${JSON.stringify(item)} does not contain declared merge key: ${key}`);
    const at = out.findIndex((have) => same(have[key], item[key]));
    if (item['$patch'] === 'delete') out = out.filter((have) => !same(have[key], item[key]));
    else if (at >= 0) out[at] = mergeMap(types, items, out[at]!, item)!;
    else out.push(mergeMap(types, items, {}, item)!);
  }
  return inOrder(out, original, order ?? patch, key);
}

/**
 * Puts merged items into the order the client asked for; items only the server has keep their place relative to
 * their neighbours as far as that order allows.
 */
function inOrder(merged: unknown[], server: unknown[], order: unknown, key: string | undefined): unknown[] {
  if (!Array.isArray(order)) return merged;
  const idOf = (item: unknown): unknown => (key === undefined ? item : (item as Obj)[key]);
  const wanted = order.map((item) => idOf(item));
  const rank = (item: unknown): number => wanted.findIndex((want) => same(want, idOf(item)));
  const asked = merged.filter((item) => rank(item) >= 0).toSorted((a, b) => rank(a) - rank(b));
  const others = merged.filter((item) => rank(item) < 0);
  const place = (item: unknown): number => server.findIndex((have) => same(idOf(have), idOf(item)));
  const out: unknown[] = [];
  let left = 0;
  let right = 0;
  while (left < asked.length && right < others.length) {
    const a = place(asked[left]);
    const b = place(others[right]);
    if (a >= 0 && b >= 0 && b < a) out.push(others[right++]);
    else out.push(asked[left++]);
  }
  return [...out, ...asked.slice(left), ...others.slice(right)];
}

/** Takes directives and nulls out of a value that is stored as it stands. */
function clean(value: unknown): unknown {
  if (Array.isArray(value)) return value.filter((item) => !(isObject(item) && item['$patch'] === 'delete')).map((item) => clean(item));
  if (!isObject(value)) return copy(value);
  const out: Obj = {};
  for (const [key, item] of Object.entries(value)) {
    if (item === null || key === '$patch' || key === '$retainKeys' || key.startsWith(ORDER) || key.startsWith(DELETE_VALUES)) continue;
    out[key] = clean(item);
  }
  return out;
}
