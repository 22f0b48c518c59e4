import { messageOf, OpError } from '../errors.ts';
import type { Rng } from '../rng.ts';
import { LineSplitter } from './lines.ts';
import { pathOf } from './refs.ts';
import { reflectLoop, type ReflectSource, type WatchEvent } from './reflect.ts';
import { Sender, type Request, type SenderOptions } from './sender.ts';
import type { CallOptions, KubeApi, KubeList, KubeObject, ListOptions, PatchType, ReflectHandler, ResourceRef } from './types.ts';

export interface KubeClientOptions extends SenderOptions {
  rng: Rng;
}

export type KubeApiOptions = Omit<KubeClientOptions, 'openClient'>;

export const patchContentTypes: Readonly<Record<PatchType, string>> = {
  json: 'application/json-patch+json',
  merge: 'application/merge-patch+json',
  strategic: 'application/strategic-merge-patch+json',
  apply: 'application/apply-patch+yaml',
};

/** The query parameters of list options; what is empty is left out. */
export function listQuery(list: ListOptions): Record<string, string> {
  const query: Record<string, string> = {};
  for (const [key, value] of Object.entries(list)) {
    if (value !== undefined && value !== '') query[key] = String(value);
  }
  return query;
}

/** Items of a list carry no kind of their own; those of a watch do. */
export function nameItems<T extends KubeObject>(list: KubeList<T>): KubeList<T> {
  const { apiVersion, kind } = list;
  list.items ??= [];
  list.metadata ??= {};
  if (apiVersion === undefined || kind?.endsWith('List') !== true) return list;
  for (const item of list.items) {
    item.apiVersion ??= apiVersion;
    item.kind ??= kind.slice(0, -'List'.length);
  }
  return list;
}

function parse(bytes: Uint8Array, doing: string): unknown {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'));
  } catch (cause) {
    throw new OpError('failed', doing, `the answer is not JSON: ${messageOf(cause)}`, { cause });
  }
}

/** The calls of `KubeApi`, over whatever client `openClient` gives. */
export class KubeClient implements KubeApi {
  readonly #options: KubeClientOptions;
  readonly #sender: Sender;

  constructor(options: KubeClientOptions) {
    this.#options = options;
    this.#sender = new Sender(options);
  }

  async #call<T>(
    method: string,
    ref: ResourceRef,
    options: CallOptions,
    extra: { query?: Record<string, string>; body?: unknown; contentType?: string },
    signal?: AbortSignal,
  ): Promise<T> {
    const path = pathOf(ref);
    const request: Request = {
      method,
      path,
      query: { ...extra.query, ...options.query },
      ...(options.timeoutMs !== undefined && { timeoutMs: options.timeoutMs }),
      ...(extra.body !== undefined && { body: JSON.stringify(extra.body), headers: { 'content-type': extra.contentType ?? 'application/json' } }),
    };
    const answer = await this.#sender.send(options.lane ?? 'requests', request, true, signal);
    return parse(answer.body, `${method} ${path}`) as T;
  }

  get<T extends KubeObject>(ref: ResourceRef, options: CallOptions = {}, signal?: AbortSignal): Promise<T> {
    return this.#call('GET', ref, options, {}, signal);
  }

  async list<T extends KubeObject>(ref: ResourceRef, list: ListOptions = {}, options: CallOptions = {}, signal?: AbortSignal): Promise<KubeList<T>> {
    return nameItems(await this.#call<KubeList<T>>('GET', ref, options, { query: listQuery(list) }, signal));
  }

  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- a body may lack what only a server fills in
  create<T extends KubeObject, B = T>(ref: ResourceRef, body: B, options: CallOptions = {}, signal?: AbortSignal): Promise<T> {
    // The name of a new object is in its body; only its subresources are posted to a name.
    const { name, ...collection } = ref;
    return this.#call('POST', ref.subresource === undefined || name === undefined ? collection : ref, options, { body }, signal);
  }

  update<T extends KubeObject>(ref: ResourceRef, body: T, options: CallOptions = {}, signal?: AbortSignal): Promise<T> {
    return this.#call(
      'PUT',
      ref.name === undefined && body.metadata.name !== undefined ? { ...ref, name: body.metadata.name } : ref,
      options,
      { body },
      signal,
    );
  }

  patch<T extends KubeObject>(
    ref: ResourceRef,
    type: PatchType,
    body: unknown,
    options: CallOptions & { force?: boolean } = {},
    signal?: AbortSignal,
  ): Promise<T> {
    const query: Record<string, string> = options.force === true ? { force: 'true' } : {};
    return this.#call('PATCH', ref, options, { body, query, contentType: patchContentTypes[type] }, signal);
  }

  delete(ref: ResourceRef, body?: object, options: CallOptions = {}, signal?: AbortSignal): Promise<KubeObject> {
    return this.#call('DELETE', ref, options, body === undefined ? {} : { body: { apiVersion: 'v1', kind: 'DeleteOptions', ...body } }, signal);
  }

  async raw(
    method: string,
    path: string,
    options: CallOptions & { body?: unknown; headers?: Record<string, string> } = {},
    signal?: AbortSignal,
  ): Promise<{ status: number; headers: Record<string, string>; body: Uint8Array }> {
    const { body } = options;
    const isJson = body !== undefined && typeof body !== 'string' && !(body instanceof Uint8Array);
    const request: Request = {
      method,
      path,
      headers: { accept: '*/*', ...(isJson && { 'content-type': 'application/json' }), ...options.headers },
      ...(options.query !== undefined && { query: options.query }),
      ...(options.timeoutMs !== undefined && { timeoutMs: options.timeoutMs }),
      ...(body !== undefined && { body: isJson ? JSON.stringify(body) : body }),
    };
    return this.#sender.send(options.lane ?? 'requests', request, false, signal);
  }

  reflect<T extends KubeObject>(
    ref: ResourceRef,
    selector: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>,
    handler: ReflectHandler<T>,
    signal: AbortSignal,
  ): Promise<void> {
    const path = pathOf(ref);
    const source: ReflectSource = {
      list: (query, inner) => this.list(ref, {}, { query }, inner),
      watch: (query, onEvent, inner) => this.#watch(path, query, onEvent, inner),
    };
    const { clock, rng, log } = this.#options;
    return reflectLoop<T>({ source, clock, rng, log, what: path }, selector, handler, signal);
  }

  async #watch(path: string, query: Record<string, string>, onEvent: (event: WatchEvent) => void, signal: AbortSignal): Promise<void> {
    await this.#sender.stream(
      { method: 'GET', path, query },
      async (body) => {
        const lines = new LineSplitter();
        for await (const chunk of body as AsyncIterable<Buffer>) {
          for (const line of lines.push(chunk)) onEvent(JSON.parse(line) as WatchEvent);
        }
        if (lines.unfinished) throw new OpError('unavailable', `watch ${path}`, 'cut in the middle of an event');
      },
      signal,
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#sender[Symbol.asyncDispose]();
  }
}
