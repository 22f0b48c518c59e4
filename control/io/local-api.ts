import { ApiError } from '../../base/kubeapi/errors.ts';
import { OpError } from '../../base/errors.ts';
import type {
  CallOptions,
  DeleteOptions,
  KubeApi,
  KubeList,
  KubeObject,
  ListOptions,
  PatchType,
  ReflectHandler,
  ResourceRef,
} from '../../base/kubeapi/types.ts';
import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import type { User } from '../core/authorize.ts';
import { Failure, noSuchPath } from '../core/failure.ts';
import { copy } from '../core/json.ts';
import { toServed } from '../core/convert.ts';
import { parseRequest } from '../core/request.ts';
import { apiVersionOf } from '../core/schema.ts';
import type { Api } from './api.ts';
import { collectionOf } from './kernel.ts';
import type { Answer, Body, Call, Kernel } from './kernel.ts';
import { filterOf } from './read.ts';
import { acceptedBy, render } from './render.ts';
import { seenAs } from './watch.ts';

const BURST_MAX_MS = 4;

const PATCH_TYPES: Record<PatchType, string> = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
};

function pathOf(ref: ResourceRef): string {
  const root = ref.group === '' ? `/api/${ref.version}` : `/apis/${ref.group}/${ref.version}`;
  const space = ref.namespace === undefined || ref.namespace === '' ? '' : `/namespaces/${ref.namespace}`;
  const name = ref.name === undefined ? '' : `/${encodeURIComponent(ref.name)}`;
  return `${root}${space}/${ref.resource}${name}${ref.subresource === undefined ? '' : `/${ref.subresource}`}`;
}

