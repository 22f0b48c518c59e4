import { Failure } from './failure.ts';
import type { Cause } from './failure.ts';
import {
  compare,
  difference,
  emptySet,
  fieldsOf,
  fromFieldsV1,
  intersection,
  isEmptySet,
  itemStep,
  pathsOf,
  removeFields,
  toFieldsV1,
  union,
  withNamedFields,
  without,
} from './fieldset.ts';
import type { FieldSet } from './fieldset.ts';
import { copy, isObject, same } from './json.ts';
import type { Obj } from './json.ts';
import { isAtomicMap, listKind } from './schema.ts';
import type { Shape, Types } from './schema.ts';

/** Who writes, and how it is recorded. */
export interface Writer {
  name: string;
  apiVersion: string;
  subresource: string;
  /** RFC 3339. Scale writes are recorded without a time. */
  time: string | undefined;
}

interface Manager {
  name: string;
  operation: 'Apply' | 'Update';
  apiVersion: string;
  subresource: string;
  time: string | undefined;
  set: FieldSet;
}

/** Fields nobody owns: the server writes them itself. */
const NOBODYS = fromFieldsV1({
  'f:apiVersion': {},
  'f:kind': {},
  'f:metadata': {
    'f:name': {},
    'f:namespace': {},
    'f:creationTimestamp': {},
    'f:selfLink': {},
    'f:uid': {},
    'f:resourceVersion': {},
    'f:generation': {},
    'f:managedFields': {},
    'f:deletionTimestamp': {},
    'f:deletionGracePeriodSeconds': {},
    'f:clusterName': {},
  },
});

function read(entries: unknown): Manager[] {
  if (!Array.isArray(entries)) return [];
  return entries.map((entry: Obj) => ({
    name: entry['manager'] ?? '',
    operation: entry['operation'] === 'Apply' ? 'Apply' : 'Update',
    apiVersion: entry['apiVersion'] ?? '',
    subresource: entry['subresource'] ?? '',
    time: entry['time'],
    set: fromFieldsV1(entry['fieldsV1']),
  }));
}

function write(managers: readonly Manager[]): Obj[] {
  return managers
    .filter((manager) => !isEmptySet(manager.set))
    .toSorted((a, b) => order(a) - order(b) || (a.time ?? '').localeCompare(b.time ?? '') || a.name.localeCompare(b.name))
    .map((manager) => ({
      manager: manager.name,
      operation: manager.operation,
      apiVersion: manager.apiVersion,
      time: manager.time,
      fieldsType: 'FieldsV1',
      fieldsV1: toFieldsV1(manager.set),
      ...(manager.subresource === '' ? {} : { subresource: manager.subresource }),
    }));
}

const order = (manager: Manager): number => (manager.operation === 'Apply' ? 0 : 1);

const isWriter = (manager: Manager, writer: Writer, operation: Manager['operation']): boolean =>
  manager.name === writer.name && manager.operation === operation && manager.subresource === writer.subresource && manager.apiVersion === writer.apiVersion;

function bare(object: Obj): Obj {
  const { managedFields: _, ...metadata } = object['metadata'] ?? {};
  return { ...object, metadata };
}

/** Who owns what after a create, update or patch. `before` is {} for a create. Returns new managedFields. */
export function trackUpdate(types: Types, shape: Shape | undefined, before: Obj, after: Obj, writer: Writer): Obj[] | undefined {
  const given = after['metadata']?.managedFields;
  // An explicit empty list is the documented way to forget all owners.
  const forget = Array.isArray(given) && (given.length === 0 || (given.length === 1 && Object.keys(given[0]).length === 0)) && before['metadata'] !== undefined;
  if (forget) return undefined;
  const managers = read(given ?? before['metadata']?.managedFields);
  const found = compare(types, shape, bare(before), bare(after));
  const changed = withoutStructures(without(union(found.added, found.modified), NOBODYS));
  const gone = without(found.removed, NOBODYS);
  let own = managers.find((manager) => isWriter(manager, writer, 'Update'));
  for (const manager of managers) {
    if (manager === own) continue;
    manager.set = difference(difference(manager.set, changed), gone);
  }
  const hadSet = own?.set ?? emptySet();
  const set = union(difference(hadSet, gone), changed);
  if (own === undefined) {
    own = { name: writer.name, operation: 'Update', apiVersion: writer.apiVersion, subresource: writer.subresource, time: writer.time, set };
    managers.push(own);
  } else if (!isEmptySet(changed) || !isEmptySet(gone)) {
    if (!same(toFieldsV1(own.set), toFieldsV1(set)) || !isEmptySet(changed)) own.time = writer.time;
    own.set = set;
  }
  const entries = write(managers);
  return entries.length === 0 ? undefined : entries;
}

/** Structures every object of a kind has, set or not: only their fields are owned. Pointers in Go are owned themselves. */
const ALWAYS_THERE = new Set(
  [
    'metadata',
    'spec',
    'status',
    'template',
    'strategy',
    'updateStrategy',
    'jobTemplate',
    'resources',
    'loadBalancer',
    'nodeInfo',
    'daemonEndpoints',
    'kubeletEndpoint',
    'involvedObject',
    'source',
    'state',
    'lastState',
  ].map((name) => `f:${name}`),
);

function withoutStructures(set: FieldSet): FieldSet {
  const out: FieldSet = { member: set.member, below: new Map() };
  for (const [step, child] of set.below) {
    const below = withoutStructures(child);
    if (ALWAYS_THERE.has(step) && below.below.size > 0) below.member = false;
    out.below.set(step, below);
  }
  return out;
}

