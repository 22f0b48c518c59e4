import { realClock, type Clock } from '../clock.ts';
import { OpError } from '../errors.ts';
import { silentLog } from '../log.ts';
import { seededRng, type Rng } from '../rng.ts';
import { nameItems } from './kube-client.ts';
import { ApiError } from './errors.ts';
import { patched } from './fake-patch.ts';
import { selectorTest } from './fake-select.ts';
import { FakeStore, infoOf, resourceKey, type Change } from './fake-store.ts';
import { pathOf } from './refs.ts';
import { reflectLoop, type WatchEvent } from './reflect.ts';
import type { CallOptions, DeleteOptions, KubeApi, KubeList, KubeObject, Lane, ListOptions, PatchType, ReflectHandler, ResourceRef } from './types.ts';

export type FakeVerb = 'get' | 'list' | 'watch' | 'create' | 'update' | 'patch' | 'delete' | 'raw';

/** One call as the server saw it. */
export interface FakeCall {
  verb: FakeVerb;
  path: string;
  ref: ResourceRef | undefined;
  lane: Lane;
  body: unknown;
  query: Record<string, string>;
}

export interface Fault {
  verb?: FakeVerb;
  /** Plural name, as `pods`; with a subresource `pods/status`. */
  resource?: string;
  name?: string;
  /** How many calls are hit; default one. */
  times?: number;
  /** What the caller gets. `hang` waits for the caller's signal or timeout. */
  error: ApiError | OpError | 'hang';
  /** The call is done before it fails: an answer lost on the way. */
  after?: boolean;
}

/** Answers a call in place of the store: for reviews, tokens, logs. `undefined` leaves it to the store. */
export type Reaction = (call: FakeCall) => KubeObject | undefined | Promise<KubeObject | undefined>;

export interface FakeKubeApiOptions {
  clock?: Clock;
  rng?: Rng;
  /** Whether streaming lists are known; default yes. */
  streaming?: boolean;
}

interface OpenWatch {
  resource: string;
  give(change: Change): void;
  end(error: Error | undefined): void;
}

/** An answer is never there at once, yet no turn of the loop is taken: a fake clock sees long chains of calls as ready. */
const turn = (): Promise<void> => Promise.resolve();

/** The usual refusals, ready to inject. */
export const refusals = {
  tooMany: (retryAfterSeconds = 1): ApiError =>
    new ApiError(429, 'TooManyRequests', 'too many requests, please try again later', { retryAfterSeconds }, retryAfterSeconds * 1000),
  internal: (): ApiError => new ApiError(500, 'InternalError', 'an error on the server has prevented the request from succeeding'),
  forbidden: (): ApiError => new ApiError(403, 'Forbidden', 'forbidden'),
  conflict: (): ApiError => new ApiError(409, 'Conflict', 'the object has been modified; please apply your changes to the latest version and try again'),
  unavailable: (): OpError => new OpError('unavailable', 'request', 'connection refused'),
};

/** An API server in memory behind the KubeApi seam. Tests act as everybody else by `put`, `remove` and `objects`. */
export class FakeKubeApi implements KubeApi {
  readonly #clock: Clock;
  readonly #rng: Rng;
  readonly #streaming: boolean;
  readonly #store: FakeStore;
  readonly #watches = new Set<OpenWatch>();
  readonly #faults: { fault: Fault; left: number }[] = [];
  readonly #reactions: { verb: FakeVerb; resource: string; react: Reaction }[] = [];
  #away: OpError | undefined;
  /** Every call in order, refused ones too. */
  readonly calls: FakeCall[] = [];

  constructor(options: FakeKubeApiOptions = {}) {
    this.#clock = options.clock ?? realClock;
    this.#rng = options.rng ?? seededRng(1);
    this.#streaming = options.streaming ?? true;
    this.#store = new FakeStore(this.#clock, this.#rng);
    this.#store.onChange = (change) => {
      for (const watch of this.#watches) if (watch.resource === change.resource) watch.give(change);
    };
  }

  // ---- what tests do as the rest of the cluster -------------------------------------------------------------

