import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { configMaps, secrets, services } from '../../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { ConfigMap, Pod, Secret, Service } from '../../proto/kube/types.ts';
import { objectsNamed } from '../core/volumes-mounts.ts';
import type { EnvSources } from '../seams.ts';

export interface SourcesOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly log: Log;
  /** How long a read waits for the first copy. Upstream waits one second. */
  readonly waitMs?: number;
  /** An object that nobody read for this long is no longer watched, until the next read. */
  readonly idleMs?: number;
}

type Kind = 'configmap' | 'secret';

/** One object under watch. `waiters` are woken by the first complete copy. */
interface Item {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
  readonly pods: Set<string>;
  state:
    | { is: 'idle' }
    | { is: 'syncing'; stop: AbortController }
    | { is: 'watched'; stop: AbortController; object: KubeObject | null }
    | { is: 'immutable'; object: KubeObject };
  waiters: (() => void)[];
  lastReadMs: number;
  trouble: string;
  /** A read gave up before the first copy came: its pod is told when it does. */
  isAwaited: boolean;
}

/**
 * ConfigMaps and Secrets, each by a watch of its own while a pod on the node names it: the node never lists what it
 * has no business with, and may not. Services, all of them, by one watch.
 */
export class Sources implements EnvSources, AsyncDisposable {
  readonly #options: SourcesOptions;
  readonly #waitMs: number;
  readonly #idleMs: number;
  readonly #items = new Map<string, Item>();
  readonly #held = new Map<string, Set<string>>();
  readonly #callbacks: ((uid: string) => void)[] = [];
  readonly #watches = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #services: ServiceCopy | undefined;
  #sweep: Disposable | undefined;

  constructor(options: SourcesOptions) {
    this.#options = options;
    this.#waitMs = options.waitMs ?? 1000;
    this.#idleMs = options.idleMs ?? 5 * 60_000;
    this.#scheduleSweep();
  }

  async configMap(namespace: string, name: string, signal: AbortSignal): Promise<ConfigMap | null> {
    return await this.#read('configmap', namespace, name, signal);
  }

  async secret(namespace: string, name: string, signal: AbortSignal): Promise<Secret | null> {
    return await this.#read('secret', namespace, name, signal);
  }

  async services(namespace: string, signal: AbortSignal): Promise<readonly Service[]> {
    this.#services ??= this.#watchServices();
    const copy = this.#services;
    await waitFor(
      copy.waiters,
      () => copy.synced,
      this.#options.clock,
      this.#waitMs,
      signal,
      () =>
        new OpError(
          'deadline',
          'services have not yet been read at least once, cannot construct envvars',
          copy.trouble === '' ? 'timed out waiting for the condition' : copy.trouble,
        ),
    );
    return [...copy.objects.values()].filter((service) => service.metadata.namespace === namespace);
  }

  hold(pod: Pod): void {
    // Its containers will ask for the Services of their namespace soon.
    this.#services ??= this.#watchServices();
    const uid = pod.metadata.uid ?? '';
    const namespace = pod.metadata.namespace ?? '';
    const named = objectsNamed(pod);
    const wanted = new Set<string>();
    const want = (kind: Kind, name: string): void => {
      const item = this.#item(kind, namespace, name);
      item.pods.add(uid);
      wanted.add(keyOf(kind, namespace, name));
    };
    for (const name of named.configMaps) want('configmap', name);
    for (const name of named.secrets) want('secret', name);
    for (const key of this.#held.get(uid) ?? []) if (!wanted.has(key)) this.#drop(uid, key);
    this.#held.set(uid, wanted);
  }

  release(uid: string): void {
    for (const key of this.#held.get(uid) ?? []) this.#drop(uid, key);
    this.#held.delete(uid);
  }

  onChange(callback: (uid: string) => void): void {
    this.#callbacks.push(callback);
  }

  /** How many watches run now; for metrics and tests. */
  get watchCount(): number {
    return [...this.#items.values()].filter((item) => item.state.is === 'watched' || item.state.is === 'syncing').length;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    this.#sweep?.[Symbol.dispose]();
    await Promise.allSettled(this.#watches);
  }

  async #read(kind: Kind, namespace: string, name: string, signal: AbortSignal): Promise<KubeObject | null> {
    const item = this.#items.get(keyOf(kind, namespace, name));
    if (item === undefined) throw new OpError('invalid', `read a ${kind}`, `object ${JSON.stringify(namespace)}/${JSON.stringify(name)} not registered`);
    item.lastReadMs = this.#options.clock.monoMs();
    if (item.state.is === 'idle') this.#watch(item);
    const isSynced = (): boolean => item.state.is === 'watched' || item.state.is === 'immutable';
    // A refusal (no permission yet) is the truer answer than a time-out, where there is one.
    const refuse = (): OpError => {
      item.isAwaited = true;
      return new OpError('deadline', `failed to sync ${kind} cache`, item.trouble === '' ? 'timed out waiting for the condition' : item.trouble);
    };
    await waitFor(item.waiters, isSynced, this.#options.clock, this.#waitMs, signal, refuse);
    const { state } = item;
    return state.is === 'watched' || state.is === 'immutable' ? state.object : null;
  }

  #item(kind: Kind, namespace: string, name: string): Item {
    const key = keyOf(kind, namespace, name);
    const present = this.#items.get(key);
    if (present !== undefined) return present;
    const item: Item = {
      kind,
      namespace,
      name,
      pods: new Set(),
      state: { is: 'idle' },
      waiters: [],
      lastReadMs: this.#options.clock.monoMs(),
      trouble: '',
      isAwaited: false,
    };
    this.#items.set(key, item);
    this.#watch(item);
    return item;
  }

  #watch(item: Item): void {
    const stop = new AbortController();
    item.state = { is: 'syncing', stop };
    const ref = item.kind === 'configmap' ? configMaps(item.namespace) : secrets(item.namespace);
    const signal = AbortSignal.any([stop.signal, this.#closing.signal]);
    const isCurrent = (): boolean => (item.state.is === 'syncing' || item.state.is === 'watched') && item.state.stop === stop;
    const accept = (object: KubeObject | null): void => {
      if (!isCurrent()) return;
      const before = item.state.is === 'watched' ? item.state.object : undefined;
      item.trouble = '';
      if (object !== null && isImmutable(object)) {
        item.state = { is: 'immutable', object };
        stop.abort();
      } else item.state = { is: 'watched', stop, object };
      wake(item.waiters);
      const isNews = before === undefined ? item.isAwaited : versionOf(before) !== versionOf(object);
      item.isAwaited = false;
      if (isNews) this.#tell(item);
    };
    const running = this.#options.api.reflect<KubeObject>(
      ref,
      { fieldSelector: `metadata.name=${item.name}` },
      {
        replaced: (items) => accept(items.find((each) => each.metadata.name === item.name) ?? null),
        changed: (type, object) => {
          if (object.metadata.name === item.name) accept(type === 'DELETED' ? null : object);
        },
        trouble: (error) => {
          item.trouble = messageOf(error);
          this.#options.log.debug(2, 'Watch of an object is in trouble', { kind: item.kind, namespace: item.namespace, name: item.name, err: item.trouble });
        },
        trim: withoutManagedFields,
      },
      signal,
    );
    this.#track(running);
  }

  #tell(item: Item): void {
    for (const uid of item.pods) for (const callback of this.#callbacks) callback(uid);
  }

  #drop(uid: string, key: string): void {
    const item = this.#items.get(key);
    if (item === undefined) return;
    item.pods.delete(uid);
    if (item.pods.size > 0) return;
    stopWatch(item);
    this.#items.delete(key);
  }

  #watchServices(): ServiceCopy {
    const copy: ServiceCopy = { objects: new Map(), synced: false, waiters: [], trouble: '' };
    const keyOfService = (service: Service): string => `${service.metadata.namespace ?? ''}/${service.metadata.name ?? ''}`;
    const running = this.#options.api.reflect<Service>(
      services(),
      {},
      {
        replaced: (items) => {
          copy.objects = new Map(items.map((service) => [keyOfService(service), service]));
          copy.synced = true;
          wake(copy.waiters);
        },
        changed: (type, service) => {
          if (type === 'DELETED') copy.objects.delete(keyOfService(service));
          else copy.objects.set(keyOfService(service), service);
        },
        trouble: (error) => {
          copy.trouble = messageOf(error);
        },
        trim: trimService,
      },
      this.#closing.signal,
    );
    this.#track(running);
    return copy;
  }

