import { BugError } from '../../base/assert.ts';
import { messageOf } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import { createKeyedQueue, type KeyedQueue } from '../../base/queue.ts';
import { createKeyedBackoff } from '../../base/retry.ts';
import type { ControlDeps } from './deps.ts';
import type { Store } from './store.ts';

export interface ControllerOptions {
  name: string;
  concurrency?: number;
  /** What must have been listed once before the first key is worked on. */
  needs: readonly Store<never>[];
  /** Reads the truth about one key, plans and acts; returns when to look again by itself, in milliseconds. */
  sync: (key: string, signal: AbortSignal) => Promise<number | undefined | void>;
  retry?: { baseMs: number; maxMs: number };
}

export interface Controller extends AsyncDisposable {
  add(key: string): void;
  addAfter(key: string, ms: number): void;
}

/** A keyed work queue that starts when its stores are filled and tries failed keys again, later and later. */
export function runController(deps: ControlDeps, options: ControllerOptions): Controller {
  const backoff = createKeyedBackoff(options.retry ?? { baseMs: 20, maxMs: 60_000 }, deps.rng);
  const early = new Set<string>();
  let queue: KeyedQueue | undefined;
  let stopped = false;

  const work = async (key: string, signal: AbortSignal): Promise<void> => {
    const againMs = await options.sync(key, signal);
    backoff.succeeded(key);
    if (typeof againMs === 'number') queue?.addAfter(key, againMs);
  };
  const onError = (key: string, error: unknown): void => {
    if (error instanceof BugError || error instanceof TypeError || error instanceof ReferenceError) throw error;
    if (stopped) return;
    const delayMs = backoff.failed(key);
    // A conflict or an absent object says only that the copy was old; the newer version is on its way.
    const level = isApiError(error, 409) || isApiError(error, 404) ? 4 : 0;
    deps.log.debug(level, 'sync failed', { controller: options.name, key, err: messageOf(error), againMs: Math.round(delayMs) });
    queue?.addAfter(key, delayMs);
  };
  const ready = Promise.all(options.needs.map((store) => store.synced)).then(() => {
    if (stopped) return;
    queue = createKeyedQueue({ clock: deps.clock, concurrency: options.concurrency ?? 5, work, onError });
    for (const key of early) queue.add(key);
    early.clear();
  });
  void ready;

  return {
    add(key) {
      if (queue === undefined) early.add(key);
      else queue.add(key);
    },
    addAfter(key, ms) {
      if (queue === undefined) early.add(key);
      else queue.addAfter(key, ms);
    },
    async [Symbol.asyncDispose]() {
      stopped = true;
      await queue?.[Symbol.asyncDispose]();
    },
  };
}
