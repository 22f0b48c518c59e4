import { type Clock, rfc3339 } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { messageOf } from '../../base/errors.ts';
import type { KubeApi, KubeObject, ResourceRef } from '../../base/kubeapi/types.ts';
import { keyOf } from '../core/controllers/owners.ts';

export type Change<T> = (object: T, before: T | undefined, type: 'added' | 'changed' | 'gone') => void;

/** How long a write of our own may stay unseen in the watch before it is taken for undone. */
const UNSEEN_WRITE_MS = 10_000;
const REMEMBERED_DELETIONS = 4096;

/**
 * A copy of one collection, kept by a watch, in which the program's own writes show at once: so no controller acts
 * twice on what it has just done. A version older than what is held never replaces it.
 */
export class Store<T extends KubeObject> {
  readonly ref: ResourceRef;
  readonly #items = new Map<string, T>();
  readonly #indexes = new Map<string, { of: (object: T) => readonly string[]; keys: Map<string, Set<string>> }>();
  readonly #listeners: Change<T>[] = [];
  readonly #deletedUids = new Set<string>();
  readonly #unseen = new Map<string, Disposable>();
  readonly #clock: Clock;
  readonly #log: Log;
  #synced = Promise.withResolvers<void>();
  #isSynced = false;

  constructor(ref: ResourceRef, clock: Clock, log: Log) {
    this.ref = ref;
    this.#clock = clock;
    this.#log = log;
  }

  /** Resolves after the first list. */
  get synced(): Promise<void> {
    return this.#synced.promise;
  }

  get isSynced(): boolean {
    return this.#isSynced;
  }

  get(key: string): T | undefined {
    return this.#items.get(key);
  }