  #track(running: Promise<void>): void {
    const ended = running.catch((error: unknown) => {
      if (!this.#closing.signal.aborted) this.#options.log.warn('A watch ended', { err: messageOf(error) });
    });
    this.#watches.add(ended);
    void ended.finally(() => this.#watches.delete(ended));
  }

  /** What is only named by environments is read at container starts alone: it need not be watched in between. */
  #scheduleSweep(): void {
    this.#sweep = this.#options.clock.after(this.#idleMs, () => {
      const now = this.#options.clock.monoMs();
      for (const item of this.#items.values()) if (item.state.is === 'watched' && now - item.lastReadMs >= this.#idleMs) stopWatch(item);
      this.#scheduleSweep();
    });
  }
}

interface ServiceCopy {
  objects: Map<string, Service>;
  synced: boolean;
  waiters: (() => void)[];
  trouble: string;
}

function keyOf(kind: Kind, namespace: string, name: string): string {
  return `${kind}/${namespace}/${name}`;
}

function stopWatch(item: Item): void {
  const { state } = item;
  if (state.is === 'watched' || state.is === 'syncing') state.stop.abort();
  item.state = { is: 'idle' };
}

function isImmutable(object: KubeObject): boolean {
  return (object as { immutable?: boolean }).immutable === true;
}

function versionOf(object: KubeObject | null): string | null {
  return object === null ? null : `${object.metadata.uid ?? ''}/${object.metadata.resourceVersion ?? ''}`;
}

function withoutManagedFields<T extends KubeObject>(object: T): T {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...object, metadata };
}

/** Only what environment variables are made of. */
function trimService(service: Service): Service {
  const { name, namespace, uid, resourceVersion } = service.metadata;
  const { clusterIP, clusterIPs, ports, type } = service.spec ?? {};
  return { metadata: { name, namespace, uid, resourceVersion }, spec: { clusterIP, clusterIPs, ports, type } };
}

function wake(waiters: (() => void)[]): void {
  for (const waiter of waiters.splice(0)) waiter();
}

/** Waits until `isDone`, woken through `waiters`; throws what `late` makes after `waitMs`, OpError `aborted` on the signal. */
async function waitFor(waiters: (() => void)[], isDone: () => boolean, clock: Clock, waitMs: number, signal: AbortSignal, late: () => OpError): Promise<void> {
  if (isDone()) return;
  signal.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const finish = (error?: Error): void => {
      timer[Symbol.dispose]();
      signal.removeEventListener('abort', onAbort);
      const at = waiters.indexOf(onWake);
      if (at !== -1) waiters.splice(at, 1);
      if (error === undefined) resolve();
      else reject(error);
    };
    const onWake = (): void => finish();
    const onAbort = (): void => finish(new OpError('aborted', 'wait for an object', 'stopped by the caller'));
    const timer = clock.after(waitMs, () => finish(late()));
    signal.addEventListener('abort', onAbort, { once: true });
    waiters.push(onWake);
  });
}