/** Our own request path as a KubeApi, for controllers in this process: no socket, no text, the same rules. */
export function createLocalApi(kernel: Kernel, api: Api, user: User, userAgent: string): KubeApi {
  const call = (method: string, path: string, query: URLSearchParams, body: Body, contentType: string, signal: AbortSignal): Call => ({
    info: parseRequest(method, path, query),
    method,
    query,
    user,
    body,
    contentType,
    accept: 'application/json',
    userAgent,
    signal,
  });
  const run = async (
    method: string,
    ref: ResourceRef,
    query: Record<string, string>,
    body: unknown,
    contentType = 'application/json',
    signal?: AbortSignal,
  ): Promise<Answer> => {
    if (signal?.aborted === true) throw new OpError('aborted', `${method} ${ref.resource}`, 'stopped by the caller');
    await turn();
    const content: Body = body === undefined ? { kind: 'none' } : { kind: 'object', value: body };
    try {
      return await api.handle(call(method, pathOf(ref), new URLSearchParams(query), content, contentType, signal ?? new AbortController().signal));
    } catch (error) {
      if (error instanceof Failure)
        throw new ApiError(error.code, error.reason, error.message, error.details ?? {}, (error.details?.['retryAfterSeconds'] ?? 0) * 1000);
      throw error;
    }
  };
  // Calls from inside arrive in bursts and never wait for a socket: after a few milliseconds the others get their turn.
  const burst: { startedMs: number | undefined } = { startedMs: undefined };
  const turn = async (): Promise<void> => {
    while (burst.startedMs !== undefined && kernel.clock.monoMs() - burst.startedMs > BURST_MAX_MS) await new Promise((resolve) => setImmediate(resolve));
    if (burst.startedMs !== undefined) return;
    burst.startedMs = kernel.clock.monoMs();
    setImmediate(() => {
      burst.startedMs = undefined;
    });
  };
  const objectOf = (answer: Answer): unknown => copy(answer.kind === 'object' ? answer.object : undefined);

  return {
    async get<T extends KubeObject>(ref: ResourceRef, options?: CallOptions, signal?: AbortSignal) {
      return objectOf(await run('GET', ref, { ...options?.query }, undefined, undefined, signal)) as T;
    },
    async list<T extends KubeObject>(ref: ResourceRef, list?: ListOptions, options?: CallOptions, signal?: AbortSignal) {
      const query: Record<string, string> = { ...options?.query };
      for (const [key, value] of Object.entries(list ?? {})) if (value !== undefined && value !== '') query[key] = String(value);
      const answer = await run('GET', ref, query, undefined, undefined, signal);
      if (answer.kind !== 'list') throw new ApiError(400, 'BadRequest', 'a single object was named');
      const { resource } = answer;
      const items = answer.entries.map((entry) => copy(toServed(resource.group, resource.version, entry.object)) as T);
      return { kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata: answer.metadata, items } as KubeList<T>;
    },
    async create<T extends KubeObject>(ref: ResourceRef, body: unknown, options?: CallOptions, signal?: AbortSignal) {
      return objectOf(await run('POST', ref, { ...options?.query }, body, undefined, signal)) as T;
    },
    async update<T extends KubeObject>(ref: ResourceRef, body: T, options?: CallOptions, signal?: AbortSignal) {
      return objectOf(await run('PUT', ref, { ...options?.query }, body, undefined, signal)) as T;
    },
    async patch<T extends KubeObject>(ref: ResourceRef, type: PatchType, body: unknown, options?: CallOptions & { force?: boolean }, signal?: AbortSignal) {
      const query = { ...options?.query, ...(options?.force === true ? { force: 'true' } : {}) };
      return objectOf(await run('PATCH', ref, query, body, PATCH_TYPES[type], signal)) as T;
    },
    async delete(ref: ResourceRef, body?: DeleteOptions, options?: CallOptions, signal?: AbortSignal) {
      const answer = await run(
        'DELETE',
        ref,
        { ...options?.query },
        body === undefined ? undefined : { kind: 'DeleteOptions', apiVersion: 'v1', ...body },
        undefined,
        signal,
      );
      return objectOf(answer) as KubeObject;
    },
    async raw(method, path, options, signal) {
      const url = new URL(path, 'https://localhost');
      for (const [key, value] of Object.entries(options?.query ?? {})) url.searchParams.set(key, value);
      const given = options?.body;
      const body: Body = given === undefined ? { kind: 'none' } : typeof given === 'string' ? { kind: 'text', text: given } : { kind: 'object', value: given };
      const asked = call(
        method,
        url.pathname,
        url.searchParams,
        body,
        options?.headers?.['content-type'] ?? 'application/json',
        signal ?? new AbortController().signal,
      );
      const headers = { 'content-type': 'application/json' };
      try {
        const answer = await api.handle(asked);
        const info = kernel.registry.find(asked.info.group, asked.info.version, asked.info.resource);
        const text =
          answer.kind === 'text' ? String(answer.text) : await render(kernel, info, answer, acceptedBy('application/json', false), asked.query, false);
        return { status: answer.status, headers, body: Buffer.from(text) };
      } catch (error) {
        if (error instanceof Failure) return { status: error.code, headers, body: Buffer.from(JSON.stringify(error.toStatus())) };
        throw error;
      }
    },
    reflect: (ref, selector, handler, signal) => reflect(kernel, ref, selector, handler, signal),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

const copies = new WeakMap<object, KubeObject>();

/** One copy of an object version for all readers in this process; the stored one stays out of their reach. */
function shared(info: ResourceInfo, object: Record<string, unknown>): KubeObject {
  const isStored = collectionOf(info) === `${info.group}/${info.resource}` && info.version !== 'v1beta1' && info.group !== 'autoscaling';
  if (!isStored) return copy(toServed(info.group, info.version, object)) as unknown as KubeObject;
  let found = copies.get(object);
  if (found === undefined) {
    found = copy(object) as unknown as KubeObject;
    copies.set(object, found);
  }
  return found;
}

/** The whole collection once, then each change as it reaches the disk. Nothing can be cut here, so nothing is listed twice. */
async function reflect<T extends KubeObject>(
  kernel: Kernel,
  ref: ResourceRef,
  selector: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>,
  handler: ReflectHandler<T>,
  signal: AbortSignal,
): Promise<void> {
  const info = kernel.registry.find(ref.group, ref.version, ref.resource);
  if (info === undefined) throw noSuchPath();
  const query = new URLSearchParams();
  if (selector.labelSelector !== undefined) query.set('labelSelector', selector.labelSelector);
  const fields = [selector.fieldSelector, ref.name === undefined ? undefined : `metadata.name=${ref.name}`].filter((item) => item !== undefined && item !== '');
  if (fields.length > 0) query.set('fieldSelector', fields.join(','));
  const filter = filterOf(kernel, info, query);
  const collection = collectionOf(info);
  const namespace = ref.namespace ?? '';
  await kernel.store.committed();
  if (signal.aborted) return;
  const give = (object: Record<string, unknown>): T =>
    handler.trim === undefined ? (shared(info, object) as T) : handler.trim(copy(toServed(info.group, info.version, object)) as unknown as T);
  const from = kernel.store.revision;
  const entries = kernel.store.listAt(collection, namespace, from)!.filter((entry) => filter === undefined || filter(entry.object));
  handler.replaced(entries.map((entry) => give(entry.object)));
  using _feed = kernel.store.watch(collection, from, (change) => {
    if (namespace !== '' && change.entry.namespace !== namespace) return;
    const type = seenAs(change, filter);
    if (type === undefined) return;
    try {
      handler.changed(type, give(change.entry.object));
    } catch (error) {
      handler.trouble?.(error);
    }
  });
  const { promise, resolve } = Promise.withResolvers<void>();
  signal.addEventListener('abort', () => resolve(), { once: true });
  await promise;
}
