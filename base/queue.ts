import type { Clock } from './clock.ts';

export interface KeyedQueueOptions {
  clock: Clock;
  /** How many keys are worked on at once. */
  concurrency: number;
  /** Must stop soon after `signal` is aborted, which happens when the queue is disposed. */
  work: (key: string, signal: AbortSignal) => Promise<void>;
  /** Called when `work` throws; decides whether to `addAfter` again, or to let a bug end the process. */
  onError: (key: string, error: unknown) => void;
}

/**
 * Keys that need work. A key is never worked on twice at once; adding it while it waits changes nothing, adding it
 * while it is worked on makes it run once more afterwards. So its length is bounded by the number of keys.
 */
export interface KeyedQueue extends AsyncDisposable {
  add(key: string): void;
  /** Adds the key once `ms` have passed. Of several the earliest counts; a plain `add` meanwhile does not cancel it. */
  addAfter(key: string, ms: number): void;
  /** Drops the key's waiting and delayed work; work that runs goes on. */
  forget(key: string): void;
  /** Keys that are ready and wait for a free worker; delayed ones do not count. */
  readonly waiting: number;
  readonly running: number;
  /** Resolves when nothing waits and nothing runs; delayed keys do not count. */
  idle(): Promise<void>;
}

export function createKeyedQueue(options: KeyedQueueOptions): KeyedQueue {
  const { clock, concurrency, work, onError } = options;
  const ready = new Set<string>();
  const running = new Set<string>();
  const delayed = new Map<string, { dueMs: number; timer: Disposable }>();
  const idleWaiters: (() => void)[] = [];
  const stop = new AbortController();

  const runOne = async (key: string): Promise<void> => {
    try {
      await work(key, stop.signal);
    } catch (error) {
      onError(key, error);
    } finally {
      running.delete(key);
      pump();
    }
  };
  const pump = (): void => {
    for (const key of ready) {
      if (running.size >= concurrency) break;
      if (running.has(key)) continue;
      ready.delete(key);
      running.add(key);
      void runOne(key);
    }
    if (running.size === 0 && ready.size === 0) {
      for (const wake of idleWaiters.splice(0)) wake();
    }
  };
  const add = (key: string): void => {
    if (stop.signal.aborted) return;
    ready.add(key);
    pump();
  };
  const cancelDelay = (key: string): void => {
    delayed.get(key)?.timer[Symbol.dispose]();
    delayed.delete(key);
  };

  return {
    add,
    addAfter(key, ms) {
      if (stop.signal.aborted) return;
      if (ms <= 0) return add(key);
      const dueMs = clock.monoMs() + ms;
      const before = delayed.get(key);
      if (before !== undefined && before.dueMs <= dueMs) return;
      cancelDelay(key);
      const timer = clock.after(ms, () => {
        delayed.delete(key);
        add(key);
      });
      delayed.set(key, { dueMs, timer });
    },
    forget(key) {
      ready.delete(key);
      cancelDelay(key);
    },
    get waiting() {
      return ready.size;
    },
    get running() {
      return running.size;
    },
    idle() {
      if (running.size === 0 && ready.size === 0) return Promise.resolve();
      return new Promise((resolve) => idleWaiters.push(resolve));
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      ready.clear();
      for (const key of delayed.keys()) cancelDelay(key);
      if (running.size > 0) await new Promise<void>((resolve) => idleWaiters.push(resolve));
    },
  };
}
