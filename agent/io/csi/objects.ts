import type { Clock } from '../../../base/clock.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import { csiDrivers } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { Log } from '../../../base/log.ts';
import type { CSIDriver } from '../../../proto/kube/types.ts';

const waitMs = 5000;

/** A copy of the cluster's CSIDriver objects, kept from the first time that one is asked for. */
export class CsiDriverObjects {
  readonly #options: { api: KubeApi; clock: Clock; log: Log; signal: AbortSignal };
  readonly #objects = new Map<string, CSIDriver>();
  #synced: PromiseWithResolvers<void> | undefined;
  #isSynced = false;

  constructor(options: { api: KubeApi; clock: Clock; log: Log; signal: AbortSignal }) {
    this.#options = options;
  }

  /** The object of a driver; null when there is none. Throws OpError `unavailable` while nothing is known. */
  async get(name: string, signal: AbortSignal): Promise<CSIDriver | null> {
    await this.#ready(signal);
    return this.#objects.get(name) ?? null;
  }

  /** As `get`, without waiting; undefined while nothing is known. */
  peek(name: string): CSIDriver | null | undefined {
    return this.#isSynced ? (this.#objects.get(name) ?? null) : undefined;
  }

  /** Begins to keep the copy. */
  start(): void {
    if (this.#synced !== undefined) return;
    this.#synced = Promise.withResolvers<void>();
    const { api, log, signal } = this.#options;
    const done = this.#synced;
    void api
      .reflect<CSIDriver>(
        csiDrivers(),
        {},
        {
          replaced: (items) => {
            this.#objects.clear();
            for (const item of items) this.#objects.set(item.metadata.name ?? '', item);
            this.#isSynced = true;
            done.resolve();
          },
          changed: (type, object) => {
            if (type === 'DELETED') this.#objects.delete(object.metadata.name ?? '');
            else this.#objects.set(object.metadata.name ?? '', object);
          },
          trouble: (error) => log.debug(2, 'Watching CSIDrivers', { err: messageOf(error) }),
        },
        signal,
      )
      .catch((error: unknown) => {
        if (!signal.aborted) log.error('Watching CSIDrivers ended', { err: messageOf(error) });
      });
  }

  async #ready(signal: AbortSignal): Promise<void> {
    this.start();
    if (this.#isSynced || this.#synced === undefined) return;
    const late = new AbortController();
    const timer = this.#options.clock.sleep(waitMs, AbortSignal.any([signal, late.signal])).catch(() => undefined);
    await Promise.race([this.#synced.promise, timer]);
    late.abort();
    signal.throwIfAborted();
    if (!this.#isSynced) throw new OpError('unavailable', 'read CSIDrivers', 'the API server has not answered yet');
  }
}