  /** Writes an object as given, status included; versions, uid and times are filled in. */
  put<T extends KubeObject>(ref: ResourceRef, object: T): T {
    return structuredClone(this.#store.put(ref, object)) as T;
  }

  /** Takes an object away at once, whatever its finalizers say. */
  remove(ref: ResourceRef): void {
    const object = structuredClone(this.#store.get(ref));
    object.metadata.finalizers = [];
    this.#store.put(ref, object);
    this.#store.delete(ref, { gracePeriodSeconds: 0 });
  }

  /** The collection as it is stored now. */
  objects<T extends KubeObject>(ref: ResourceRef): T[] {
    return structuredClone(this.#store.list(ref)) as T[];
  }

  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the caller knows what it stored
  find<T extends KubeObject>(ref: ResourceRef): T | undefined {
    const found = this.#store.find(ref);
    return found === undefined ? undefined : (structuredClone(found) as KubeObject as T);
  }

  inject(fault: Fault): void {
    this.#faults.push({ fault, left: fault.times ?? 1 });
  }

  /** `resource` as in Fault. */
  react(verb: FakeVerb, resource: string, react: Reaction): void {
    this.#reactions.push({ verb, resource, react });
  }

  /** Ends watches as a lost connection does; without a resource, all of them. */
  cutWatches(resource?: string): void {
    for (const watch of this.#watches) if (resource === undefined || watch.resource === resource) watch.end(refusals.unavailable());
  }

  /** Forgets old versions: who watches from before gets 410 when it comes back. */
  compact(): void {
    this.#store.compact();
  }

  /** From now on nobody answers, until `back`. */
  goAway(): void {
    this.#away = refusals.unavailable();
    this.cutWatches();
  }

  back(): void {
    this.#away = undefined;
  }

  get openWatches(): number {
    return this.#watches.size;
  }

  // ---- KubeApi ---------------------------------------------------------------------------------------------

  get<T extends KubeObject>(ref: ResourceRef, options: CallOptions = {}, signal?: AbortSignal): Promise<T> {
    return this.#call('get', ref, undefined, options, () => this.#store.get(this.#main(ref)), signal) as Promise<T>;
  }

  async list<T extends KubeObject>(ref: ResourceRef, list: ListOptions = {}, options: CallOptions = {}, signal?: AbortSignal): Promise<KubeList<T>> {
    const query: ListOptions = { ...list, ...options.query };
    return (await this.#call('list', ref, undefined, options, () => this.#list(ref, query), signal)) as unknown as KubeList<T>;
  }

  // oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- a body may lack what only a server fills in
  create<T extends KubeObject, B = T>(ref: ResourceRef, body: B, options: CallOptions = {}, signal?: AbortSignal): Promise<T> {
    const { name: _, ...collection } = ref;
    const target = ref.subresource === undefined ? collection : ref;
    return this.#call('create', target, body, options, () => this.#create(target, body as KubeObject), signal) as Promise<T>;
  }

  update<T extends KubeObject>(ref: ResourceRef, body: T, options: CallOptions = {}, signal?: AbortSignal): Promise<T> {
    const target = ref.name === undefined && body.metadata.name !== undefined ? { ...ref, name: body.metadata.name } : ref;
    return this.#call('update', target, body, options, () => this.#store.update(target, body), signal) as Promise<T>;
  }

  patch<T extends KubeObject>(
    ref: ResourceRef,
    type: PatchType,
    body: unknown,
    options: CallOptions & { force?: boolean } = {},
    signal?: AbortSignal,
  ): Promise<T> {
    return this.#call('patch', ref, body, options, () => this.#patch(ref, type, body), signal) as Promise<T>;
  }

  delete(ref: ResourceRef, body?: DeleteOptions, options: CallOptions = {}, signal?: AbortSignal): Promise<KubeObject> {
    return this.#call('delete', ref, body, options, () => this.#store.delete(ref, body), signal);
  }

  async raw(
    method: string,
    path: string,
    options: CallOptions & { body?: unknown } = {},
    signal?: AbortSignal,
  ): Promise<{ status: number; headers: Record<string, string>; body: Uint8Array }> {
    const answer = await this.#call('raw', { group: '', version: '', resource: `${method} ${path}` }, options.body, options, () => ({ metadata: {} }), signal);
    const text = 'text' in answer ? String(answer.text) : 'ok';
    return { status: 200, headers: {}, body: Buffer.from(text) };
  }

  reflect<T extends KubeObject>(
    ref: ResourceRef,
    selector: Pick<ListOptions, 'labelSelector' | 'fieldSelector'>,
    handler: ReflectHandler<T>,
    signal: AbortSignal,
  ): Promise<void> {
    const source = {
      list: (query: Record<string, string>, inner: AbortSignal) => this.list(ref, {}, { query }, inner),
      watch: (query: Record<string, string>, onEvent: (event: WatchEvent) => void, inner: AbortSignal) => this.#watch(ref, query, onEvent, inner),
    };
    return reflectLoop<T>({ source, clock: this.#clock, rng: this.#rng, log: silentLog, what: pathOf(ref) }, selector, handler, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cutWatches();
  }

  // ---- inside ------------------------------------------------------------------------------------------------

  async #call(verb: FakeVerb, ref: ResourceRef, body: unknown, options: CallOptions, act: () => KubeObject, signal?: AbortSignal): Promise<KubeObject> {
    const call: FakeCall = {
      verb,
      path: verb === 'raw' ? ref.resource : pathOf(ref),
      ref: verb === 'raw' ? undefined : ref,
      lane: options.lane ?? 'requests',
      body: structuredClone(body),
      query: { ...options.query },
    };
    this.calls.push(call);
    await turn();
    if (signal?.aborted === true) throw new OpError('aborted', `${verb} ${call.path}`, 'stopped by the caller');
    const fault = this.#faultFor(verb, ref);
    if (fault !== undefined && fault.after !== true) await this.#fail(fault, call, options, signal);
    const named = ref.subresource === undefined ? ref.resource : `${ref.resource}/${ref.subresource}`;
    const reaction = this.#reactions.findLast((candidate) => candidate.verb === verb && candidate.resource === named);
    const answer = structuredClone((await reaction?.react(call)) ?? act());
    if (fault !== undefined) await this.#fail(fault, call, options, signal);
    return answer;
  }

  #faultFor(verb: FakeVerb, ref: ResourceRef): Fault | undefined {
    if (this.#away !== undefined) return { error: this.#away };
    const named = ref.subresource === undefined ? ref.resource : `${ref.resource}/${ref.subresource}`;
    const at = this.#faults.findIndex(
      ({ fault }) => (fault.verb ?? verb) === verb && (fault.resource ?? named) === named && (fault.name ?? ref.name) === ref.name,
    );
    const found = this.#faults[at];
    if (found === undefined) return undefined;
    if (--found.left <= 0) this.#faults.splice(at, 1);
    return found.fault;
  }

  async #fail(fault: Fault, call: FakeCall, options: CallOptions, signal: AbortSignal | undefined): Promise<never> {
    if (fault.error !== 'hang') throw fault.error;
    const doing = `${call.verb} ${call.path}`;
    try {
      await this.#clock.sleep(options.timeoutMs ?? 60_000, signal);
    } catch (cause) {
      throw new OpError('aborted', doing, 'stopped by the caller', { cause });
    }
    throw new OpError('deadline', doing, 'no answer in time');
  }

  /** Subresources that show the whole object are read from it. */
  #main(ref: ResourceRef): ResourceRef {
    const { subresource: _, ...main } = ref;
    return main;
  }

  #list(ref: ResourceRef, query: ListOptions): KubeObject {
    const info = infoOf(ref);
    const version = this.#store.version;
    const test = selectorTest(query.labelSelector, query.fieldSelector);
    const all = this.#store.list(ref).filter(test);
    const [start = 0, at = version] = (query.continue ?? '')
      .split('/')
      .filter((part) => part !== '')
      .map(Number);
    if (query.continue !== undefined && at < this.#store.compactedAt)
      throw new ApiError(410, 'Expired', 'The provided continue parameter is too old to display a consistent list result.');
    const limit = Number(query.limit);
    const items = limit > 0 ? all.slice(start, start + limit) : all.slice(start);
    const left = all.length - start - items.length;
    const list: KubeList<KubeObject> = {
      apiVersion: info.group === '' ? info.version : `${info.group}/${info.version}`,
      kind: `${info.kind}List`,
      metadata: { resourceVersion: String(at), ...(left > 0 && { continue: `${start + items.length}/${at}`, remainingItemCount: left }) },
      items,
    };
    return nameItems(list);
  }

  #create(ref: ResourceRef, body: KubeObject): KubeObject {
    const { subresource } = ref;
    if (subresource === undefined) {
      const info = infoOf(ref);
      // Reviews are answered, not stored.
      return info.verbs.length === 1 && info.verbs[0] === 'create' && info.kind !== 'Binding' ? body : this.#store.create(ref, body);
    }
    const main = this.#main(ref);
    const object = structuredClone(this.#store.get(main)) as KubeObject & { spec: Record<string, unknown> };
    if (subresource === 'binding') {
      const { target } = body as KubeObject & { target: { name: string } };
      object.spec['nodeName'] = target.name;
      this.#store.put(main, object);
      return { apiVersion: 'v1', kind: 'Status', metadata: {}, status: 'Success' } as KubeObject;
    }
    if (subresource === 'eviction') {
      this.#store.delete(main, (body as KubeObject & { deleteOptions?: DeleteOptions }).deleteOptions);
      return { apiVersion: 'v1', kind: 'Status', metadata: {}, status: 'Success' } as KubeObject;
    }
    if (subresource === 'token') {
      const { spec } = body as KubeObject & { spec: { expirationSeconds?: number } };
      const seconds = spec.expirationSeconds ?? 3600;
      return {
        ...body,
        status: {
          token: `token-${ref.name}-${this.#rng.suffix(8)}`,
          expirationTimestamp: new Date(this.#clock.nowMs() + seconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z'),
        },
      } as KubeObject;
    }
    throw new ApiError(404, 'NotFound', `the fake knows no ${ref.resource}/${subresource}`);
  }

  #patch(ref: ResourceRef, type: PatchType, body: unknown): KubeObject {
    const main = this.#main(ref);
    const info = infoOf(ref);
    if (type === 'apply' && this.#store.find(main) === undefined) return this.#store.create(main, body as KubeObject);
    const before = this.#store.get(main);
    const after = patched(before, type, body, info.definition) as KubeObject;
    const sent = (body as { metadata?: { resourceVersion?: string } }).metadata?.resourceVersion;
    // Without a version of its own a patch applies to whatever is there.
    if (type === 'json' || sent === undefined) delete after.metadata.resourceVersion;
    return this.#store.update(ref, after);
  }

  async #watch(ref: ResourceRef, query: Record<string, string>, onEvent: (event: WatchEvent) => void, signal: AbortSignal): Promise<void> {
    this.calls.push({ verb: 'watch', path: pathOf(ref), ref, lane: 'requests', body: undefined, query });
    await turn();
    if (signal.aborted) return;
    const fault = this.#faultFor('watch', ref);
    if (fault !== undefined) await this.#fail(fault, this.calls.at(-1) as FakeCall, {}, signal);
    const streaming = query['sendInitialEvents'] === 'true';
    if (streaming && !this.#streaming)
      throw new ApiError(422, 'Invalid', 'sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled');
    const test = selectorTest(query['labelSelector'], query['fieldSelector']);
    const send = (type: string, object: KubeObject): void => onEvent({ type, object: structuredClone(object) });
    const give = (change: Change): void => {
      const { object, before, deleted } = change;
      if (ref.namespace !== undefined && object.metadata.namespace !== ref.namespace) return;
      const was = before !== undefined && test(before);
      const is = !deleted && test(object);
      if (is) send(was ? 'MODIFIED' : 'ADDED', object);
      else if (was) send('DELETED', object);
    };
    if (streaming) {
      for (const object of this.#store.list(ref)) if (test(object)) send('ADDED', object);
      send('BOOKMARK', {
        kind: infoOf(ref).kind,
        metadata: { resourceVersion: String(this.#store.version), annotations: { 'k8s.io/initial-events-end': 'true' } },
      });
    } else {
      const from = Number(query['resourceVersion'] ?? 0);
      if (from < this.#store.compactedAt) throw new ApiError(410, 'Expired', `too old resource version: ${from} (${this.#store.compactedAt})`);
      for (const change of this.#store.changesAfter(from)) if (change.resource === resourceKey(ref)) give(change);
    }
    await new Promise<void>((resolve, reject) => {
      const watch: OpenWatch = {
        resource: resourceKey(ref),
        give,
        end: (error) => {
          this.#watches.delete(watch);
          signal.removeEventListener('abort', stop);
          timeout[Symbol.dispose]();
          if (error === undefined) resolve();
          else reject(error);
        },
      };
      const stop = (): void => watch.end(undefined);
      const timeout = this.#clock.after(Number(query['timeoutSeconds'] ?? 300) * 1000, stop);
      this.#watches.add(watch);
      if (signal.aborted) stop();
      else signal.addEventListener('abort', stop, { once: true });
    });
  }
}
