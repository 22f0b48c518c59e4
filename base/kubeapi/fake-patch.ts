import schemaJson from '../../proto/kube/schema.json' with { type: 'json' };
import { applyPatch, type Operation } from 'rfc6902';
import type { Definition, Property, Schema } from '../../proto/kube/schema-types.ts';
import { ApiError } from './errors.ts';
import type { PatchType } from './types.ts';

/** The patches an API server understands, as far as tests of its clients need them. */

const { definitions } = schemaJson as unknown as Schema;

type Tree = Record<string, unknown>;

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** RFC 7386. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isTree(patch)) return structuredClone(patch);
  const out: Tree = isTree(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete out[key];
    else out[key] = mergePatch(out[key], value);
  }
  return out;
}

function shapeOf(property: Property | undefined): Definition | undefined {
  return property?.ref === undefined ? undefined : definitions[property.ref];
}

const setOrder = '$setElementOrder/';

/**
 * A merged list in the order a server gives it: what the patch names comes in the patch's order, the rest in its own,
 * and one of the rest goes before a named one only where it already stood before it.
 */
function inOrder(merged: readonly unknown[], named: readonly unknown[], original: readonly unknown[], key: string | undefined): unknown[] {
  const id = (item: unknown): unknown => (key !== undefined && isTree(item) ? item[key] : item);
  const place = new Map(original.map((item, index) => [id(item), index]));
  const ids = named.map(id);
  const wanted = merged.filter((item) => ids.includes(id(item))).sort((a, b) => ids.indexOf(id(a)) - ids.indexOf(id(b)));
  const rest = merged.filter((item) => !ids.includes(id(item)));
  const out: unknown[] = [];
  for (const item of wanted) {
    const at = place.get(id(item)) ?? -1;
    const after = rest.findIndex((other) => (place.get(id(other)) ?? Infinity) >= at);
    out.push(...rest.splice(0, after < 0 ? rest.length : after), item);
  }
  return [...out, ...rest];
}

function mergeList(target: unknown[], patch: unknown[], property: Property): unknown[] {
  const key = property['x-kubernetes-patch-merge-key'];
  if (key === undefined) return inOrder([...new Set([...target, ...patch])], patch, target, undefined);
  let out = [...target];
  for (const item of patch) {
    if (!isTree(item)) continue;
    if (item['$patch'] === 'replace') return patch.filter((other) => isTree(other) && other['$patch'] === undefined);
    const at = out.findIndex((candidate) => isTree(candidate) && candidate[key] === item[key]);
    if (item['$patch'] === 'delete') out = out.filter((candidate) => !(isTree(candidate) && candidate[key] === item[key]));
    else if (at >= 0) out[at] = strategicMerge(out[at], item, shapeOf(property.items));
    else out.push(strategicMerge({}, item, shapeOf(property.items)));
  }
  return inOrder(out, patch, target, key);
}

/** Strategic merge patch; without a shape it is a merge patch. */
export function strategicMerge(target: unknown, patch: unknown, shape: Definition | undefined): unknown {
  if (!isTree(patch)) return structuredClone(patch);
  const base = isTree(target) ? target : {};
  if (patch['$patch'] === 'replace') return Object.fromEntries(Object.entries(patch).filter(([key]) => key !== '$patch'));
  if (patch['$patch'] === 'delete') return {};
  const out: Tree = { ...base };
  const kept = patch['$retainKeys'];
  if (Array.isArray(kept)) for (const key of Object.keys(out)) if (!kept.includes(key)) delete out[key];
  for (const [key, value] of Object.entries(patch)) {
    if (key === '$retainKeys' || key.startsWith(setOrder)) continue;
    if (key.startsWith('$deleteFromPrimitiveList/')) {
      const list = key.slice('$deleteFromPrimitiveList/'.length);
      const gone = Array.isArray(value) ? value : [];
      if (Array.isArray(out[list])) out[list] = out[list].filter((item: unknown) => !gone.includes(item));
      continue;
    }
    const property = shape?.properties?.[key];
    const merges = property?.['x-kubernetes-patch-strategy']?.split(',').includes('merge') === true;
    if (value === null) delete out[key];
    else if (Array.isArray(value))
      out[key] = merges && property !== undefined ? mergeList(Array.isArray(out[key]) ? out[key] : [], value, property) : structuredClone(value);
    else if (isTree(value)) out[key] = strategicMerge(out[key], value, shapeOf(property));
    else out[key] = value;
  }
  for (const [key, order] of Object.entries(patch)) {
    if (!key.startsWith(setOrder) || !Array.isArray(order)) continue;
    const field = key.slice(setOrder.length);
    const mergeKey = shape?.properties?.[field]?.['x-kubernetes-patch-merge-key'];
    if (Array.isArray(out[field])) out[field] = inOrder(out[field], order, Array.isArray(base[field]) ? base[field] : [], mergeKey);
  }
  return out;
}

/** `target` with the patch applied; `definition` is the kind's short name in schema.json. Throws ApiError 422. */
export function patched(target: object, type: PatchType, patch: unknown, definition: string): object {
  if (type === 'merge') return mergePatch(target, patch) as object;
  if (type === 'strategic' || type === 'apply') return strategicMerge(target, patch, definitions[definition]) as object;
  if (!Array.isArray(patch)) throw new ApiError(400, 'BadRequest', 'a JSON patch is a list of operations');
  const copy = structuredClone(target);
  const failure = applyPatch(copy, patch as Operation[]).find((error) => error !== null);
  if (failure !== undefined) throw new ApiError(422, 'Invalid', `the server rejected our request due to an error in our request: ${failure.message}`);
  return copy;
}
