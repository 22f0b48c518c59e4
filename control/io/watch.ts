import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { apiVersionOf } from '../core/schema.ts';
import { badRequest, expired } from '../core/failure.ts';
import { toServed } from '../core/convert.ts';
import type { Obj } from '../core/json.ts';
import { collectionOf } from './kernel.ts';
import type { Answer, Call, Kernel, Sink } from './kernel.ts';
import { filterOf, intOf, settle, versionOf } from './read.ts';
import type { Filter } from './read.ts';
import type { Change, ChangeType, Entry } from './store.ts';

const BOOKMARK_EVERY_MS = 60_000;
const LONGEST_WATCH_MS = 60 * 60_000;
const SHORTEST_WATCH_MS = 30 * 60_000;

/** What a change means to a watcher that sees only part of a collection. */
export function seenAs(change: Change, filter: Filter | undefined): ChangeType | undefined {
  if (filter === undefined) return change.type;
  const now = change.type !== 'DELETED' && filter(change.entry.object);
  const before = change.previous !== undefined && filter(change.previous.object);
  if (now) return before ? 'MODIFIED' : 'ADDED';
  return before ? 'DELETED' : undefined;
}

/** An object that leaves a selection is sent as it was, at the version of the change. */
function lastSeen(change: Change): Obj {
  if (change.type === 'DELETED' || change.previous === undefined) return change.entry.object;
  return { ...change.previous.object, metadata: { ...change.previous.object['metadata'], resourceVersion: String(change.revision) } };
}

export interface WatchForm {
  /** Names the encoding, so that watchers of the same one share lines; undefined: lines nobody else can use. */
  key: string | undefined;
  /** undefined: the stored JSON goes out as it is. */
  render: ((object: Obj) => unknown) | undefined;
}

function line(type: string, json: string): Buffer {
  return Buffer.from(`{"type":"${type}","object":${json}}\n`);
}

/** The lines of a watch. */
export async function watch(kernel: Kernel, info: ResourceInfo, namespace: string, call: Call, form: WatchForm): Promise<Answer> {
  const { query } = call;
  const filter = filterOf(kernel, info, query);
  const asked = versionOf(query.get('resourceVersion'));
  const initial = query.get('sendInitialEvents') ?? '';
  const match = query.get('resourceVersionMatch') ?? '';
  const seconds = intOf(query, 'timeoutSeconds') ?? 0;
  const wantsBookmarks = ['true', '1'].includes(query.get('allowWatchBookmarks') ?? '');
  if (initial !== '' && match !== 'NotOlderThan') {
    throw badRequest('resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan');
  }
  if (initial === '' && match !== '')
    throw badRequest('resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided');
  await settle(kernel);
  const { store } = kernel;
  const startsWithState = initial === 'true' || (initial === '' && (asked === undefined || asked === 0));
  const isServedAsStored =
    form.render === undefined && collectionOf(info) === `${info.group}/${info.resource}` && !(info.group === 'autoscaling' && info.version === 'v1');
  const encode = (object: Obj): string => {
    const served = toServed(info.group, info.version, object);
    return JSON.stringify(form.render === undefined ? served : form.render(served));
  };
  const entryLine = (type: ChangeType, entry: Entry): Buffer => line(type, isServedAsStored ? entry.json : encode(entry.object));
  const changeLine = (type: ChangeType, change: Change): Buffer => {
    if (form.key === undefined) return type !== 'DELETED' || change.type === 'DELETED' ? entryLine(type, change.entry) : line(type, encode(lastSeen(change)));
    const key = `${type} ${isServedAsStored ? '' : `${info.group}/${info.version} ${form.key}`}`;
    let found = change.encoded.get(key);
    if (found === undefined) {
      const isWhole = type !== 'DELETED' || change.type === 'DELETED';
      found = isWhole ? entryLine(type, change.entry) : line(type, encode(lastSeen(change)));
      change.encoded.set(key, found);
    }
    return found;
  };
  const bookmark = (revision: number, ends: boolean): Buffer => {
    const metadata: Obj = { resourceVersion: String(revision) };
    if (ends) metadata['annotations'] = { 'k8s.io/initial-events-end': 'true' };
    const object = { kind: info.kind, apiVersion: apiVersionOf(info), metadata };
    return line('BOOKMARK', JSON.stringify(form.render === undefined ? object : form.render(object)));
  };
  const start = (sink: Sink): Disposable => {
    const parts = new DisposableStack();
    let from = asked ?? 0;
    if (!startsWithState && initial === '' && from < store.compacted) {
      sink.write(line('ERROR', JSON.stringify(expired(`too old resource version: ${from} (${store.compacted})`).toStatus())));
      sink.end();
      return parts;
    }
    const finish = (): void => {
      parts.dispose();
      sink.end();
    };
    const put = (bytes: Buffer): void => {
      if (!sink.write(bytes)) finish();
    };
    if (startsWithState || initial === 'false') {
      from = store.revision;
      if (startsWithState)
        for (const entry of store.listAt(collectionOf(info), namespace, from) ?? [])
          if (filter === undefined || filter(entry.object)) sink.write(entryLine('ADDED', entry));
      if (initial === 'true' && wantsBookmarks) sink.write(bookmark(from, true));
    }
    const feed = store.watch(collectionOf(info), from, (change) => {
      if (parts.disposed || (namespace !== '' && change.entry.namespace !== namespace)) return;
      const type = seenAs(change, filter);
      if (type !== undefined) put(changeLine(type, change));
    });
    // The backlog alone can be more than a slow peer takes.
    if (parts.disposed) {
      feed[Symbol.dispose]();
      return parts;
    }
    parts.use(feed);

    const lifeMs = seconds > 0 ? seconds * 1000 : SHORTEST_WATCH_MS + kernel.rng.float() * (LONGEST_WATCH_MS - SHORTEST_WATCH_MS);
    if (wantsBookmarks) everyMinute(kernel, parts, () => put(bookmark(store.revision, false)), lifeMs);
    parts.use(kernel.clock.after(lifeMs, finish));
    return parts;
  };
  return { status: 200, kind: 'watch', start };
}

/** A bookmark each minute, and one shortly before the watch ends, so that a client can go on where it stopped. */
function everyMinute(kernel: Kernel, parts: DisposableStack, send: () => void, lifeMs: number): void {
  let next: Disposable | undefined;
  const arm = (): void => {
    next = kernel.clock.after(BOOKMARK_EVERY_MS, () => {
      send();
      // A bookmark can be the line that a slow peer does not take: then the watch is over.
      if (!parts.disposed) arm();
    });
  };
  arm();
  parts.defer(() => next?.[Symbol.dispose]());
  if (lifeMs > 4000) parts.use(kernel.clock.after(lifeMs - 2000, send));
}
