import { isObject, same } from './json.ts';
import type { Obj } from './json.ts';
import { isAtomicMap, listKind } from './schema.ts';
import type { ListKind, Shape, Types } from './schema.ts';

/**
 * A set of field paths, as managedFields keeps them. Steps are written as in FieldsV1: `f:name`, `k:{"name":"a"}`,
 * `v:"x"`, `i:0`.
 */
export interface FieldSet {
  /** The path that ends here is a member. */
  member: boolean;
  below: Map<string, FieldSet>;
}

export function emptySet(): FieldSet {
  return { member: false, below: new Map() };
}

export function isEmptySet(set: FieldSet): boolean {
  return !set.member && [...set.below.values()].every((child) => isEmptySet(child));
}

function at(set: FieldSet, step: string): FieldSet {
  let child = set.below.get(step);
  if (child === undefined) {
    child = emptySet();
    set.below.set(step, child);
  }
  return child;
}

export function fromFieldsV1(fields: unknown): FieldSet {
  const set = emptySet();
  if (!isObject(fields)) return set;
  for (const [step, value] of Object.entries(fields)) {
    if (step === '.') set.member = true;
    else {
      const child = fromFieldsV1(value);
      if (child.below.size === 0) child.member = true;
      set.below.set(step, child);
    }
  }
  return set;
}

export function toFieldsV1(set: FieldSet): Obj {
  const out: Obj = {};
  if (set.member && set.below.size > 0) out['.'] = {};
  for (const step of [...set.below.keys()].toSorted()) {
    const child = set.below.get(step)!;
    if (!isEmptySet(child)) out[step] = toFieldsV1(child);
  }
  return out;
}

function combine(a: FieldSet | undefined, b: FieldSet | undefined, keep: (inA: boolean, inB: boolean) => boolean): FieldSet {
  const out: FieldSet = { member: keep(a?.member ?? false, b?.member ?? false), below: new Map() };
  for (const step of new Set([...(a?.below.keys() ?? []), ...(b?.below.keys() ?? [])])) {
    const child = combine(a?.below.get(step), b?.below.get(step), keep);
    if (!isEmptySet(child)) out.below.set(step, child);
  }
  return out;
}

export const union = (a: FieldSet, b: FieldSet): FieldSet => combine(a, b, (x, y) => x || y);
export const intersection = (a: FieldSet, b: FieldSet): FieldSet => combine(a, b, (x, y) => x && y);
export const difference = (a: FieldSet, b: FieldSet): FieldSet => combine(a, b, (x, y) => x && !y);

/** Takes every path of `gone`, and all below it, out of `set`. */
export function without(set: FieldSet, gone: FieldSet): FieldSet {
  if (gone.member) return emptySet();
  const out: FieldSet = { member: set.member, below: new Map() };
  for (const [step, child] of set.below) {
    const cut = gone.below.get(step);
    const rest = cut === undefined ? child : without(child, cut);
    if (!isEmptySet(rest)) out.below.set(step, rest);
  }
  return out;
}

/** The paths of a set in the form error messages have: `.spec.containers[name="a"].image`. */
export function pathsOf(set: FieldSet, prefix = ''): string[] {
  const out = set.member ? [prefix] : [];
  for (const step of [...set.below.keys()].toSorted()) out.push(...pathsOf(set.below.get(step)!, prefix + printStep(step)));
  return out;
}

function printStep(step: string): string {
  const rest = step.slice(2);
  switch (step[0]) {
    case 'f':
      return `.${rest}`;
    case 'k':
      return `[${Object.entries(JSON.parse(rest) as Obj)
        .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
        .join(',')}]`;
    case 'v':
      return `[=${rest}]`;
    default:
      return `[${rest}]`;
  }
}

/** The step that names a list item: by its keys or by its value. */
export function itemStep(kind: ListKind, shape: Shape | undefined, item: unknown): string {
  if (kind.kind === 'map') {
    const keys: Obj = {};
    for (const key of [...kind.keys].toSorted()) {
      const value = isObject(item) ? (item[key] ?? shape?.properties?.[key]?.default) : undefined;
      if (value !== undefined) keys[key] = value;
    }
    return `k:${JSON.stringify(keys)}`;
  }
  return `v:${JSON.stringify(item)}`;
}

