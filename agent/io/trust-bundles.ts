import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { KubeApi, ResourceRef } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { ClusterTrustBundle } from '../../proto/kube/types.ts';
import type { TrustBundleCopy } from '../core/trust-bundles.ts';

export interface TrustBundlesOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  /** Called with the UID of each pod that reads bundles, when one has changed. */
  readonly onChange: (uid: string) => void;
  /** How long a read waits for the first copy. */
  readonly waitMs?: number;
}

const group = 'certificates.k8s.io';
const resource = 'clustertrustbundles';
/** Newest first; older servers have only the later ones. */
const versions = ['v1', 'v1beta1', 'v1alpha1'];
const searchAgainMs = 30_000;
/** Changes that come together are told once. */
const gatherMs = 100;

/** The ClusterTrustBundles, all of them, by one watch that begins when the first pod names one. */
export class TrustBundles implements AsyncDisposable {
  readonly #options: TrustBundlesOptions;
  readonly #orderSeed: number;
  readonly #readers = new Set<string>();
  readonly #closing = new AbortController();
  readonly #bundles = new Map<string, ClusterTrustBundle>();
  #first = Promise.withResolvers<void>();
  #isSynced = false;
  #trouble = 'ClusterTrustBundle informer has not yet synced';
  #running: Promise<void> | undefined;
  #gathering: Disposable | undefined;

  constructor(options: TrustBundlesOptions) {
    this.#options = options;
    this.#orderSeed = options.rng.int(2 ** 31);
  }

  /** The newest copy for a pod, which is told of changes from now on. Waits a second at most for the first one. */
  async read(uid: string, signal: AbortSignal): Promise<TrustBundleCopy | { error: string }> {
    this.#readers.add(uid);
    this.#running ??= this.#run();
    if (!this.#isSynced) {
      const stop = new AbortController();
      const late = this.#options.clock.sleep(this.#options.waitMs ?? 1000, AbortSignal.any([signal, stop.signal])).catch(() => undefined);
      await Promise.race([this.#first.promise, late]);
      stop.abort();
      signal.throwIfAborted();
    }
    return this.#isSynced ? { bundles: [...this.#bundles.values()], orderSeed: this.#orderSeed } : { error: this.#trouble };
  }

  release(uid: string): void {
    this.#readers.delete(uid);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort();
    this.#gathering?.[Symbol.dispose]();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { api, log } = this.#options;
    const { signal } = this.#closing;
    try {
      const ref = await this.#search(signal);
      await api.reflect<ClusterTrustBundle>(
        ref,
        {},
        {
          replaced: (items) => {
            this.#bundles.clear();
            for (const item of items) this.#bundles.set(item.metadata.name ?? '', item);
            this.#isSynced = true;
            this.#first.resolve();
            this.#changed();
          },
          changed: (type, item) => {
            if (type === 'DELETED') this.#bundles.delete(item.metadata.name ?? '');
            else this.#bundles.set(item.metadata.name ?? '', item);
            this.#changed();
          },
          trouble: (error) => log.debug(2, 'Watch of ClusterTrustBundles is in trouble', { err: messageOf(error) }),
          trim: ({ metadata: { name, labels }, spec }) => ({ metadata: { name, labels }, spec }),
        },
        signal,
      );
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** Asks which version of the API is served until there is one. */
  async #search(signal: AbortSignal): Promise<ResourceRef> {
    const { api, clock, log } = this.#options;
    for (;;) {
      try {
        for (const version of versions) {
          const answer = await api.raw('GET', `/apis/${group}/${version}`, { timeoutMs: 10_000 }, signal);
          if (answer.status === 200 && serves(answer.body)) return { group, version, resource };
        }
        this.#trouble = 'the API server does not serve ClusterTrustBundles';
      } catch (error) {
        signal.throwIfAborted();
        this.#trouble = `failed to determine which version of ClusterTrustBundles is served: ${messageOf(error)}`;
      }
      log.warn('No ClusterTrustBundles can be read', { err: this.#trouble });
      this.#first.resolve();
      await clock.sleep(searchAgainMs, signal);
    }
  }

  #changed(): void {
    this.#gathering ??= this.#options.clock.after(gatherMs, () => {
      this.#gathering = undefined;
      for (const uid of this.#readers) this.#options.onChange(uid);
    });
  }
}

function serves(body: Uint8Array): boolean {
  const list = JSON.parse(Buffer.from(body).toString('utf8')) as { resources?: { name?: string }[] };
  return (list.resources ?? []).some(({ name }) => name === resource);
}