/** Merges an applied configuration into the live object: lists by their keys, maps by field, the rest replaced. */
function merge(types: Types, shape: Shape | undefined, live: unknown, config: unknown): unknown {
  if (Array.isArray(config) && Array.isArray(live)) {
    const kind = listKind(shape);
    if (kind.kind === 'atomic') return config;
    const items = types.item(shape);
    const step = (item: unknown): string => itemStep(kind, items, item);
    const wanted = new Map(config.map((item) => [step(item), item]));
    return mergeOrder(live, config, step).map((item) => {
      const mine = wanted.get(step(item));
      const theirs = live.find((have) => step(have) === step(item));
      if (mine === undefined) return theirs;
      return theirs === undefined ? mine : merge(types, items, theirs, mine);
    });
  }
  if (isObject(config) && isObject(live) && !isAtomicMap(shape)) {
    const out: Obj = { ...live };
    for (const [key, value] of Object.entries(config)) out[key] = merge(types, types.field(shape, key), live[key], value);
    return out;
  }
  return config;
}

/** Applied items in the applied order; items only the live list has stay before the neighbour they stood before. */
function mergeOrder(live: readonly unknown[], config: readonly unknown[], step: (item: unknown) => string): unknown[] {
  const wanted = new Set(config.map((item) => step(item)));
  const out: unknown[] = [];
  let next = 0;
  for (const item of live) {
    if (!wanted.has(step(item))) {
      out.push(item);
      continue;
    }
    const position = config.findIndex((mine) => step(mine) === step(item));
    while (next <= position) out.push(config[next++]);
  }
  return [...out, ...config.slice(next)];
}

/**
 * Server-side apply. Returns the merged object with new managedFields. Throws a 409 that names each other owner of a
 * field whose value would change, unless forced.
 */
export function serverSideApply(types: Types, shape: Shape | undefined, live: Obj, config: Obj, writer: Writer, force: boolean): Obj {
  const managers = read(live['metadata']?.managedFields);
  const applied = bare(config);
  const before = bare(live);
  let merged = merge(types, shape, before, copy(applied)) as Obj;
  const set = without(fieldsOf(types, shape, applied), NOBODYS);
  const own = managers.find((manager) => isWriter(manager, writer, 'Apply'));
  const others = managers.filter((manager) => manager !== own);
  if (own !== undefined) merged = prune(types, shape, merged, own.set, set, others);
  const found = compare(types, shape, before, merged);
  const changed = without(union(found.added, found.modified), NOBODYS);
  const conflicts = others.map((manager) => ({ manager, set: intersection(manager.set, changed) })).filter((entry) => !isEmptySet(entry.set));
  if (!force && conflicts.length > 0) throw conflictOf(conflicts);
  for (const { manager, set: lost } of conflicts) manager.set = difference(manager.set, lost);
  for (const manager of others) manager.set = difference(manager.set, found.removed);
  const isSame = own !== undefined && same(toFieldsV1(own.set), toFieldsV1(set)) && isEmptySet(changed) && isEmptySet(without(found.removed, NOBODYS));
  const entry: Manager = {
    name: writer.name,
    operation: 'Apply',
    apiVersion: writer.apiVersion,
    subresource: writer.subresource,
    time: isSame ? own.time : writer.time,
    set,
  };
  merged['metadata'] = { ...merged['metadata'], managedFields: write([...others, entry]) };
  return merged;
}

/** Takes out what this manager applied last time, does not apply now, and nobody else owns. */
function prune(types: Types, shape: Shape | undefined, merged: Obj, last: FieldSet, now: FieldSet, others: readonly Manager[]): Obj {
  const given = difference(last, now);
  if (isEmptySet(given)) return merged;
  let owned = now;
  for (const manager of others) owned = union(owned, manager.set);
  const gone = difference(withNamedFields(given), withNamedFields(owned));
  const inOthers = withoutAncestorsOf(gone, withNamedFields(owned));
  return removeFields(types, shape, merged, inOthers) ?? {};
}

/** A container is only removed when nothing below it is owned by anybody. */
function withoutAncestorsOf(gone: FieldSet, owned: FieldSet): FieldSet {
  const out: FieldSet = { member: gone.member && owned.below.size === 0, below: new Map() };
  for (const [step, child] of gone.below) out.below.set(step, withoutAncestorsOf(child, owned.below.get(step) ?? emptySet()));
  return out;
}

function conflictOf(conflicts: readonly { manager: Manager; set: FieldSet }[]): Failure {
  const causes: Cause[] = [];
  const groups: string[] = [];
  for (const { manager, set } of conflicts.toSorted((a, b) => a.manager.name.localeCompare(b.manager.name))) {
    const who = describe(manager);
    const paths = pathsOf(set);
    for (const path of paths) causes.push({ reason: 'FieldManagerConflict', message: `conflict with ${who}`, field: path });
    groups.push([`conflicts with ${who}:`, ...paths.map((path) => `- ${path}`)].join('\n'));
  }
  const message =
    causes.length === 1
      ? `Apply failed with 1 conflict: ${causes[0]!.message}: ${causes[0]!.field}`
      : `Apply failed with ${causes.length} conflicts: ${groups.join('\n')}`;
  return new Failure(409, 'Conflict', message, { causes });
}

function describe(manager: Manager): string {
  const name =
    manager.subresource === '' ? JSON.stringify(manager.name) : `${JSON.stringify(manager.name)} with subresource ${JSON.stringify(manager.subresource)}`;
  return manager.operation === 'Apply' ? name : `${name} using ${manager.apiVersion}`;
}