  values(): T[] {
    return [...this.#items.values()];
  }

  /** Calls `listener` for what is there and for each later change. */
  onChange(listener: Change<T>): void {
    this.#listeners.push(listener);
    for (const object of this.#items.values()) listener(object, undefined, 'added');
  }

  /** Keeps `by(name, value)` fast: `of` names the values under which an object is found. */
  addIndex(name: string, of: (object: T) => readonly string[]): void {
    if (this.#indexes.has(name)) return;
    const index = { of, keys: new Map<string, Set<string>>() };
    this.#indexes.set(name, index);
    for (const [key, object] of this.#items) this.#indexOne(index, key, undefined, object);
  }

  by(name: string, value: string): T[] {
    const keys = this.#indexes.get(name)?.keys.get(value) ?? [];
    return [...keys].flatMap((key) => this.#items.get(key) ?? []);
  }

  /** Runs until `signal` is aborted. `trim` keeps only what readers need. */
  async run(api: KubeApi, signal: AbortSignal, selector: { labelSelector?: string; fieldSelector?: string } = {}, trim?: (object: T) => T): Promise<void> {
    const handler = {
      replaced: (items: readonly T[]) => this.#replace(items),
      changed: (type: 'ADDED' | 'MODIFIED' | 'DELETED', object: T) => this.#observe(type, object),
      trouble: (error: unknown) => this.#log.warn('watch interrupted', { resource: this.ref.resource, err: messageOf(error) }),
      ...(trim === undefined ? {} : { trim }),
    };
    await api.reflect<T>(this.ref, selector, handler, signal);
    for (const timer of this.#unseen.values()) timer[Symbol.dispose]();
    this.#unseen.clear();
  }

  /** Takes in what the server answered to a write of ours. */
  wrote(object: T): void {
    const uid = object.metadata.uid ?? '';
    if (this.#deletedUids.has(uid)) return;
    const key = keyOf(object);
    if (!this.#put(key, object)) return;
    this.#unseen.get(uid)?.[Symbol.dispose]();
    this.#unseen.set(
      uid,
      this.#clock.after(UNSEEN_WRITE_MS, () => this.#unseen.delete(uid)),
    );
  }

  /** Takes in that the server agreed to delete `object`; the watch tells later how far it got. */
  deleting(object: T, answer: KubeObject | undefined): void {
    const same = answer?.metadata?.uid !== undefined && answer.metadata.uid === object.metadata.uid;
    if (same && answer.metadata.deletionTimestamp) return this.wrote(answer as T);
    const key = keyOf(object);
    const held = this.#items.get(key);
    if (held?.metadata.uid !== object.metadata.uid || held?.metadata.deletionTimestamp) return;
    const deletionTimestamp = rfc3339(this.#clock.nowMs());
    if (held !== undefined) this.#set(key, { ...held, metadata: { ...held.metadata, deletionTimestamp } });
  }

  /** Takes in that the server does not have `object` any more. */
  vanished(object: T): void {
    const key = keyOf(object);
    if (this.#items.get(key)?.metadata.uid === object.metadata.uid) this.#remove(key);
  }

  #replace(items: readonly T[]): void {
    const present = new Set<string>();
    for (const object of items) {
      const key = keyOf(object);
      present.add(key);
      this.#seen(object);
      this.#put(key, object);
    }
    for (const [key, object] of this.#items) {
      // A write of ours may be newer than the list.
      if (!present.has(key) && !this.#unseen.has(object.metadata.uid ?? '')) this.#remove(key);
    }
    if (!this.#isSynced) {
      this.#isSynced = true;
      this.#synced.resolve();
    }
  }

  #observe(type: 'ADDED' | 'MODIFIED' | 'DELETED', object: T): void {
    const key = keyOf(object);
    this.#seen(object);
    if (type !== 'DELETED') {
      this.#put(key, object);
      return;
    }
    this.#rememberDeleted(object.metadata.uid ?? '');
    const held = this.#items.get(key);
    if (held !== undefined && held.metadata.uid === object.metadata.uid) this.#remove(key, object);
  }

  #seen(object: T): void {
    const uid = object.metadata.uid ?? '';
    const unseen = this.#unseen.get(uid);
    if (unseen === undefined) return;
    unseen[Symbol.dispose]();
    this.#unseen.delete(uid);
  }

  #rememberDeleted(uid: string): void {
    this.#deletedUids.add(uid);
    if (this.#deletedUids.size <= REMEMBERED_DELETIONS) return;
    for (const oldest of this.#deletedUids) {
      this.#deletedUids.delete(oldest);
      break;
    }
  }

  #put(key: string, object: T): boolean {
    const held = this.#items.get(key);
    if (held !== undefined && held.metadata.uid === object.metadata.uid && isOlder(object.metadata.resourceVersion, held.metadata.resourceVersion))
      return false;
    if (
      held !== undefined &&
      held.metadata.uid === object.metadata.uid &&
      held.metadata.resourceVersion === object.metadata.resourceVersion &&
      held.metadata.deletionTimestamp === object.metadata.deletionTimestamp
    )
      return true;
    this.#set(key, object);
    return true;
  }

  #set(key: string, object: T): void {
    const before = this.#items.get(key);
    this.#items.set(key, object);
    for (const index of this.#indexes.values()) this.#indexOne(index, key, before, object);
    if (before !== undefined && before.metadata.uid !== object.metadata.uid) {
      for (const listener of this.#listeners) listener(before, undefined, 'gone');
      for (const listener of this.#listeners) listener(object, undefined, 'added');
      return;
    }
    for (const listener of this.#listeners) listener(object, before, before === undefined ? 'added' : 'changed');
  }

  #remove(key: string, last?: T): void {
    const before = this.#items.get(key);
    if (before === undefined) return;
    this.#rememberDeleted(before.metadata.uid ?? '');
    this.#items.delete(key);
    for (const index of this.#indexes.values()) this.#indexOne(index, key, before, undefined);
    for (const listener of this.#listeners) listener(last ?? before, before, 'gone');
  }

  #indexOne(index: { of: (object: T) => readonly string[]; keys: Map<string, Set<string>> }, key: string, before: T | undefined, after: T | undefined): void {
    for (const value of before === undefined ? [] : index.of(before)) {
      const keys = index.keys.get(value);
      keys?.delete(key);
      if (keys?.size === 0) index.keys.delete(value);
    }
    for (const value of after === undefined ? [] : index.of(after)) {
      const keys = index.keys.get(value);
      if (keys === undefined) index.keys.set(value, new Set([key]));
      else keys.add(key);
    }
  }
}

/** Versions are decimal numbers that grow. */
function isOlder(version: string | undefined, than: string | undefined): boolean {
  if (version === undefined || than === undefined || version === than) return false;
  return version.length === than.length ? version < than : version.length < than.length;
}

/** One store per collection, shared by all controllers of a process. */
export class Stores {
  readonly #api: KubeApi;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>[] = [];
  readonly #stores = new Map<string, Store<KubeObject>>();

  constructor(api: KubeApi, clock: Clock, log: Log, signal: AbortSignal) {
    this.#api = api;
    this.#clock = clock;
    this.#log = log;
    if (signal.aborted) this.#stop.abort();
    else signal.addEventListener('abort', () => this.#stop.abort(), { once: true, signal: this.#stop.signal });
  }

  get signal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Starts the watch at the first call for a collection. */
  of<T extends KubeObject>(
    ref: ResourceRef,
    options: { labelSelector?: string; fieldSelector?: string; trim?: (object: T) => T; signal?: AbortSignal } = {},
  ): Store<T> {
    const key = [ref.group, ref.version, ref.resource, ref.namespace ?? '', options.labelSelector ?? '', options.fieldSelector ?? ''].join('|');
    const known = this.#stores.get(key);
    if (known !== undefined) return known as unknown as Store<T>;
    const store = new Store<T>(ref, this.#clock, this.#log);
    this.#stores.set(key, store as unknown as Store<KubeObject>);
    const { trim, labelSelector, fieldSelector } = options;
    const selector = { ...(labelSelector === undefined ? {} : { labelSelector }), ...(fieldSelector === undefined ? {} : { fieldSelector }) };
    const signal = options.signal === undefined ? this.#stop.signal : AbortSignal.any([options.signal, this.#stop.signal]);
    const run = store.run(this.#api, signal, selector, trim).finally(() => this.#stores.delete(key));
    this.#running.push(run);
    return store;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await Promise.allSettled(this.#running);
  }
}
