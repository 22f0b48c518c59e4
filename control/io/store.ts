import { chmodSync, closeSync, existsSync, openSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import type { Clock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import type { Obj } from '../core/json.ts';

/** One object at one version. Never changed after it is made: readers, watchers and the disk share it. */
export interface Entry {
  /** `group/resource`. */
  readonly collection: string;
  readonly namespace: string;
  readonly name: string;
  readonly revision: number;
  readonly object: Obj;
  /** The object as JSON; made once for the disk, lists and watches. */
  readonly json: string;
}

export type ChangeType = 'ADDED' | 'MODIFIED' | 'DELETED';

export interface Change {
  readonly type: ChangeType;
  readonly revision: number;
  /** For DELETED the last state, at the version of the deletion. */
  readonly entry: Entry;
  readonly previous: Entry | undefined;
  readonly atMs: number;
  /** Room for encoded lines, so that all watchers of one form share one buffer. */
  readonly encoded: Map<string, Buffer>;
}

export interface StoreOptions {
  /** A file, or `:memory:`. */
  path: string;
  clock: Clock;
  /** `process`: survives kill -9 (default). `power`: survives power loss, a disk flush for each batch. */
  durability?: 'process' | 'power';
  /** How long changes stay readable for watches and continued lists. */
  windowMs?: number;
  windowChanges?: number;
  /** How large the file may become; absent: as large as the disk allows. */
  maxPages?: number;
  /** The disk refused: what is in memory and what is on disk differ, so the program must end. */
  fatal(error: unknown): void;
}

export interface Store extends Disposable {
  /** The version of the newest change that is on disk. */
  readonly revision: number;
  /** Changes up to this version are gone from the window. */
  readonly compacted: number;
  get(collection: string, namespace: string, name: string): Entry | undefined;
  /** Sorted by namespace and name; one namespace only when it is not ''. */
  list(collection: string, namespace: string): readonly Entry[];
  /** The collection as it was at `revision`; undefined when that is out of the window. */
  listAt(collection: string, namespace: string, revision: number): readonly Entry[] | undefined;
  /** Makes the next version of an object. `metadata.resourceVersion` is set here. Visible at once, acknowledged by `committed`. */
  put(collection: string, namespace: string, name: string, object: Obj): Entry;
  remove(collection: string, namespace: string, name: string, last: Obj): Entry;
  /** Resolves when everything written so far is on disk. */
  committed(): Promise<void>;
  /**
   * Calls `listener` for each change after `from`, in order: first those of the window, at once, then new ones as they
   * reach the disk.
   */
  watch(collection: string, from: number, listener: (change: Change) => void): Disposable;
  /** Calls back after each commit with the newest version (for bookmarks). */
  counts(): { objects: number; changes: number; watchers: number };
  compact(): void;
}

const SQLITE_FULL = 13;

/** What the window may hold, by the size of its objects as JSON. */
const WINDOW_MAX_BYTES = 24 * 1024 * 1024;

interface Shelf {
  byKey: Map<string, Entry>;
  /** Keys in order; undefined after an insert or removal until somebody lists. */
  sorted: string[] | undefined;
  watchers: Set<(change: Change) => void>;
}

const keyOf = (namespace: string, name: string): string => (namespace === '' ? name : `${namespace}/${name}`);

export function openStore(options: StoreOptions): Store {
  // It holds Secrets. SQLite gives the files beside the database the mode of the database.
  if (options.path !== ':memory:') {
    closeSync(openSync(options.path, 'a', 0o600));
    for (const suffix of ['', '-wal', '-shm']) if (existsSync(`${options.path}${suffix}`)) chmodSync(`${options.path}${suffix}`, 0o600);
  }
  const database = new DatabaseSync(options.path);
  database.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${options.durability === 'power' ? 'FULL' : 'NORMAL'}; PRAGMA wal_autocheckpoint = 1000;`);
  if (options.maxPages !== undefined) database.exec(`PRAGMA max_page_count = ${options.maxPages}`);
  database.exec(
    'CREATE TABLE IF NOT EXISTS objects (collection TEXT, namespace TEXT, name TEXT, revision INTEGER, value TEXT, PRIMARY KEY (collection, namespace, name)) WITHOUT ROWID',
  );
  database.exec('CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER) WITHOUT ROWID');
  const save = database.prepare(
    'INSERT INTO objects (collection, namespace, name, revision, value) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET revision = excluded.revision, value = excluded.value',
  );
  const erase = database.prepare('DELETE FROM objects WHERE collection = ? AND namespace = ? AND name = ?');
  const saveRevision = database.prepare("INSERT INTO facts (name, value) VALUES ('revision', ?) ON CONFLICT DO UPDATE SET value = excluded.value");

  const shelves = new Map<string, Shelf>();
  const shelf = (collection: string): Shelf => {
    let found = shelves.get(collection);
    if (found === undefined) {
      found = { byKey: new Map(), sorted: undefined, watchers: new Set() };
      shelves.set(collection, found);
    }
    return found;
  };

  const row = database.prepare("SELECT value FROM facts WHERE name = 'revision'").get() as { value: number } | undefined;
  let newest = row?.value ?? 0;
  for (const found of database.prepare('SELECT collection, namespace, name, revision, value FROM objects').iterate()) {
    const { collection, namespace, name, revision, value } = found as { collection: string; namespace: string; name: string; revision: number; value: string };
    shelf(collection).byKey.set(keyOf(namespace, name), { collection, namespace, name, revision, object: JSON.parse(value), json: value });
    newest = Math.max(newest, revision);
  }
  let durable = newest;
  let compacted = newest;
  const window: Change[] = [];
  let windowBytes = 0;
  let pending: Change[] = [];
  let waiters: PromiseWithResolvers<void> | undefined;
  let isBroken = false;

  /** Nobody has seen these: what is read is what is on disk. */
  const takeBack = (batch: readonly Change[]): void => {
    if (database.isTransaction) database.exec('ROLLBACK');
    for (const { entry, previous } of batch.toReversed()) {
      const found = shelf(entry.collection);
      const key = keyOf(entry.namespace, entry.name);
      if (previous === undefined) found.byKey.delete(key);
      else found.byKey.set(key, previous);
      found.sorted = undefined;
    }
    newest = durable;
  };

  const commit = (): void => {
    const batch = pending;
    const done = waiters;
    pending = [];
    waiters = undefined;
    if (isBroken) return;
    try {
      database.exec('BEGIN');
      for (const { type, entry } of batch) {
        if (type === 'DELETED') erase.run(entry.collection, entry.namespace, entry.name);
        else save.run(entry.collection, entry.namespace, entry.name, entry.revision, entry.json);
      }
      saveRevision.run(newest);
      database.exec('COMMIT');
    } catch (error) {
      if ((error as { errcode?: number }).errcode === SQLITE_FULL) {
        takeBack(batch);
        done?.reject(
          new OpError('exhausted', 'writing to the store', 'the disk is full', { cause: error, advice: `make room in the folder of ${options.path}` }),
        );
        return;
      }
      isBroken = true;
      done?.reject(error);
      options.fatal(error);
      return;
    }
    durable = batch.at(-1)?.revision ?? durable;
    done?.resolve();
    for (const change of batch) {
      window.push(change);
      windowBytes += change.entry.json.length;
      for (const listener of shelf(change.entry.collection).watchers) listener(change);
      // Whoever comes later encodes again: keeping every form of every change costs more than that.
      change.encoded.clear();
    }
    trim();
  };

  const trim = (): void => {
    const oldest = options.clock.nowMs() - (options.windowMs ?? 300_000);
    const most = options.windowChanges ?? 20_000;
    let gone = 0;
    let bytes = windowBytes;
    while (gone < window.length && (window[gone]!.atMs < oldest || window.length - gone > most || bytes > WINDOW_MAX_BYTES))
      bytes -= window[gone++]!.entry.json.length;
    // Cutting the front of a long array costs its length, so it is done in larger steps.
    if (gone < Math.min(500, most)) return;
    compacted = window[gone - 1]!.revision;
    windowBytes = bytes;
    window.splice(0, gone);
  };

  const record = (type: ChangeType, entry: Entry, previous: Entry | undefined): void => {
    pending.push({ type, revision: entry.revision, entry, previous, atMs: options.clock.nowMs(), encoded: new Map() });
    if (waiters === undefined) {
      waiters = Promise.withResolvers<void>();
      waiters.promise.catch(() => {});
      setImmediate(commit);
    }
  };

  const make = (collection: string, namespace: string, name: string, given: Obj): Entry => {
    const revision = ++newest;
    const object = { ...given, metadata: { ...given['metadata'], resourceVersion: String(revision) } };
    return { collection, namespace, name, revision, object, json: JSON.stringify(object) };
  };

  const sortedKeys = (found: Shelf): string[] => (found.sorted ??= [...found.byKey.keys()].toSorted());

  /** First index in the window whose change is newer than `from`. */
  const after = (from: number): number => {
    let low = 0;
    let high = window.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (window[middle]!.revision > from) high = middle;
      else low = middle + 1;
    }
    return low;
  };

  const list = (collection: string, namespace: string): readonly Entry[] => {
    const found = shelf(collection);
    const keys = sortedKeys(found);
    if (namespace === '') return keys.map((key) => found.byKey.get(key)!);
    const prefix = `${namespace}/`;
    const out: Entry[] = [];
    let low = 0;
    let high = keys.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (keys[middle]! < prefix) low = middle + 1;
      else high = middle;
    }
    for (; low < keys.length && keys[low]!.startsWith(prefix); low++) out.push(found.byKey.get(keys[low]!)!);
    return out;
  };

  return {
    get revision() {
      return durable;
    },
    get compacted() {
      return compacted;
    },
    get: (collection, namespace, name) => shelf(collection).byKey.get(keyOf(namespace, name)),
    list,
    listAt(collection, namespace, revision) {
      if (revision < compacted) return undefined;
      if (revision >= newest) return list(collection, namespace);
      const state = new Map(list(collection, namespace).map((entry) => [keyOf(entry.namespace, entry.name), entry]));
      const newer = [...window.slice(after(revision)), ...pending.filter((change) => change.revision > revision)];
      for (const { entry, previous } of newer.toReversed()) {
        if (entry.collection !== collection || (namespace !== '' && entry.namespace !== namespace)) continue;
        const key = keyOf(entry.namespace, entry.name);
        if (previous === undefined) state.delete(key);
        else state.set(key, previous);
      }
      return [...state].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, entry]) => entry);
    },
    put(collection, namespace, name, object) {
      const found = shelf(collection);
      const key = keyOf(namespace, name);
      const previous = found.byKey.get(key);
      const entry = make(collection, namespace, name, object);
      found.byKey.set(key, entry);
      if (previous === undefined) found.sorted = undefined;
      record(previous === undefined ? 'ADDED' : 'MODIFIED', entry, previous);
      return entry;
    },
    remove(collection, namespace, name, last) {
      const found = shelf(collection);
      const key = keyOf(namespace, name);
      const previous = found.byKey.get(key);
      const entry = make(collection, namespace, name, last);
      found.byKey.delete(key);
      found.sorted = undefined;
      record('DELETED', entry, previous);
      return entry;
    },
    committed: () => waiters?.promise ?? Promise.resolve(),
    watch(collection, from, listener) {
      const found = shelf(collection);
      for (let at = after(from); at < window.length; at++) if (window[at]!.entry.collection === collection) listener(window[at]!);
      found.watchers.add(listener);
      return { [Symbol.dispose]: () => void found.watchers.delete(listener) };
    },
    counts() {
      let objects = 0;
      let watchers = 0;
      for (const found of shelves.values()) {
        objects += found.byKey.size;
        watchers += found.watchers.size;
      }
      return { objects, changes: window.length, watchers };
    },
    compact() {
      compacted = durable;
      window.length = 0;
      windowBytes = 0;
    },
    [Symbol.dispose]() {
      if (pending.length > 0) commit();
      isBroken = true;
      database.close();
    },
  };
}