/** All fields an applied configuration speaks about. */
export function fieldsOf(types: Types, shape: Shape | undefined, value: unknown, set: FieldSet = emptySet()): FieldSet {
  if (Array.isArray(value)) {
    const kind = listKind(shape);
    if (kind.kind === 'atomic') set.member = true;
    else {
      const items = types.item(shape);
      for (const item of value) {
        const child = at(set, itemStep(kind, items, item));
        if (kind.kind === 'map') fieldsOf(types, items, item, child);
        child.member = true;
      }
    }
  } else if (isObject(value)) {
    if (isAtomicMap(shape)) {
      set.member = true;
      return set;
    }
    for (const [key, item] of Object.entries(value)) {
      const child = at(set, `f:${key}`);
      fieldsOf(types, types.field(shape, key), item, child);
      const isField = shape?.properties?.[key] !== undefined;
      if (item === null || !isField || (isObject(item) && Object.keys(item).length === 0)) child.member = true;
    }
  } else set.member = true;
  return set;
}

export interface Comparison {
  added: FieldSet;
  removed: FieldSet;
  modified: FieldSet;
}

/** Which fields differ between two versions of an object. */
export function compare(types: Types, shape: Shape | undefined, before: unknown, after: unknown): Comparison {
  const out: Comparison = { added: emptySet(), removed: emptySet(), modified: emptySet() };
  walk(types, shape, before, after, out);
  return {
    added: combine(out.added, undefined, (x) => x),
    removed: combine(out.removed, undefined, (x) => x),
    modified: combine(out.modified, undefined, (x) => x),
  };
}

function walk(types: Types, shape: Shape | undefined, before: unknown, after: unknown, out: Comparison): void {
  const { added, removed, modified } = out;
  const lists = Array.isArray(before) || Array.isArray(after);
  const maps = isObject(before) || isObject(after);
  const sizeOf = (value: unknown): number => (Array.isArray(value) ? value.length : isObject(value) ? Object.keys(value).length : 0);
  const isLeaf =
    (!lists && !maps) || (lists && listKind(shape).kind === 'atomic') || (maps && isAtomicMap(shape)) || (sizeOf(before) === 0 && sizeOf(after) === 0);
  if (before === undefined || before === null) added.member = after !== undefined;
  else if (after === undefined || after === null) removed.member = true;
  else if (isLeaf && !same(before, after)) modified.member = true;
  if (isLeaf) return;
  const down = (step: string, below: Shape | undefined, a: unknown, b: unknown): void => {
    if (a !== undefined && b !== undefined && same(a, b)) return;
    walk(types, below, a, b, { added: at(added, step), removed: at(removed, step), modified: at(modified, step) });
  };
  if (lists) {
    const kind = listKind(shape);
    const items = types.item(shape);
    const index = (value: unknown): Map<string, unknown> => new Map((Array.isArray(value) ? value : []).map((item) => [itemStep(kind, items, item), item]));
    const left = index(before);
    const right = index(after);
    for (const step of new Set([...left.keys(), ...right.keys()])) down(step, items, left.get(step), right.get(step));
  } else {
    const left = isObject(before) ? before : {};
    const right = isObject(after) ? after : {};
    for (const key of new Set([...Object.keys(left), ...Object.keys(right)])) down(`f:${key}`, types.field(shape, key), left[key], right[key]);
  }
}

/** Takes the members of `gone` out of a value; containers that become empty by it go too, as upstream does. */
export function removeFields(types: Types, shape: Shape | undefined, value: unknown, gone: FieldSet): unknown {
  if (Array.isArray(value)) {
    const kind = listKind(shape);
    if (kind.kind === 'atomic') return value;
    const items = types.item(shape);
    const rest: unknown[] = [];
    for (const item of value) {
      const cut = gone.below.get(itemStep(kind, items, item));
      if (cut?.member === true) continue;
      rest.push(cut === undefined ? item : (removeFields(types, items, item, cut) ?? {}));
    }
    return rest.length === 0 && value.length > 0 ? undefined : rest;
  }
  if (!isObject(value) || isAtomicMap(shape)) return value;
  const rest: Obj = {};
  for (const [key, item] of Object.entries(value)) {
    const cut = gone.below.get(`f:${key}`);
    if (cut?.member === true) continue;
    const kept = cut === undefined ? item : removeFields(types, types.field(shape, key), item, cut);
    if (kept !== undefined) rest[key] = kept;
  }
  return Object.keys(rest).length === 0 && Object.keys(value).length > 0 ? undefined : rest;
}

/** Structure fields named on the way to a member count as members when things are removed. */
export function withNamedFields(set: FieldSet): FieldSet {
  const out: FieldSet = { member: set.member, below: new Map() };
  for (const [step, child] of set.below) {
    const below = withNamedFields(child);
    if (step.startsWith('f:')) below.member = true;
    out.below.set(step, below);
  }
  return out;
}
