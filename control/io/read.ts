import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { badRequest, expired, invalid, notFound, tooLargeVersion } from '../core/failure.ts';
import { toServed } from '../core/convert.ts';
import { matchesLabels, parseFieldSelector, parseLabelSelector } from '../core/selectors.ts';
import type { Obj } from '../core/json.ts';
import { collectionOf } from './kernel.ts';
import type { Answer, Call, Kernel } from './kernel.ts';
import type { Entry } from './store.ts';

export type Filter = (object: Obj) => boolean;

/** The query's selectors as one test; undefined when everything is wanted. */
export function filterOf(kernel: Kernel, info: ResourceInfo, query: URLSearchParams): Filter | undefined {
  const labels = parseLabelSelector(query.get('labelSelector') ?? '');
  const fields = parseFieldSelector(query.get('fieldSelector') ?? '');
  if (labels.length === 0 && fields.length === 0) return undefined;
  const strategy = kernel.strategy(info);
  for (const { path } of fields) {
    const known =
      path === 'metadata.name' ||
      (path === 'metadata.namespace' && info.namespaced) ||
      path in (strategy.fields?.({ metadata: {}, spec: {}, status: {} }) ?? {});
    if (!known) {
      throw badRequest(`field label not supported: ${path}`);
    }
  }
  const needsMore = fields.some(({ path }) => !path.startsWith('metadata.'));
  return (object) => {
    const metadata: Obj = object['metadata'];
    if (!matchesLabels(labels, metadata['labels'])) return false;
    if (fields.length === 0) return true;
    const own = needsMore ? (strategy.fields?.(object) ?? {}) : {};
    return fields.every(({ path, equal, value }) => {
      const has = path === 'metadata.name' ? metadata['name'] : path === 'metadata.namespace' ? metadata['namespace'] : own[path];
      return ((has ?? '') === value) === equal;
    });
  };
}

export async function get(kernel: Kernel, info: ResourceInfo, call: Call): Promise<Answer> {
  const find = (): Entry | undefined => kernel.store.get(collectionOf(info), info.namespaced ? call.info.namespace : '', call.info.name);
  await settle(kernel);
  // Others write between the commit and this turn: what is shown has to be on disk.
  while ((find()?.revision ?? 0) > kernel.store.revision) await settle(kernel);
  const entry = find();
  if (entry === undefined) throw notFound(info, call.info.name);
  return { status: 200, kind: 'object', object: toServed(info.group, info.version, entry.object) };
}

export interface ListResult {
  entries: readonly Entry[];
  metadata: Record<string, unknown>;
}

/** A version from a query: a whole number, or nothing. */
export function versionOf(text: string | null): number | undefined {
  if (text === null || text === '') return undefined;
  if (!/^\d+$/.test(text))
    throw badRequest(
      `invalid resource version: resourceVersion: Invalid value: ${JSON.stringify(text)}: strconv.ParseUint: parsing ${JSON.stringify(text)}: invalid syntax`,
    );
  return Number(text);
}

/** A whole number from a query, or nothing. Refuses anything else: a wrong option must not be taken for an absent one. */
export function intOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name) ?? '';
  if (text === '') return undefined;
  if (!/^[-+]?\d+$/.test(text)) throw badRequest(`strconv.ParseInt: parsing ${JSON.stringify(text)}: invalid syntax`);
  return Number(text);
}

/** Waits until what is in memory is on disk, so that nobody sees what a crash could take back. */
export async function settle(kernel: Kernel): Promise<void> {
  await kernel.store.committed();
}

const EXPIRED_CONTINUE =
  'The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.';

export async function list(kernel: Kernel, info: ResourceInfo, namespace: string, query: URLSearchParams): Promise<ListResult> {
  const filter = filterOf(kernel, info, query);
  const { store } = kernel;
  await settle(kernel);
  const limit = intOf(query, 'limit') ?? 0;
  const asked = versionOf(query.get('resourceVersion'));
  const match = query.get('resourceVersionMatch') ?? '';
  if (match !== '' && match !== 'Exact' && match !== 'NotOlderThan') throw badRequest(`resourceVersionMatch: Unsupported value: ${JSON.stringify(match)}`);
  if (match !== '' && asked === undefined)
    throw invalid('meta.k8s.io', 'ListOptions', '', [
      {
        reason: 'FieldValueForbidden',
        field: 'resourceVersionMatch',
        message: 'Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided',
      },
    ]);
  const collection = collectionOf(info);
  let revision = store.revision;
  let after = '';
  let entries: readonly Entry[] | undefined;
  const token = query.get('continue') ?? '';
  if (token !== '') {
    const from = readToken(token);
    revision = from.revision < 0 ? store.revision : from.revision;
    after = from.after;
    entries = store.listAt(collection, namespace, revision);
    if (entries === undefined) throw expired(EXPIRED_CONTINUE);
  } else {
    if (asked !== undefined && asked > revision) throw tooLargeVersion(asked, revision);
    if (match === 'Exact' && asked !== undefined && asked !== 0) {
      revision = asked;
      entries = store.listAt(collection, namespace, asked);
      if (entries === undefined) throw expired(`The resourceVersion for the provided list is too old.`);
    }
    entries ??= store.listAt(collection, namespace, revision)!;
  }
  if (after !== '') entries = entries.filter((entry) => keyOf(entry) > after);
  if (filter !== undefined) entries = entries.filter((entry) => filter(entry.object));
  const metadata: Record<string, unknown> = { resourceVersion: String(revision) };
  if (limit > 0 && entries.length > limit) {
    const page = entries.slice(0, limit);
    metadata['continue'] = Buffer.from(JSON.stringify({ v: 'meta.k8s.io/v1', rv: revision, start: keyOf(page.at(-1)!) })).toString('base64url');
    if (filter === undefined) metadata['remainingItemCount'] = entries.length - limit;
    entries = page;
  }
  return { entries, metadata };
}

const keyOf = (entry: Entry): string => (entry.namespace === '' ? entry.name : `${entry.namespace}/${entry.name}`);

function readToken(token: string): { revision: number; after: string } {
  try {
    const { rv, start } = JSON.parse(Buffer.from(token, 'base64url').toString()) as { rv: number; start: string };
    if (typeof rv === 'number' && typeof start === 'string') return { revision: rv, after: start };
  } catch {
    // Said below, in the same words as for a token that decodes to something else.
  }
  throw badRequest('invalid continue token: continue key is not valid: illegal base64 data or content');
}
